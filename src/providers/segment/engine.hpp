// The seam between a segment store and the disk: who moves bytes between a file and memory, and says when the
// kernel has let go of the memory. Two engines stand behind it, io_uring and a pool of threads; tests put
// slow and broken disks there.
//
// end() is the proof of the end of access (semantics 2.4, 2.13): the engine calls it upon the completion of
// the original operation itself, the CQE of its SQE or the return of its system call. Nothing else is one:
// not the answer to a cancel (-ENOENT and -EALREADY come for reads that run on), not the end of
// io_uring_queue_exit, not a closed file (providers.md 1).
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/error.hpp"

namespace kvlease {

/// One vectored read or write, of one or two pieces of memory.
struct disk_transfer {
  enum class way : std::uint8_t { read, write } which = way::read;
  int file = -1;
  std::uint64_t offset = 0;
  std::array<iovec, 2> parts{};
  unsigned count = 1;

  std::size_t size() const noexcept;
  /// What is left when the first `done` bytes were moved; precondition: fewer than all.
  disk_transfer after(std::size_t done) const noexcept;
};

/// Made by the store, owned by the engine from submit() until it has ended.
class disk_operation {
 public:
  virtual ~disk_operation() = default;
  /// Called once a submission, right before the bytes move, on a thread of the engine. Nothing: there is
  /// nothing to move (any more, or before it is submitted again), and end() is not called.
  virtual std::optional<disk_transfer> begin() = 0;
  /// All bytes were moved (0), or the transfer has failed (errno). The kernel touches its memory no more.
  virtual void end(int problem) = 0;
};

using disk_operations = std::vector<std::shared_ptr<disk_operation>>;

/// Threads: submit() and the buffers from any. begin() and end() come on the engine's own threads, with no
/// lock held.
///
/// Destroying an engine never waits for the disk and never ends a transfer: while one runs, the engine's
/// threads live on, with all that they use, and end by themselves once the last has completed.
class disk_engine {
 public:
  virtual ~disk_engine() = default;
  /// Takes them, in their order; begins each as soon as fewer than `depth` run, and no more than so many have
  /// run and wait for end(). Short transfers are continued, EINTR and EAGAIN repeated.
  virtual void submit(disk_operations operations) = 0;
  /// A hint: transfers from and to this memory will come. remove_buffer() waits for none of them.
  virtual void add_buffer(std::span<std::byte>) {}
  virtual void remove_buffer(std::span<std::byte>) {}
  /// Buffers that the kernel has accepted, of those that it was told of.
  struct buffer_figures {
    std::size_t accepted = 0, told = 0;
  };
  virtual buffer_figures buffers() const { return {}; }
  virtual std::string describe() const = 0;
};

/// Errors: unsupported with the kernel's reason when io_uring is refused (kernel.io_uring_disabled, seccomp).
result<std::unique_ptr<disk_engine>> open_ring_engine(unsigned depth);
/// `depth` threads.
std::unique_ptr<disk_engine> open_thread_engine(unsigned depth);

}  // namespace kvlease

// The engine over io_uring. One thread owns the ring: it begins operations while fewer than `depth` run, and
// sleeps in the kernel until a completion or a submission (an eventfd that the ring itself reads) wakes it.
// It asks no timer, cancels nothing, and leaves the ring only when nothing runs.
#include <fmt/format.h>
#include <liburing.h>
#include <sys/eventfd.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>

#include "src/providers/segment/engine.hpp"

namespace kvlease {

namespace {

constexpr unsigned buffer_slots = 1024;
constexpr std::size_t buffer_most = std::size_t{1} << 30;  // the kernel's bound of one registered buffer

/// Memory that the kernel has pinned once, so that it need not for each transfer. Where it refuses (memlock,
/// an old kernel), transfers go without.
class pinned_buffers {
 public:
  void open(io_uring& ring) { usable_ = io_uring_register_buffers_sparse(&ring, buffer_slots) == 0; }

  void add(io_uring& ring, std::span<std::byte> memory) {
    const std::lock_guard lock{mutex_};
    for (std::size_t at = 0; at < memory.size(); at += buffer_most) {
      const auto part = memory.subspan(at, std::min(buffer_most, memory.size() - at));
      ++figures_.told;
      const auto index = free_slot();
      if (!usable_ || !index || update(ring, *index, part) < 0) continue;
      taken_.emplace(reinterpret_cast<std::uintptr_t>(part.data()), entry{part.size(), *index});
      ++figures_.accepted;
    }
  }
  void remove(io_uring& ring, std::span<std::byte> memory) {
    const std::lock_guard lock{mutex_};
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    figures_.told -= (memory.size() + buffer_most - 1) / buffer_most;
    for (auto it = taken_.lower_bound(begin); it != taken_.end() && it->first - begin < memory.size();) {
      update(ring, it->second.index, {});
      it = taken_.erase(it);
      --figures_.accepted;
    }
  }
  std::optional<int> index_of(const iovec& v) const {
    const std::lock_guard lock{mutex_};
    const auto address = reinterpret_cast<std::uintptr_t>(v.iov_base);
    auto it = taken_.upper_bound(address);
    if (it == taken_.begin()) return std::nullopt;
    --it;
    const auto inside = address - it->first;
    if (inside > it->second.size || v.iov_len > it->second.size - inside) return std::nullopt;
    return it->second.index;
  }
  disk_engine::buffer_figures figures() const {
    const std::lock_guard lock{mutex_};
    return figures_;
  }

 private:
  struct entry {
    std::size_t size;
    int index;
  };
  std::optional<int> free_slot() const {
    std::vector<bool> used(buffer_slots);
    for (const auto& [address, e] : taken_) used[static_cast<std::size_t>(e.index)] = true;
    for (unsigned i = 0; i < buffer_slots; ++i)
      if (!used[i]) return static_cast<int>(i);
    return std::nullopt;
  }
  static int update(io_uring& ring, int index, std::span<std::byte> memory) {
    const iovec v{memory.data(), memory.size()};
    const __u64 tag = 0;
    return io_uring_register_buffers_update_tag(&ring, static_cast<unsigned>(index), &v, &tag, 1);
  }

  mutable std::mutex mutex_;
  bool usable_ = false;
  std::map<std::uintptr_t, entry> taken_;
  disk_engine::buffer_figures figures_;
};

/// An operation between its SQE and its CQE.
struct running {
  std::shared_ptr<disk_operation> operation;
  disk_transfer rest;
  bool pinned = true;  ///< may use a registered buffer
};

/// Shared by the engine and its thread, so that the thread may outlive it.
struct shared {
  ~shared() {
    if (opened) io_uring_queue_exit(&ring);
    if (wake >= 0) ::close(wake);
  }
  io_uring ring{};
  bool opened = false;
  int wake = -1;  ///< an eventfd
  std::uint64_t woken = 0;
  pinned_buffers buffers;
  unsigned depth = 0;

  std::mutex mutex;
  std::deque<std::shared_ptr<disk_operation>> queue;
  std::size_t taken = 0;  ///< from the queue, and not ended
  bool asleep = false;    ///< the thread waits for a completion, or to be woken
  bool stopping = false;
};

/// The thread's own view.
class ring_loop {
 public:
  explicit ring_loop(shared& s) : s_{s} {}

  void run() {
    for (;;) {
      listen();
      begin_more();
      if (done()) return;
      if (ended_.empty()) sleep();
      take_completions();
      begin_more();  // the disk does not wait for what is left to do with the bytes
      tell_one();
    }
  }

 private:
  struct ended {
    std::shared_ptr<disk_operation> operation;
    int problem;
  };

  /// One read of the eventfd is in the ring, until the engine stops.
  void listen() {
    if (listening_) return;
    {
      const std::lock_guard lock{s_.mutex};
      if (s_.stopping) return;
    }
    auto* sqe = io_uring_get_sqe(&s_.ring);
    if (sqe == nullptr) return;
    io_uring_prep_read(sqe, s_.wake, &s_.woken, sizeof s_.woken, 0);
    io_uring_sqe_set_data(sqe, nullptr);
    listening_ = true;
  }

  void begin_more() {
    // As many again may have ended and wait to be looked at.
    while (running_ < s_.depth && ended_.size() < s_.depth) {
      std::shared_ptr<disk_operation> next;
      {
        const std::lock_guard lock{s_.mutex};
        if (s_.queue.empty()) break;
        next = std::move(s_.queue.front());
        s_.queue.pop_front();
        ++s_.taken;
      }
      std::optional<disk_transfer> transfer;
      try {
        transfer = next->begin();
      } catch (...) {
        ended_.push_back({std::move(next), ENOMEM});  // nothing was begun
        continue;
      }
      if (!transfer) {
        let_go(std::move(next));
        continue;
      }
      ++running_;
      give_to_kernel(new running{std::move(next), *transfer});
      // The next write takes a while to begin: its checksum comes first.
      if (transfer->which == disk_transfer::way::write) io_uring_submit(&s_.ring);
    }
    if (!ended_.empty()) io_uring_submit(&s_.ring);  // else sleep() does
  }

  void give_to_kernel(running* r) {
    auto* sqe = io_uring_get_sqe(&s_.ring);
    while (sqe == nullptr) {  // depth bounds what runs: only while the kernel takes no more just now
      io_uring_submit(&s_.ring);
      sqe = io_uring_get_sqe(&s_.ring);
    }
    const auto& t = r->rest;
    const auto& first = t.parts[0];
    const bool read = t.which == disk_transfer::way::read;
    const auto index = t.count == 1 && r->pinned ? s_.buffers.index_of(first) : std::nullopt;
    r->pinned = index.has_value();
    const auto size = static_cast<unsigned>(first.iov_len);
    if (index && read)
      io_uring_prep_read_fixed(sqe, t.file, first.iov_base, size, t.offset, *index);
    else if (index)
      io_uring_prep_write_fixed(sqe, t.file, first.iov_base, size, t.offset, *index);
    else if (read)
      io_uring_prep_readv(sqe, t.file, t.parts.data(), t.count, t.offset);
    else
      io_uring_prep_writev(sqe, t.file, t.parts.data(), t.count, t.offset);
    io_uring_sqe_set_data(sqe, r);
  }

  void sleep() {
    {
      const std::lock_guard lock{s_.mutex};
      if (!s_.queue.empty() && running_ < s_.depth) return;
      s_.asleep = true;
    }
    const int answer = io_uring_submit_and_wait(&s_.ring, 1);
    // The kernel lacks memory for now, or has completions that it wants to be taken first.
    if (answer < 0 && answer != -EINTR && io_uring_cq_ready(&s_.ring) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    const std::lock_guard lock{s_.mutex};
    s_.asleep = false;
  }

  void take_completions() {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&s_.ring, &cqe) == 0) {
      auto* r = static_cast<running*>(io_uring_cqe_get_data(cqe));
      const int answer = cqe->res;
      io_uring_cqe_seen(&s_.ring, cqe);
      if (r == nullptr)
        listening_ = false;
      else
        completed(r, answer);
    }
  }

  /// The CQE of the original operation: the kernel has let go of its memory, or of a part of it.
  void completed(running* r, int answer) {
    if (answer == -EINTR || answer == -EAGAIN) return give_to_kernel(r);
    if (answer == -EFAULT && r->pinned) {  // its registration was closed meanwhile
      r->pinned = false;
      return give_to_kernel(r);
    }
    if (answer > 0 && static_cast<std::size_t>(answer) < r->rest.size()) {
      r->rest = r->rest.after(static_cast<std::size_t>(answer));
      return give_to_kernel(r);
    }
    const std::unique_ptr<running> owned{r};
    --running_;
    ended_.push_back({std::move(owned->operation), answer > 0 ? 0 : answer == 0 ? EIO : -answer});
  }

  void tell_one() {
    if (ended_.empty()) return;
    auto first = std::move(ended_.front());
    ended_.pop_front();
    first.operation->end(first.problem);
    let_go(std::move(first.operation));
  }

  void let_go(std::shared_ptr<disk_operation> operation) {
    {
      const std::lock_guard lock{s_.mutex};
      --s_.taken;
    }
    operation.reset();  // may be the last to hold the store, and so this engine
  }

  bool done() {
    if (listening_ || running_ > 0 || !ended_.empty()) return false;
    const std::lock_guard lock{s_.mutex};
    return s_.stopping && s_.queue.empty();
  }

  shared& s_;
  unsigned running_ = 0;  ///< in the kernel
  std::deque<ended> ended_;
  bool listening_ = false;
};

void wake(const shared& s) {
  const std::uint64_t one = 1;
  while (::write(s.wake, &one, sizeof one) < 0 && errno == EINTR) continue;
}

class ring_engine final : public disk_engine {
 public:
  explicit ring_engine(std::shared_ptr<shared> s)
      : shared_{std::move(s)}, thread_{[state = shared_] { ring_loop{*state}.run(); }} {}
  ~ring_engine() override {
    bool idle = false;
    {
      const std::lock_guard lock{shared_->mutex};
      shared_->stopping = true;
      idle = shared_->taken == 0 && shared_->queue.empty();
    }
    wake(*shared_);
    if (idle && thread_.get_id() != std::this_thread::get_id())
      thread_.join();
    else
      thread_.detach();  // it reaps what runs, then ends
  }
  void submit(disk_operations operations) override {
    const auto s = shared_;  // once they are in the queue, their end may be the end of this object too
    bool asleep = false;
    {
      const std::lock_guard lock{s->mutex};
      for (auto& o : operations) s->queue.push_back(std::move(o));
      asleep = std::exchange(s->asleep, false);
    }
    if (asleep) wake(*s);
  }
  void add_buffer(std::span<std::byte> memory) override { shared_->buffers.add(shared_->ring, memory); }
  void remove_buffer(std::span<std::byte> memory) override { shared_->buffers.remove(shared_->ring, memory); }
  buffer_figures buffers() const override { return shared_->buffers.figures(); }
  std::string describe() const override { return fmt::format("io_uring, depth {}", shared_->depth); }

 private:
  const std::shared_ptr<shared> shared_;
  std::thread thread_;
};

}  // namespace

result<std::unique_ptr<disk_engine>> open_ring_engine(unsigned depth) {
  auto s = std::make_shared<shared>();
  s->depth = depth;
  // Completions need not interrupt the thread: it asks for them soon. Kernels before 5.19 know no such flags.
  int answer =
      io_uring_queue_init(depth + 1, &s->ring, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
  if (answer == -EINVAL) answer = io_uring_queue_init(depth + 1, &s->ring, 0);
  if (answer < 0)
    return fail(errc::unsupported, fmt::format("io_uring is refused: {} (kernel.io_uring_disabled, seccomp "
                                               "and memlock can do that)",
                                               std::strerror(-answer)));
  s->opened = true;
  s->wake = ::eventfd(0, EFD_CLOEXEC);
  if (s->wake < 0) return fail(errc::io, fmt::format("no eventfd: {}", std::strerror(errno)));
  s->buffers.open(s->ring);
  try {
    return std::make_unique<ring_engine>(std::move(s));
  } catch (const std::system_error& e) {
    return fail(errc::no_memory, fmt::format("no thread for the ring: {}", e.what()));
  }
}

}  // namespace kvlease

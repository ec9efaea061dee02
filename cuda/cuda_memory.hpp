// Memory of a GPU and memory that it can reach: device pools, page-locked staging, and which host addresses
// are page-locked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "src/include/kvlease/device_port.hpp"

namespace kvlease {

/// Page-locked spans. Thread-safe. The blocks keep it alive.
class locked_spans {
 public:
  void add(std::uintptr_t address, std::size_t nbytes);
  void remove(std::uintptr_t address);
  /// The end of the span that holds the address; 0 when none does.
  std::uintptr_t end_of(std::uintptr_t address) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::uintptr_t, std::uintptr_t> spans_;  ///< begin → end
};

/// Plain device memory with undefined content. Errors: invalid for 0 bytes; no_memory with the size.
result<std::shared_ptr<memory_block>> allocate_cuda(int device, std::size_t nbytes);

/// Zero-filled. Touched, then page-locked: a tenth of the time that cudaHostAlloc takes.
/// Errors: as above; device when it can't be locked.
result<std::shared_ptr<memory_block>> allocate_locked(int device, std::size_t nbytes,
                                                      std::shared_ptr<locked_spans> spans);

/// Locks the host's own memory. Errors: invalid (null, 0 bytes); device with CUDA's reason.
result<std::shared_ptr<memory_block>> lock_memory(int device, std::uintptr_t address, std::size_t nbytes,
                                                  std::shared_ptr<locked_spans> spans);

}  // namespace kvlease

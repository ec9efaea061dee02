#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cuda/cuda_memory.hpp"
#include "cuda/cuda_status.hpp"

namespace kvlease {

namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;

class device_block final : public memory_block {
 public:
  device_block(int device, void* at, std::size_t size) : device_{device}, at_{at}, size_{size} {}
  ~device_block() override {
    const current_device here{device_};
    cudaFree(at_);
  }
  device_block(const device_block&) = delete;
  device_block& operator=(const device_block&) = delete;
  std::uintptr_t address() const noexcept override { return reinterpret_cast<std::uintptr_t>(at_); }
  std::size_t size() const noexcept override { return size_; }

 private:
  int device_;
  void* at_;
  std::size_t size_;
};

/// Page-locks a span from construction by lock_memory() to destruction.
class locked_block final : public memory_block {
 public:
  locked_block(int device, std::uintptr_t at, std::size_t size, std::shared_ptr<locked_spans> spans)
      : device_{device}, at_{at}, size_{size}, spans_{std::move(spans)} {}
  ~locked_block() override {
    spans_->remove(at_);
    const current_device here{device_};
    cudaHostUnregister(reinterpret_cast<void*>(at_));
  }
  locked_block(const locked_block&) = delete;
  locked_block& operator=(const locked_block&) = delete;
  std::uintptr_t address() const noexcept override { return at_; }
  std::size_t size() const noexcept override { return size_; }

 private:
  int device_;
  std::uintptr_t at_;
  std::size_t size_;
  std::shared_ptr<locked_spans> spans_;
};

/// Anonymous memory of this process, unmapped after its lock has gone.
class mapped_locked_block final : public memory_block {
 public:
  mapped_locked_block(void* at, std::size_t mapped) : at_{at}, mapped_{mapped} {}
  ~mapped_locked_block() override {
    lock_.reset();
    ::munmap(at_, mapped_);
  }
  mapped_locked_block(const mapped_locked_block&) = delete;
  mapped_locked_block& operator=(const mapped_locked_block&) = delete;
  void hold(std::shared_ptr<memory_block> lock) { lock_ = std::move(lock); }
  std::uintptr_t address() const noexcept override { return lock_->address(); }
  std::size_t size() const noexcept override { return lock_->size(); }

 private:
  void* at_;
  std::size_t mapped_;
  std::shared_ptr<memory_block> lock_;
};

}  // namespace

void locked_spans::add(std::uintptr_t address, std::size_t nbytes) {
  const std::lock_guard held{mutex_};
  spans_[address] = address + nbytes;
}

void locked_spans::remove(std::uintptr_t address) {
  const std::lock_guard held{mutex_};
  spans_.erase(address);
}

std::uintptr_t locked_spans::end_of(std::uintptr_t address) const {
  const std::lock_guard held{mutex_};
  auto it = spans_.upper_bound(address);
  if (it == spans_.begin()) return 0;
  --it;
  return address < it->second ? it->second : 0;
}

result<std::shared_ptr<memory_block>> allocate_cuda(int device, std::size_t nbytes) {
  if (nbytes == 0) return fail(errc::invalid, "device memory of 0 bytes, must be 1 or more");
  const current_device here{device};
  if (const auto set = cuda_checked("cudaSetDevice", here.status()); !set) return tl::unexpected{set.error()};
  void* at = nullptr;
  if (const auto status = cudaMalloc(&at, nbytes); status != cudaSuccess) {
    const auto code = status == cudaErrorMemoryAllocation ? errc::no_memory : errc::device;
    cudaGetLastError();  // a failed allocation stays the last error otherwise
    return fail(code,
                fmt::format("device memory of {} bytes: {}", nbytes, cuda_error("cudaMalloc", status).text));
  }
  return std::make_shared<device_block>(device, at, nbytes);
}

result<std::shared_ptr<memory_block>> lock_memory(int device, std::uintptr_t address, std::size_t nbytes,
                                                  std::shared_ptr<locked_spans> spans) {
  if (address == 0) return fail(errc::invalid, "staging memory at a null address can't be registered");
  if (nbytes == 0) return fail(errc::invalid, "staging memory of 0 bytes, must be 1 or more");
  const current_device here{device};
  if (const auto set = cuda_checked("cudaSetDevice", here.status()); !set) return tl::unexpected{set.error()};
  const auto status = cudaHostRegister(reinterpret_cast<void*>(address), nbytes, cudaHostRegisterPortable);
  if (status != cudaSuccess) {
    cudaGetLastError();
    const auto code = status == cudaErrorMemoryAllocation              ? errc::no_memory
                      : status == cudaErrorHostMemoryAlreadyRegistered ? errc::invalid
                                                                       : errc::device;
    return fail(code, fmt::format("{} bytes at {:#x} can't be page-locked: {}", nbytes, address,
                                  cuda_error("cudaHostRegister", status).text));
  }
  spans->add(address, nbytes);
  return std::make_shared<locked_block>(device, address, nbytes, std::move(spans));
}

result<std::shared_ptr<memory_block>> allocate_locked(int device, std::size_t nbytes,
                                                      std::shared_ptr<locked_spans> spans) {
  if (nbytes == 0) return fail(errc::invalid, "staging memory of 0 bytes, must be 1 or more");
  if (nbytes > SIZE_MAX - 2 * huge_page)
    return fail(errc::no_memory, fmt::format("staging memory of {} bytes", nbytes));
  const auto mapped = (nbytes + huge_page - 1) / huge_page * huge_page + huge_page;
  void* at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return fail(errc::no_memory, fmt::format("staging memory of {} bytes: {}", nbytes, std::strerror(errno)));
  auto block = std::make_shared<mapped_locked_block>(at, mapped);
  const auto first = (reinterpret_cast<std::uintptr_t>(at) + huge_page - 1) / huge_page * huge_page;
  auto* bytes = reinterpret_cast<char*>(first);
  ::madvise(bytes, mapped - huge_page, MADV_HUGEPAGE);  // fewer pages to lock; what it refuses stays small
  for (std::size_t i = 0; i < nbytes; i += 4096) bytes[i] = 0;
  auto lock = lock_memory(device, first, nbytes, std::move(spans));
  if (!lock) return tl::unexpected{lock.error()};
  block->hold(*std::move(lock));
  return block;
}

}  // namespace kvlease

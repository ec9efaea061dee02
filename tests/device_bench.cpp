#include "tests/device_bench.hpp"

#include <chrono>
#include <cstring>
#include <thread>

namespace kvlease::test {

namespace {

class host_bench final : public device_bench {
 public:
  explicit host_bench(host_stream mode) : mode_{mode}, device_{std::make_shared<host_device>(mode)} {}
  ~host_bench() override { device_->hold(); }

  std::shared_ptr<device_port> port() override { return device_; }
  std::shared_ptr<host_device> host_port() override { return device_; }
  void fill(std::uintptr_t at, std::byte value, std::size_t nbytes) override {
    std::memset(reinterpret_cast<void*>(at), std::to_integer<int>(value), nbytes);
  }
  std::vector<std::byte> read(std::uintptr_t at, std::size_t nbytes) override {
    const auto* from = reinterpret_cast<const std::byte*>(at);
    return {from, from + nbytes};
  }
  void hold() override { device_->hold(); }
  void open() override { device_->open(); }
  void compute(std::uintptr_t at, std::byte value, std::size_t nbytes) override {
    device_->launch([this, at, value, nbytes] {
      if (mode_ == host_stream::threaded) std::this_thread::sleep_for(std::chrono::microseconds{50});
      fill(at, value, nbytes);
    });
  }
  event_handle mark() override { return device_->mark(); }
  bool settle() override { return false; }  // the deterministic scheduler sees inline work at once

 private:
  host_stream mode_;
  std::shared_ptr<host_device> device_;
};

}  // namespace

std::shared_ptr<device_bench> device_bench::host(host_stream mode) {
  return std::make_shared<host_bench>(mode);
}

bool wait_for(device_bench& bench, device_event e) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{20};
  for (;;) {
    const auto state = bench.port()->query(e);
    if (!state) return false;
    if (*state == event_state::complete) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
}

}  // namespace kvlease::test

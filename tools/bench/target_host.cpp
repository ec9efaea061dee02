#include <cstring>
#include <utility>

#include "cuda/host_device.hpp"
#include "tools/bench/target.hpp"

namespace kvlease::bench {

namespace {

class host_lane final : public lane {
 public:
  result<void> copy(copy_kind kind, std::uintptr_t to, std::uintptr_t from, std::size_t nbytes) override {
    auto batch = std::make_shared<copy_batch>();
    batch->kind = kind_ = kind;
    batch->rows.push_back({to, from, nbytes});
    if (const auto queued = device_.enqueue(std::move(batch)); !queued) return tl::unexpected{queued.error()};
    return {};
  }
  result<void> mark() override {
    const auto event = device_.record(kind_);
    if (!event) return tl::unexpected{event.error()};
    event_ = *event;
    marked_ = true;
    passed_ = false;
    return {};
  }
  result<bool> reached() override {
    if (!marked_ || passed_) return true;
    const auto state = device_.query(event_);
    if (!state) return tl::unexpected{state.error()};
    if (*state == event_state::pending) return false;
    passed_ = true;
    device_.recycle(event_);
    return true;
  }
  event_handle event() const override { return 0; }
  result<void> stamp_from_callback(std::atomic<std::int64_t>&) override {
    return fail(errc::unsupported, "the host stand-in has no host callbacks");
  }
  host_device& device() noexcept { return device_; }

 private:
  host_device device_;
  copy_kind kind_ = copy_kind::host_to_device;
  device_event event_;
  bool marked_ = false;
  bool passed_ = false;
};

class host_gate final : public gate {
 public:
  host_gate(std::shared_ptr<host_device> owner, host_device& device)
      : owner_{std::move(owner)}, device_{device} {}
  result<void> close(std::chrono::nanoseconds) override {
    device_.hold();
    return {};
  }
  void open() override { device_.open(); }

 private:
  std::shared_ptr<host_device> owner_;  ///< null when the lane owns it
  host_device& device_;
};

class host_target final : public target {
 public:
  const target_facts& facts() const override { return facts_; }
  result<std::shared_ptr<device_port>> open(cuda_options) override { return std::make_shared<host_device>(); }
  result<std::unique_ptr<lane>> open_lane() override { return std::make_unique<host_lane>(); }
  result<std::unique_ptr<gate>> gate_on(const std::shared_ptr<device_port>& device) override {
    auto host = std::dynamic_pointer_cast<host_device>(device);
    if (!host) return fail(errc::invalid, "the device is no host stand-in");
    auto& stream = *host;
    return std::make_unique<host_gate>(std::move(host), stream);
  }
  result<std::unique_ptr<gate>> gate_on(lane& stream) override {
    return std::make_unique<host_gate>(nullptr, dynamic_cast<host_lane&>(stream).device());
  }
  result<std::unique_ptr<busy_load>> start_load() override {
    return fail(errc::unsupported, "the host stand-in has no multiprocessors to keep busy");
  }
  result<void> upload(std::uintptr_t to, const std::byte* from, std::size_t nbytes) override {
    std::memcpy(reinterpret_cast<void*>(to), from, nbytes);
    return {};
  }
  result<void> download(std::byte* to, std::uintptr_t from, std::size_t nbytes) override {
    std::memcpy(to, reinterpret_cast<const void*>(from), nbytes);
    return {};
  }
  result<void> fill(std::uintptr_t at, std::byte value, std::size_t nbytes) override {
    std::memset(reinterpret_cast<void*>(at), std::to_integer<int>(value), nbytes);
    return {};
  }

 private:
  const target_facts facts_{.device = "host stand-in"};
};

}  // namespace

std::unique_ptr<target> open_host_target() { return std::make_unique<host_target>(); }

}  // namespace kvlease::bench

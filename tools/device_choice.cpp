#include "tools/device_choice.hpp"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "cuda/host_device.hpp"
#include "src/include/kvlease/cuda_device.hpp"

namespace kvlease {

result<device_choice> parse_device_choice(const std::string& text) {
  constexpr std::string_view numbered = "cuda:";
  if (text == "host") return device_choice{};
  if (text == "cuda") return device_choice{0};
  if (text.starts_with(numbered)) {
    int ordinal = 0;
    const auto* end = text.data() + text.size();
    const auto [rest, problem] = std::from_chars(text.data() + numbered.size(), end, ordinal);
    if (problem == std::errc{} && rest == end && ordinal >= 0) return device_choice{ordinal};
  }
  return fail(errc::invalid, fmt::format("'{}' is no device: must be host, cuda or cuda:N", text));
}

std::string to_string(const device_choice& device) {
  return device.cuda ? fmt::format("cuda:{}", *device.cuda) : "host";
}

result<void> check_device(const device_choice& device) {
  if (!device.cuda) return {};
  const auto there = cuda_devices();
  if (!there) return fail(there.error().code, fmt::format("{}: {}", to_string(device), there.error().text));
  if (static_cast<std::size_t>(*device.cuda) >= there->size())
    return fail(errc::invalid, fmt::format("{}: the ordinal must be below {}, the number of GPUs here",
                                           to_string(device), there->size()));
  return {};
}

result<std::shared_ptr<device_port>> open_device(const device_choice& device) {
  if (!device.cuda) return std::make_shared<host_device>();
  auto opened = cuda_device::open({.device = *device.cuda});
  if (!opened) return tl::unexpected{opened.error()};
  return *std::move(opened);
}

}  // namespace kvlease

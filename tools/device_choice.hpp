// Which device a command runs on, as its --device option names it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "messages/error.hpp"
#include "src/include/kvlease/device_port.hpp"

namespace kvlease {

struct device_choice {
  std::optional<int> cuda;  ///< ordinal; absent: the host stand-in
  friend bool operator==(const device_choice&, const device_choice&) = default;
};

/// "host", "cuda" (the first GPU) or "cuda:N". Errors: invalid, with the value and the rule.
result<device_choice> parse_device_choice(const std::string& text);
std::string to_string(const device_choice& device);
/// Whether it is there. Errors: as cuda_devices(); invalid when there is no such GPU.
result<void> check_device(const device_choice& device);
result<std::shared_ptr<device_port>> open_device(const device_choice& device);

}  // namespace kvlease

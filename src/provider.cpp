#include "kvlease/provider.hpp"

namespace kvlease {

cancel_disposition request_cancel(attempt& a) {
  auto* cancellable = dynamic_cast<cancellable_attempt*>(&a);
  return cancellable ? cancellable->request_cancel() : cancel_disposition::unsupported;
}

std::optional<std::span<std::byte>> local_resolver::resolve(std::int64_t local_group,
                                                            std::int64_t local) const noexcept {
  if (local_group < 0 || local < 0) return std::nullopt;
  const auto group = static_cast<std::size_t>(local_group);
  if (group >= part_of_group_.size() || part_of_group_[group] >= parts_.size()) return std::nullopt;
  const part& in = parts_[part_of_group_[group]];
  // By division, so that no coordinate can overflow its way back into the part.
  if (in.slot_bytes <= 0 || local >= in.slots || local >= in.nbytes / in.slot_bytes) return std::nullopt;
  const auto size = static_cast<std::size_t>(in.slot_bytes);
  const std::uintptr_t address = in.address + static_cast<std::size_t>(local) * size;
  return std::span{reinterpret_cast<std::byte*>(address), size};
}

}  // namespace kvlease

#include "src/providers/segment/engine.hpp"

#include <algorithm>

namespace kvlease {

std::size_t disk_transfer::size() const noexcept {
  std::size_t all = 0;
  for (unsigned i = 0; i < count; ++i) all += parts[i].iov_len;
  return all;
}

disk_transfer disk_transfer::after(std::size_t done) const noexcept {
  disk_transfer rest = *this;
  rest.offset += done;
  rest.count = 0;
  for (unsigned i = 0; i < count; ++i) {
    const auto here = std::min(done, parts[i].iov_len);
    done -= here;
    if (here == parts[i].iov_len) continue;
    rest.parts[rest.count++] = {static_cast<std::byte*>(parts[i].iov_base) + here, parts[i].iov_len - here};
  }
  return rest;
}

}  // namespace kvlease

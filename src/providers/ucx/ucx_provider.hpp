// ucx://HOST:PORT: units come from peers over UCX active messages, and are offered to peers from a pool of
// this process (docs/providers.md, "ucx"). Needs UCX at build time; see ucx_built().
#pragma once

#include <string_view>

#include "src/include/kvlease/provider_uri.hpp"

namespace kvlease {

/// Whether this build has it.
bool ucx_built() noexcept;

/// Errors: as parse_ucx_options; unsupported, with the remedy, where !ucx_built(). The factory listens when
/// the first provider is opened and throws std::runtime_error when that fails. Providers of one factory share
/// all but their attempts.
result<provider_factory> open_ucx(std::string_view after_colon);

}  // namespace kvlease

// The ucx scheme in a build without UCX.
#include "src/providers/ucx/options.hpp"
#include "src/providers/ucx/ucx_provider.hpp"

namespace kvlease {

bool ucx_built() noexcept { return false; }

result<provider_factory> open_ucx(std::string_view after_colon) {
  if (const auto options = parse_ucx_options(after_colon); !options) return tl::unexpected{options.error()};
  return fail(errc::unsupported,
              "ucx: this build has no UCX; install libucx-dev (tools/setup does) and build again");
}

}  // namespace kvlease

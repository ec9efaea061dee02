#include "src/include/kvlease/provider_uri.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "src/providers/memory_provider.hpp"
#include "src/providers/redis/redis_provider.hpp"
#include "src/providers/segment/segment_provider.hpp"
#include "src/providers/tier/tier_provider.hpp"
#include "src/providers/ucx/options.hpp"
#include "src/providers/ucx/ucx_provider.hpp"
#include "src/providers/uri_options.hpp"

namespace kvlease {

namespace {

/// An in-process store of N bytes, 1 GiB when not given.
result<provider_factory> open_memory(std::string_view rest) {
  const auto o = uri_options::parse("memory", rest, {"bytes", "background"});
  if (!o) return tl::unexpected{o.error()};
  if (!o->place().empty())
    return fail(errc::invalid, fmt::format("memory:{}: nothing but ?key=value may follow the colon", rest));
  const auto capacity = o->byte_size("bytes", std::uint64_t{1} << 30, 1);
  if (!capacity) return tl::unexpected{capacity.error()};
  const auto background = o->flag("background", true);
  if (!background) return tl::unexpected{background.error()};
  return provider_factory{[store = std::make_shared<memory_store>(*capacity),
                           options = memory_options{*background}](const provider_context& c) {
    return std::make_shared<memory_provider>(store, c, options);
  }};
}

/// Units on a local disk (src/providers/segment/options.hpp). The directory is held from here on.
result<provider_factory> open_segment(std::string_view rest) {
  const auto o = parse_segment_options(rest);
  if (!o) return tl::unexpected{o.error()};
  auto store = segment_store::open(*o);
  if (!store) return tl::unexpected{store.error()};
  return provider_factory{[store = *std::move(store)](const provider_context& c) {
    return std::make_shared<segment_provider>(store, c);
  }};
}

constexpr provider_entry entries[] = {
    {"memory", "memory:[?bytes=N&background=on|off]", open_memory},
    {"segment", segment_uri_form, open_segment},
    {"ucx", ucx_uri_form, open_ucx},
    {"redis", "redis://[user:password@]host[:port][/db][?KEY=VALUE...]", open_redis},
    {"rediss", "rediss://[user:password@]host[:port][/db][?KEY=VALUE...]", open_rediss},
    {"redis+unix", "redis+unix:/path[?KEY=VALUE...]", open_redis_unix},
    {"tier", "tier:[?past=misses|failures;][optional+]URI,[optional+]URI...", open_tier}};

}  // namespace

std::span<const provider_entry> provider_entries() noexcept { return entries; }

result<provider_factory> provider_from_uri(std::string_view uri) {
  const auto colon = uri.find(':');
  const auto scheme = uri.substr(0, colon);
  std::string known;
  for (const auto& e : entries) {
    if (colon != std::string_view::npos && e.scheme == scheme) return e.open(uri.substr(colon + 1));
    known += fmt::format("{}{}", known.empty() ? "" : ", ", e.form);
  }
  return fail(errc::invalid, fmt::format("'{}' names no provider; there is: {}", uri, known));
}

}  // namespace kvlease

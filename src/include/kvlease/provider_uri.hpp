// Providers by URI: what a command line or a configuration file names. Only providers that stand in the
// contract suite can be named: tests/providers/provider_uri_test.cpp sees that it runs over every entry, and
// nothing adds an entry at run time (semantics 2.14).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "src/include/kvlease/provider.hpp"

namespace kvlease {

/// Opens the provider for one runtime. Runtimes that are given the same factory share what is behind it.
using provider_factory = std::function<std::shared_ptr<provider>(const provider_context&)>;

struct provider_entry {
  std::string_view scheme;  ///< before the colon
  std::string_view form;    ///< for people, e.g. "memory:[?bytes=N]"
  result<provider_factory> (*open)(std::string_view after_colon);
};

std::span<const provider_entry> provider_entries() noexcept;

/// Errors: invalid for no scheme, an unknown one (the known are listed), or a part that its provider refuses.
result<provider_factory> provider_from_uri(std::string_view uri);

}  // namespace kvlease

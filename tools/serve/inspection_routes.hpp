// The paths under which a runtime's inspection port is served. Read-only. Any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/include/kvlease/inspection.hpp"
#include "tools/serve/http_server.hpp"

namespace kvlease::serve {

/// /snapshot[?limit=N&explain=N], /why/KIND/ID, /events[?after=N&live=0], /metrics[?format=json],
/// /trace[?last=N], /health and the page at /. Where there are several runtimes, /runtime/N/... is about the
/// N-th, and all else about the first, but for /metrics and /health, which are about all of them.
class inspection_routes {
 public:
  /// At least one.
  explicit inspection_routes(std::vector<std::shared_ptr<inspection_port>> ports)
      : ports_{std::move(ports)} {}

  /// Blocks as long as the port does.
  http_response answer(const http_request& request) const;

 private:
  http_response of_one(std::size_t first, std::size_t count, std::string_view path,
                       const http_request& request) const;
  std::vector<std::shared_ptr<inspection_port>> ports_;
};

/// {"error": text} with this status.
http_response problem(unsigned status, std::string_view text);

}  // namespace kvlease::serve

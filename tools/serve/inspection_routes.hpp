// The paths under which a runtime's inspection port is served. Read-only. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/include/kvlease/inspection.hpp"
#include "tools/inspect/render_json.hpp"
#include "tools/serve/http_server.hpp"

namespace kvlease::serve {

/// /snapshot[?limit=N&explain=N&events=N&metrics=1], /why/KIND/ID, /events[?after=N&live=0],
/// /metrics[?format=json], /trace[?last=N], /health and the page at /. Where there are several runtimes,
/// /runtime/N/... is about the N-th. Without it /metrics and /health are about all of them, /why about the
/// first that knows the subject, and the rest about the first.
class inspection_routes {
 public:
  /// At least one.
  /// `drain`: what the host that ends waits for still; empty or nothing: it does not end.
  explicit inspection_routes(std::vector<std::shared_ptr<inspection_port>> ports,
                             std::function<std::optional<inspect::drain_note>()> drain = {})
      : ports_{std::move(ports)}, drain_{std::move(drain)} {}

  /// Blocks as long as the port does.
  http_response answer(const http_request& request) const;

 private:
  http_response of_one(std::size_t first, std::size_t count, std::string_view path,
                       const http_request& request) const;
  http_response snapshot(std::size_t index, const std::string& query) const;
  /// Of the first runtime that knows it.
  http_response why(std::size_t first, std::size_t count, std::string_view rest) const;
  /// While the host drains, nothing is healthy yet.
  health state_of(inspection_port& port, const std::optional<inspect::drain_note>& drain) const;
  std::optional<inspect::drain_note> draining() const { return drain_ ? drain_() : std::nullopt; }

  std::vector<std::shared_ptr<inspection_port>> ports_;
  std::function<std::optional<inspect::drain_note>()> drain_;
};

/// {"error": text} with this status.
http_response problem(unsigned status, std::string_view text);
/// 405, with the methods that the path knows.
http_response wrong_method(std::string allowed, std::string_view text);

}  // namespace kvlease::serve

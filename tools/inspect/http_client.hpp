// Asks a runtime's unix socket. Blocking, one connection a question.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "messages/error.hpp"

namespace kvlease::inspect {

struct http_answer {
  unsigned status = 0;
  std::string body;
};

/// GET. Errors: io (nobody listens there, or the connection broke), timeout; each names the path.
result<http_answer> http_get(const std::string& socket_path, std::string_view target,
                             std::chrono::milliseconds within);

/// Hands over each line of the answer as it comes, until `line` answers false or the other side ends. `line`
/// is also called with an empty text about every 200 ms. Answers the status. Errors: as above, once the other
/// side has gone without ending the answer.
result<unsigned> http_lines(const std::string& socket_path, std::string_view target,
                            const std::function<bool(std::string_view)>& line);

}  // namespace kvlease::inspect

// What is looked at: a live runtime behind its socket, or a saved snapshot.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "messages/error.hpp"
#include "src/include/kvlease/inspection.hpp"
#include "tools/inspect/options.hpp"

namespace kvlease::inspect {

/// Any thread.
class target {
 public:
  /// Errors: io for a file that can't be read or is no snapshot.
  static result<target> open(const inspect_options& options);

  bool live() const noexcept { return file_.is_null(); }
  /// The socket's path or the file's name.
  const std::string& name() const noexcept { return name_; }

  /// Errors of all that follow: io, timeout (not reachable); unsupported (not in a file); invalid (refused).
  result<nlohmann::json> snapshot(std::size_t limit) const;
  /// With the oldest held leases explained, metrics, and the journal's last `events`: what a file needs.
  result<nlohmann::json> whole_snapshot(std::size_t limit, std::size_t explain, std::size_t events) const;
  result<nlohmann::json> why(const subject& about) const;
  /// Of all runtimes, or of the one that was chosen: the worst, and with `runtimes` each. Of a file: the
  /// snapshot.
  result<nlohmann::json> health_of_all() const;
  result<std::string> health() const;
  /// A path of the server, as it answers; of a file, /metrics, /metrics?format=json and /trace, where it was
  /// saved with them.
  result<std::string> text(std::string_view path) const;
  /// The same process' or file's, of one runtime.
  target of_runtime(std::size_t index) const;
  /// The path behind which this runtime is served.
  std::string path(std::string_view of) const;

 private:
  result<std::string> from_file(std::string_view of) const;
  std::string name_, prefix_;
  nlohmann::json file_;
};

/// Answers `why` from a snapshot: from an explanation that was saved with it, or else from its lists.
nlohmann::json why_in_snapshot(const nlohmann::json& snapshot, const subject& about);

}  // namespace kvlease::inspect

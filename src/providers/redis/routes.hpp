// Which link a command goes by: of one server the link that carries least, of a cluster one to the server
// that holds the key's slot. Links are made when they are first needed.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "src/providers/redis/cluster.hpp"
#include "src/providers/redis/link.hpp"

namespace kvlease::redis {

/// Thread-safe. close() must be called before it goes.
class routes final : public link_host {
 public:
  routes(options o, std::shared_ptr<const tls_context> tls);

  const options& settings() const noexcept { return options_; }

  /// All of them or none: when it fails, not one byte was or will be written. Errors: capacity, when the
  /// links that they need have no room; provider, when a server can't be reached; state, after close().
  result<void> submit(std::span<const std::shared_ptr<command>> commands);
  /// Where the server's error sends a command that it has answered. Errors as above; the command stays the
  /// caller's then.
  result<void> follow(const std::shared_ptr<command>& c, const redirect& r);
  /// Once more to where its key lies.
  result<void> again(const std::shared_ptr<command>& c);
  /// Learn the cluster's slots anew, if that was not done just now.
  void refresh();
  /// What nobody wants any more is let go, by each link at once.
  void sweep();
  /// Stops every link and waits for its thread: all access has ended then.
  void close();

  result<void> learned(const value& slots, const link& from) override;
  bool rehome(const std::shared_ptr<command>& c, const link& from) override;
  void unreachable(const link& from) override;

 private:
  class map_refresh;
  using links = std::vector<std::shared_ptr<link>>;
  result<std::shared_ptr<link>> pick(const endpoint& node);
  result<std::shared_ptr<link>> pick_for(std::uint16_t slot);
  result<void> hand_over(const std::shared_ptr<command>& c, const std::shared_ptr<link>& to);
  void refresh_locked(const endpoint* but_not);
  void retire_locked();

  const options options_;
  const std::shared_ptr<const tls_context> tls_;

  std::mutex mutex_;  ///< guards what follows; links' own locks are taken under it, never the other way
  std::map<endpoint, links> nodes_;
  links retired_;
  slot_map map_;
  bool refreshing_ = false;
  std::chrono::steady_clock::time_point refreshed_{};
  bool closed_ = false;
};

}  // namespace kvlease::redis

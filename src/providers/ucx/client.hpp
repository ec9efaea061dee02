// The fetching side of a UCX provider: asks peers, and lets their replies land where the asker says. Each
// landing ends with its own callback and with nothing else.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/providers/ucx/loop.hpp"
#include "src/providers/ucx/message.hpp"
#include "src/providers/ucx/server.hpp"

namespace kvlease {

/// Who asked. Called on the loop's thread. Units are the asker's own numbers.
class ucx_asker {
 public:
  virtual ~ucx_asker() = default;
  /// Where the unit goes; its bytes begin to land now. Empty: nowhere any more.
  virtual std::optional<std::span<std::byte>> land(std::size_t unit) = 0;
  /// What land() answered with is not written any more. `why`: empty when all bytes are there. `by_force`:
  /// the endpoint was closed for that (ucx_client::close_by_force).
  virtual void landed(std::size_t unit, const unit_frame& frame, const std::string& why, bool by_force) = 0;
  virtual void absent(std::size_t unit) = 0;
  virtual void other_size(std::size_t unit, std::uint64_t size) = 0;
  /// No reply will come, and none has begun to land.
  virtual void lost(std::size_t unit, const std::string& why) = 0;
  virtual void probed(const std::vector<bool>& here) = 0;
  /// Its endpoint is about to be closed by force, for another's sake.
  virtual void taken_down(const std::string& why) = 0;
};

/// All of it on the loop's thread, but for the counters.
class ucx_client {
 public:
  /// One peer, connected as soon as somebody asks it.
  class peer;

  explicit ucx_client(ucx_worker& worker);
  ~ucx_client();
  ucx_client(const ucx_client&) = delete;
  ucx_client& operator=(const ucx_client&) = delete;

  /// Before the thread runs. Errors: provider.
  result<void> listen();
  /// The same peer for the same address, while somebody holds it.
  std::shared_ptr<peer> peer_at(const host_port& at, const ucx_address& address);
  /// Begins to connect, where that has not begun.
  void connect(peer& to);
  /// Asks for `units` of the extent. Each gets an answer, perhaps before this returns.
  void ask(peer& to, const std::shared_ptr<ucx_asker>& by, ucx_ask what, const bytes& extent,
           std::span<const std::size_t> units, std::span<const ucx_wanted> wanted);
  /// Replies to it that have not begun to land never will; nothing more is called for them.
  void withdraw(const ucx_asker& by);
  /// Closes by force the endpoints over which something lands for it. Answers the others with something open
  /// there; they have been told.
  std::vector<std::shared_ptr<ucx_asker>> close_by_force(const ucx_asker& of);

  /// Disconnects the peers that nobody holds and nothing is open at.
  void drop_unused();
  void after_progress();
  /// Closes every endpoint by force; what was asked is lost.
  void close();
  /// Nothing is landing, no question is being sent.
  bool idle() const noexcept { return landings_ == 0 && sends_ == 0; }

  /// Endpoints closed for what came over them.
  std::uint64_t malformed() const noexcept { return malformed_.load(std::memory_order_relaxed); }

 private:
  struct asked;
  struct landing;
  struct send;
  static void on_error(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_reply(void* self, const void* header, std::size_t header_size, void* data,
                               std::size_t size, const ucp_am_recv_param_t* param);
  static void on_landed(void* request, ucs_status_t status, std::size_t size, void* user);
  static void on_sent(void* request, ucs_status_t status, void* user);

  void ask_once(peer& to, const std::shared_ptr<ucx_asker>& by, ucx_ask what, const bytes& extent,
                std::span<const std::size_t> units, std::span<const ucx_wanted> wanted);
  ucs_status_t take(peer& from, std::span<const std::byte> header, void* data, std::size_t size,
                    bool rendezvous);
  ucs_status_t serve(peer& from, const std::shared_ptr<ucx_asker>& by, std::size_t unit, ucx_reply reply,
                     void* data, std::size_t size, bool rendezvous);
  ucs_status_t reject(peer& from, const std::string& why);
  void break_off(peer& which, const std::string& why);
  void reset(peer& which);

  ucx_worker& worker_;
  std::map<std::string, std::weak_ptr<peer>> peers_;
  std::map<ucp_ep_h, std::shared_ptr<peer>> connected_;
  std::vector<std::shared_ptr<peer>> broken_;
  std::uint64_t last_id_ = 0;
  std::size_t landings_ = 0, sends_ = 0;
  std::atomic<std::uint64_t> malformed_{0};
};

}  // namespace kvlease

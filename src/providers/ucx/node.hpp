// What the providers of one ucx:// URI share: the thread that owns UCX, the listener and its export pool, the
// peers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/providers/ucx/client.hpp"
#include "src/providers/ucx/export_pool.hpp"
#include "src/providers/ucx/loop.hpp"
#include "src/providers/ucx/server.hpp"

namespace kvlease {

class ucx_node {
 public:
  using peer_list = std::vector<std::shared_ptr<ucx_client::peer>>;

  /// Listens. Peers are connected when they are first asked. Errors: invalid for a host without address,
  /// provider for what UCX refuses.
  static result<std::shared_ptr<ucx_node>> start(ucx_options options);
  /// Closes everything by force and waits until every callback has run. Where one has not in five seconds, it
  /// leaves UCX's objects as they are and nobody touches them again; what was not proven stays so.
  ~ucx_node();
  ucx_node(const ucx_node&) = delete;
  ucx_node& operator=(const ucx_node&) = delete;

  const ucx_options& options() const noexcept { return options_; }
  /// Where it listens, with the port that it got.
  const host_port& listening() const noexcept { return listening_; }
  export_pool& pool() noexcept { return pool_; }
  /// Of the URI, in its order.
  const peer_list& peers() const noexcept { return peers_; }

  /// Any thread. False: the node is closing and the task will not run.
  bool post(std::function<void()> task) { return loop_->post(std::move(task)); }
  /// Of the loop's thread.
  ucx_client& client() noexcept { return *client_; }
  const ucx_server& server() const noexcept { return *server_; }

 private:
  explicit ucx_node(ucx_options options) : options_{std::move(options)}, pool_{options_.pool_bytes} {}

  const ucx_options options_;
  export_pool pool_;
  host_port listening_;
  std::unique_ptr<ucx_loop> loop_;
  std::unique_ptr<ucx_server> server_;
  std::unique_ptr<ucx_client> client_;
  peer_list peers_;
  bool running_ = false;
};

}  // namespace kvlease

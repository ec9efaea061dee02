// The serving side of a UCX provider: answers what peers ask from the export pool. No lease is involved: what
// is sent lies in the pool, pinned until its send's own callback.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "src/providers/ucx/export_pool.hpp"
#include "src/providers/ucx/loop.hpp"
#include "src/providers/ucx/message.hpp"

namespace kvlease {

/// All of it on the loop's thread, but for the counters.
class ucx_server {
 public:
  ucx_server(ucx_worker& worker, export_pool& pool, const ucx_options& options);
  /// Stops listening. UCX 1.13.1 dies when a peer that has connected says its first word to a listener that
  /// is gone, so the worker must be destroyed right behind it.
  ~ucx_server();
  ucx_server(const ucx_server&) = delete;
  ucx_server& operator=(const ucx_server&) = delete;

  /// Before the thread runs. Errors: invalid for a host that can't be resolved; provider with UCX's reason.
  result<host_port> listen();
  void after_progress();
  /// Closes every connection by force, and takes no new one.
  void close();
  /// No send is under way.
  bool idle() const noexcept { return sends_ == 0; }

  /// Connections closed for what they sent; those refused because there were too many.
  std::uint64_t malformed() const noexcept { return malformed_.load(std::memory_order_relaxed); }
  std::uint64_t refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
  std::size_t connected() const noexcept { return connected_.load(std::memory_order_relaxed); }

 private:
  struct connection;
  struct send;
  static void on_connect(ucp_conn_request_h request, void* self);
  static void on_error(void* self, ucp_ep_h endpoint, ucs_status_t status);
  static ucs_status_t on_question(void* self, const void* header, std::size_t header_size, void* data,
                                  std::size_t size, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* user);

  void accept(ucp_conn_request_h request);
  void take(connection& from, std::span<const std::byte> message);
  void pump(connection& to);
  void answer(connection& to, const ucx_question& q, std::uint32_t unit);
  void answer_probe(connection& to, const ucx_question& q);
  void transmit(connection& to, const ucx_reply& reply, export_pool::pin content);
  void drop(connection& which);

  ucx_worker& worker_;
  export_pool& pool_;
  const ucx_options& options_;
  ucp_listener_h listener_ = nullptr;
  std::map<ucp_ep_h, std::shared_ptr<connection>> connections_;
  bool any_broken_ = false;
  bool closing_ = false;
  std::size_t sends_ = 0;
  std::atomic<std::uint64_t> malformed_{0}, refused_{0};
  std::atomic<std::size_t> connected_{0};
};

/// An address for UCX. Blocks as the resolver does. Errors: invalid, naming the host.
struct ucx_address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  ucs_sock_addr_t for_ucx() const noexcept { return {reinterpret_cast<const sockaddr*>(&storage), size}; }
};
result<ucx_address> resolve(const host_port& at);

}  // namespace kvlease

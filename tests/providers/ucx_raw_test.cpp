// Calls of UCX that look final and are not (docs/providers.md, "ucx"), on UCX itself, with a peer in another
// process: why the provider waits for each request's own callback and for nothing else.
#include "tests/providers/ucx_raw.hpp"

#include <doctest/doctest.h>
#include <signal.h>
#include <ucp/api/ucp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/child_process.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t transfer = std::size_t{16} << 20;
constexpr std::byte painted{0xa5}, sent{0x5a};

// ---- The peer: exposes `transfer` bytes, and makes progress

void accept_raw(ucp_conn_request_h request, void* worker) {
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {ignore_error, nullptr};
  ucp_ep_h endpoint = nullptr;
  ucp_ep_create(static_cast<ucp_worker_h>(worker), &params, &endpoint);
}

TEST_CASE("raw ucx peer" * doctest::skip()) {
  if (std::getenv("KVLEASE_RAW_PEER") == nullptr) return;
  raw_worker w;
  std::vector<std::byte> memory(transfer, sent);
  ucp_mem_map_params_t map{};
  map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
  map.address = memory.data();
  map.length = memory.size();
  ucp_mem_h handle = nullptr;
  REQUIRE(ucp_mem_map(w.context, &map, &handle) == UCS_OK);
  void* key = nullptr;
  std::size_t size = 0;
  REQUIRE(ucp_rkey_pack(w.context, handle, &key, &size) == UCS_OK);
  const auto any = loopback(0);
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&any), sizeof any};
  params.conn_handler = {accept_raw, w.worker};
  ucp_listener_h listener = nullptr;
  REQUIRE(ucp_listener_create(w.worker, &params, &listener) == UCS_OK);
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  REQUIRE(ucp_listener_query(listener, &attributes) == UCS_OK);
  std::printf("at %d %zu ", ntohs(reinterpret_cast<sockaddr_in&>(attributes.sockaddr).sin_port),
              reinterpret_cast<std::size_t>(memory.data()));
  for (std::size_t i = 0; i < size; ++i) std::printf("%02x", static_cast<unsigned char*>(key)[i]);
  std::printf("\n");
  std::fflush(stdout);
  for (;;) w.progress();
}

// ---- The side that is written to

struct raw_getter {
  raw_getter() : peer{child_process::again("raw ucx peer", {{"KVLEASE_RAW_PEER", "1"}})} {
    std::string text;
    REQUIRE(eventually([&] {
      text = peer.output();
      const auto from = text.find("at ");
      return from != std::string::npos && text.find('\n', from) != std::string::npos;
    }));
    int port = 0;
    char hex[4096];
    REQUIRE(std::sscanf(text.c_str() + text.find("at "), "at %d %zu %4095s", &port, &remote, hex) == 3);
    std::vector<unsigned char> key(std::strlen(hex) / 2);
    for (std::size_t i = 0; i < key.size(); ++i)
      key[i] = static_cast<unsigned char>(std::stoul(std::string(hex + 2 * i, 2), nullptr, 16));
    const auto at = loopback(port);
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&at), sizeof at};
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {ignore_error, nullptr};
    REQUIRE(ucp_ep_create(w.worker, &params, &endpoint) == UCS_OK);
    // Connected: a small get comes back.
    REQUIRE(ucp_ep_rkey_unpack(endpoint, key.data(), &rkey) == UCS_OK);
    auto* first = get(8);
    REQUIRE(eventually([&] { return over(first); }));
    if (first != nullptr) ucp_request_free(first);
    std::ranges::fill(memory, painted);
  }
  ~raw_getter() {
    peer.kill();
    if (rkey != nullptr) ucp_rkey_destroy(rkey);
    if (endpoint != nullptr) close();
    w.progress_for(20ms);
  }

  /// A request, or null when it has ended at once.
  void* get(std::size_t size) {
    ucp_request_param_t params{};
    auto* request = ucp_get_nbx(endpoint, memory.data(), size, remote, rkey, &params);
    REQUIRE_FALSE(UCS_PTR_IS_ERR(request));
    return request;
  }
  bool over(void* request) const {
    w.progress();
    return request == nullptr || ucp_request_check_status(request) != UCS_INPROGRESS;
  }
  /// The status of the close itself.
  ucs_status_t close() {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    params.flags = UCP_EP_CLOSE_FLAG_FORCE;
    auto* request = ucp_ep_close_nbx(std::exchange(endpoint, nullptr), &params);
    if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request);
    const auto status = ucp_request_check_status(request);
    ucp_request_free(request);
    return status;
  }
  std::size_t written() const {
    return static_cast<std::size_t>(std::ranges::count_if(memory, [](std::byte b) { return b != painted; }));
  }

  raw_worker w;
  child_process peer;
  std::size_t remote = 0;
  ucp_ep_h endpoint = nullptr;
  ucp_rkey_h rkey = nullptr;
  std::vector<std::byte> memory = std::vector<std::byte>(transfer, painted);
};

TEST_CASE("F19 raw ucx: ucp_request_cancel of a running get does nothing, and all of its bytes land later") {
  raw_getter g;
  g.peer.stop();
  auto* request = g.get(transfer);
  REQUIRE(request != nullptr);
  g.w.progress_for(20ms);
  ucp_request_cancel(g.w.worker, request);
  g.w.progress_for(50ms);
  CHECK(ucp_request_check_status(request) == UCS_INPROGRESS);
  std::ranges::fill(g.memory, painted);  // who took the cancel for an end would lend it again
  g.peer.resume();
  REQUIRE(eventually([&] { return g.over(request); }));
  CHECK(ucp_request_check_status(request) == UCS_OK);
  CHECK(std::ranges::all_of(g.memory, [](std::byte b) { return b == sent; }));
  ucp_request_free(request);
}

TEST_CASE(
    "F19 raw ucx: a forced close that has returned is no end: bytes land until progress has run the "
    "callbacks") {
  std::size_t after_close = 0;
  for (int tries = 0; tries < 20 && after_close == 0; ++tries) {
    raw_getter g;
    auto* request = g.get(transfer);
    if (request == nullptr) continue;
    eventually([&] { return g.over(request) || g.written() > 0; });
    std::this_thread::sleep_for(20ms);  // the peer fills the socket's buffers
    if (ucp_request_check_status(request) == UCS_INPROGRESS) {
      ucp_rkey_destroy(std::exchange(g.rkey, nullptr));
      g.close();
      CHECK(ucp_request_check_status(request) == UCS_INPROGRESS);  // no callback has run in it
      std::ranges::fill(g.memory, painted);
      REQUIRE(eventually([&] { return g.over(request); }));
      after_close = g.written();
      // With the callback it is over: this is the proof the provider waits for.
      std::ranges::fill(g.memory, painted);
      g.w.progress_for(50ms);
      CHECK(g.written() == 0);
    }
    ucp_request_free(request);
  }
  MESSAGE(after_close << " bytes were written after the close had returned");
  CHECK(after_close > 0);
}

}  // namespace
}  // namespace kvlease::test

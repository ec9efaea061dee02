// F13 over UCX: peers that speak UCX and send what they like. That endpoint is closed, the others go on.
#include <cstring>
#include <functional>
#include <list>
#include <tuple>

#include "src/providers/ucx/message.hpp"
#include "tests/providers/ucx_fixture.hpp"
#include "tests/providers/ucx_raw.hpp"

namespace kvlease::test {
namespace {

using namespace std::chrono_literals;
using message = std::vector<std::byte>;

message garbage(std::size_t size) {
  message m(size);
  for (std::size_t i = 0; i < size; ++i) m[i] = std::byte(mix64(size, i, 7));
  return m;
}

int port_of(const std::string& address) { return std::stoi(address.substr(address.rfind(':') + 1)); }

// ---- Who asks

TEST_CASE("F13 ucx: a malformed question closes the endpoint that it came over, and no other") {
  ucx_bench source{"ucx://127.0.0.1:0?force_close=on"};
  source.publish(2);
  ucx_bench good{"ucx://127.0.0.1:0?peers=" + source.address()};
  const auto fetched = [&] {
    const auto a = good.fetching().fetch(good.extent(2));
    good.fetching().settle({&a, 1});
    return std::holds_alternative<delivered>(*a->poll());
  };
  CHECK(fetched());
  auto huge = *encode_question({ucx_ask::fetch, 1, "e", {{"n", 1}}});
  std::memset(huge.data() + 16, 0xff, 4);  // the count
  const std::tuple<message, message, unsigned> bad[] = {
      {{}, garbage(100), UCP_AM_SEND_FLAG_EAGER},
      {{}, {}, UCP_AM_SEND_FLAG_EAGER},
      {{}, huge, UCP_AM_SEND_FLAG_EAGER},
      {garbage(8), *encode_question({ucx_ask::fetch, 1, "e", {{"n", 1}}}), UCP_AM_SEND_FLAG_EAGER},
      {{}, garbage(1 << 20), UCP_AM_SEND_FLAG_RNDV},
      {{}, garbage(1 << 20), UCP_AM_SEND_FLAG_EAGER}};
  raw_worker w;
  for (const auto& [header, data, flags] : bad) {
    const auto at = loopback(port_of(source.address()));
    bool broken = false;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&at), sizeof at};
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void* flag, ucp_ep_h, ucs_status_t) { *static_cast<bool*>(flag) = true; },
                          &broken};
    ucp_ep_h endpoint = nullptr;
    REQUIRE(ucp_ep_create(w.worker, &params, &endpoint) == UCS_OK);
    ucp_request_param_t how{};
    how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    how.flags = flags | UCP_AM_SEND_FLAG_REPLY;
    auto* sent = ucp_am_send_nbx(endpoint, ucx_question_id, header.data(), header.size(), data.data(),
                                 data.size(), &how);
    CHECK(eventually([&] {
      w.progress();
      return broken;
    }));
    ucp_request_param_t force{};
    force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    force.flags = UCP_EP_CLOSE_FLAG_FORCE;
    auto* closing = ucp_ep_close_nbx(endpoint, &force);
    for (auto* request : {sent, closing})
      if (UCS_PTR_IS_PTR(request)) {
        CHECK(eventually([&] {
          w.progress();
          return ucp_request_check_status(request) != UCS_INPROGRESS;
        }));
        ucp_request_free(request);
      }
    CHECK(fetched());
  }
}

// ---- Who answers

/// Answers each question with what the test scripts.
struct scripted_peer {
  struct reply {
    message header, data;
  };
  explicit scripted_peer(std::function<reply(const ucx_question&)> how) : script{std::move(how)} {
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = ucx_question_id;
    handler.flags = UCP_AM_FLAG_WHOLE_MSG;
    handler.cb = [](void* self, const void*, std::size_t, void* data, std::size_t size,
                    const ucp_am_recv_param_t* p) {
      auto& me = *static_cast<scripted_peer*>(self);
      const auto q = decode_question({static_cast<const std::byte*>(data), size});
      REQUIRE(q);
      me.said.push_back(me.script(*q));
      ucp_request_param_t params{};
      params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      params.flags = UCP_AM_SEND_FLAG_REPLY;
      const auto& r = me.said.back();
      auto* request = ucp_am_send_nbx(p->reply_ep, ucx_reply_id, r.header.data(), r.header.size(),
                                      r.data.data(), r.data.size(), &params);
      if (UCS_PTR_IS_PTR(request)) me.requests.push_back(request);
      return UCS_OK;
    };
    handler.arg = this;
    REQUIRE(ucp_worker_set_am_recv_handler(w.worker, &handler) == UCS_OK);
    const auto any = loopback(0);
    ucp_listener_params_t params{};
    params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
    params.sockaddr = {reinterpret_cast<const sockaddr*>(&any), sizeof any};
    params.conn_handler = {[](ucp_conn_request_h request, void* self) {
                             auto& me = *static_cast<scripted_peer*>(self);
                             ucp_ep_params_t p{};
                             p.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER;
                             p.conn_request = request;
                             p.err_mode = UCP_ERR_HANDLING_MODE_PEER;
                             p.err_handler = {ignore_error, nullptr};
                             ucp_ep_h endpoint = nullptr;
                             ucp_ep_create(me.w.worker, &p, &endpoint);
                             me.endpoints.push_back(endpoint);
                           },
                           this};
    REQUIRE(ucp_listener_create(w.worker, &params, &listener) == UCS_OK);
    ucp_listener_attr_t attributes{};
    attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
    REQUIRE(ucp_listener_query(listener, &attributes) == UCS_OK);
    address =
        "127.0.0.1:" + std::to_string(ntohs(reinterpret_cast<sockaddr_in&>(attributes.sockaddr).sin_port));
  }
  ~scripted_peer() {
    for (auto* endpoint : endpoints) {
      ucp_request_param_t force{};
      force.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      force.flags = UCP_EP_CLOSE_FLAG_FORCE;
      if (auto* r = ucp_ep_close_nbx(endpoint, &force); UCS_PTR_IS_PTR(r)) requests.push_back(r);
    }
    w.progress_for(50ms);
    for (auto* r : requests) ucp_request_free(r);
    ucp_listener_destroy(listener);
  }
  raw_worker w;
  std::function<reply(const ucx_question&)> script;
  std::list<reply> said;
  std::vector<void*> requests;
  std::vector<ucp_ep_h> endpoints;
  ucp_listener_h listener = nullptr;
  std::string address;
};

TEST_CASE("F13 ucx: a malformed reply fails its fetch and touches no byte of any slot") {
  const std::size_t size = 64 * 1024;
  const auto served = [&](const ucx_question& q, bytes name, std::uint32_t index, std::size_t length) {
    const message data(length, std::byte{1});
    return scripted_peer::reply{*encode_reply({ucx_verdict::served,
                                               q.id,
                                               index,
                                               length,
                                               {q.extent, std::move(name), length, 0, checksum_of(data)},
                                               {}}),
                                data};
  };
  const std::pair<const char*, std::function<scripted_peer::reply(const ucx_question&)>> scripts[] = {
      {"garbage",
       [](const ucx_question&) {
         return scripted_peer::reply{garbage(100), garbage(1000)};
       }},
      {"nothing", [](const ucx_question&) { return scripted_peer::reply{}; }},
      {"a unit past the question", [&](const ucx_question& q) { return served(q, "0", 7, size); }},
      {"another name", [&](const ucx_question& q) { return served(q, "other", 0, size); }},
      {"longer than the slot", [&](const ucx_question& q) { return served(q, "0", 0, 2 * size); }},
      {"shorter than the slot", [&](const ucx_question& q) { return served(q, "0", 0, 8); }},
      {"a question that was never asked",
       [&](ucx_question q) {
         q.id += 1000;
         return served(q, "0", 0, size);
       }},
      {"a damaged frame",
       [&](const ucx_question& q) {
         auto r = served(q, "0", 0, size);
         r.header.back() ^= std::byte{1};
         return r;
       }},
      {"fewer bytes than it says",
       [&](const ucx_question& q) {
         auto r = served(q, "0", 0, size);
         r.data.resize(size - 1);
         return r;
       }},
      {"a probe's answer", [](const ucx_question& q) {
         return scripted_peer::reply{*encode_reply({ucx_verdict::probed, q.id, 0, 0, {}, {true}}), {}};
       }}};
  for (const auto& [name, script] : scripts) {
    CAPTURE(name);
    scripted_peer peer{script};
    ucx_bench b{"ucx://127.0.0.1:0?peers=" + peer.address, 2, size};
    const auto a = b.fetching().fetch(b.extent(1));
    REQUIRE(eventually([&] {
      peer.w.progress();
      return a->poll() && b.ended(*a);
    }));
    CHECK(failure_of(*a).find("malformed") != std::string::npos);
    CHECK(b.painted());
  }
}

TEST_CASE("F13 ucx: bytes that do not match their checksum are never served") {
  const std::size_t size = 256 * 1024;
  scripted_peer peer{[&](const ucx_question& q) {
    return scripted_peer::reply{
        *encode_reply({ucx_verdict::served, q.id, 0, size, {q.extent, "0", size, 0, 12345}, {}}),
        garbage(size)};
  }};
  ucx_bench b{"ucx://127.0.0.1:0?peers=" + peer.address, 2, size};
  const auto a = b.fetching().fetch(b.extent(1));
  REQUIRE(eventually([&] {
    peer.w.progress();
    return a->poll() && b.ended(*a);
  }));
  CHECK(failure_of(*a).find("checksum") != std::string::npos);
}

}  // namespace
}  // namespace kvlease::test

#include "src/providers/ucx/server.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

namespace kvlease {

namespace {

/// Questions that one connection may have waiting, in bytes of their names: far above what a fetch asks.
constexpr std::size_t waiting_bytes = std::size_t{4} << 20;

}  // namespace

result<ucx_address> resolve(const host_port& at) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (problem != 0)
    return fail(errc::invalid,
                fmt::format("ucx: no address for '{}': {}", to_string(at), ::gai_strerror(problem)));
  ucx_address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

/// One peer that fetches from here.
struct ucx_server::connection {
  ucp_ep_h endpoint = nullptr;
  bool broken = false;
  std::size_t sending = 0;  ///< sends under way
  std::size_t waiting = 0;  ///< bytes of `questions`
  std::deque<ucx_question> questions;
  std::uint32_t next_unit = 0;  ///< of the first question
};

/// What must live until the callback of one send.
struct ucx_server::send {
  ucx_server* server;
  std::shared_ptr<connection> to;
  std::vector<std::byte> header;
  export_pool::pin content;  ///< null for a reply without data
};

ucx_server::ucx_server(ucx_worker& worker, export_pool& pool, const ucx_options& options)
    : worker_{worker}, pool_{pool}, options_{options} {}

ucx_server::~ucx_server() {
  if (listener_ != nullptr) ucp_listener_destroy(listener_);
}

result<host_port> ucx_server::listen() {
  const auto refused = [&](ucs_status_t s) {
    return fail(errc::provider,
                fmt::format("ucx: can't listen on {} (tls={}, net_device={}): {}", to_string(options_.listen),
                            options_.tls, options_.net_device, ucx_text(s)));
  };
  const auto address = resolve(options_.listen);
  if (!address) return tl::unexpected{address.error()};
  if (const auto s = worker_.receive(ucx_question_id, on_question, this); s != UCS_OK) return refused(s);
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = address->for_ucx();
  params.conn_handler = {on_connect, this};
  if (const auto s = ucp_listener_create(worker_.get(), &params, &listener_); s != UCS_OK) return refused(s);
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  if (const auto s = ucp_listener_query(listener_, &attributes); s != UCS_OK) return refused(s);
  auto bound = options_.listen;
  bound.port = ntohs(attributes.sockaddr.ss_family == AF_INET6
                         ? reinterpret_cast<const sockaddr_in6&>(attributes.sockaddr).sin6_port
                         : reinterpret_cast<const sockaddr_in&>(attributes.sockaddr).sin_port);
  return bound;
}

// ---- Connections -----------------------------------------------------------------------------------------

void ucx_server::on_connect(ucp_conn_request_h request, void* self) {
  static_cast<ucx_server*>(self)->accept(request);
}

void ucx_server::accept(ucp_conn_request_h request) {
  if (closing_ || connections_.size() >= options_.connections) {
    ++refused_;
    ucp_listener_reject(listener_, request);
    return;
  }
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, this};
  auto made = std::make_shared<connection>();
  if (ucp_ep_create(worker_.get(), &params, &made->endpoint) != UCS_OK)
    return;  // the request is gone with it
  connections_.emplace(made->endpoint, std::move(made));
  connected_ = connections_.size();
}

void ucx_server::on_error(void* self, ucp_ep_h endpoint, ucs_status_t) {
  auto& server = *static_cast<ucx_server*>(self);
  if (const auto it = server.connections_.find(endpoint); it != server.connections_.end())
    server.drop(*it->second);
}

/// Closed after this round of progress: UCX is in the middle of something now.
void ucx_server::drop(connection& which) {
  which.broken = true;
  which.questions.clear();
  any_broken_ = true;
}

void ucx_server::after_progress() {
  if (!std::exchange(any_broken_, false)) return;
  std::vector<ucp_ep_h> closing;
  for (const auto& [endpoint, c] : connections_)
    if (c->broken) closing.push_back(endpoint);
  for (auto* endpoint : closing) {
    connections_.erase(endpoint);  // its sends hold it until their callbacks
    worker_.close_endpoint(endpoint);
  }
  connected_ = connections_.size();
}

void ucx_server::close() {
  closing_ = true;
  for (auto& [endpoint, c] : connections_) drop(*c);
  after_progress();
}

// ---- Questions -------------------------------------------------------------------------------------------

ucs_status_t ucx_server::on_question(void* self, const void*, std::size_t header_size, void* data,
                                     std::size_t size, const ucp_am_recv_param_t* param) {
  auto& server = *static_cast<ucx_server*>(self);
  // Who does not say whom to answer can't be answered, nor closed.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
  const auto it = server.connections_.find(param->reply_ep);
  if (it == server.connections_.end() || it->second->broken) return UCS_OK;
  // Questions come eager; a rendezvous would have us fetch what nobody has looked at yet.
  if (header_size != 0 || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    ++server.malformed_;
    server.drop(*it->second);
    return UCS_OK;
  }
  server.take(*it->second, {static_cast<const std::byte*>(data), size});
  return UCS_OK;
}

void ucx_server::take(connection& from, std::span<const std::byte> message) {
  auto q = decode_question(message);
  if (!q || from.waiting + message.size() > waiting_bytes) {
    ++malformed_;
    return drop(from);
  }
  if (q->units.empty() && q->ask == ucx_ask::fetch) return;
  from.waiting += message.size();
  from.questions.push_back(*std::move(q));
  pump(from);
}

/// Answers on while the window has room. A callback that runs meanwhile finds the state as it must be.
void ucx_server::pump(connection& to) {
  while (!to.broken && !to.questions.empty() && to.sending < options_.window) {
    const auto& q = to.questions.front();
    if (q.ask == ucx_ask::probe) {
      to.next_unit = static_cast<std::uint32_t>(q.units.size());
      answer_probe(to, q);
    } else {
      answer(to, q, to.next_unit++);
    }
    if (to.questions.empty() || to.next_unit < q.units.size()) continue;  // dropped, or goes on
    std::size_t size = ucx_question_head(q.extent);
    for (const auto& u : q.units) size += ucx_question_room(u.name);
    to.waiting -= size;
    to.questions.pop_front();
    to.next_unit = 0;
  }
}

void ucx_server::answer_probe(connection& to, const ucx_question& q) {
  ucx_reply reply{ucx_verdict::probed, q.id, 0, 0, {}, {}};
  for (const auto& u : q.units) reply.here.push_back(pool_.find(q.extent, u.name).has_value());
  transmit(to, reply, nullptr);
}

void ucx_server::answer(connection& to, const ucx_question& q, std::uint32_t unit) {
  const auto& wanted = q.units[unit];
  auto content = pool_.get(q.extent, wanted.name);
  if (!content) return transmit(to, {ucx_verdict::absent, q.id, unit, 0, {}, {}}, nullptr);
  if (content->size != wanted.length)
    return transmit(to, {ucx_verdict::other_size, q.id, unit, content->size, {}, {}}, nullptr);
  const ucx_reply reply{ucx_verdict::served,
                        q.id,
                        unit,
                        content->size,
                        {q.extent, wanted.name, content->size, 0, content->checksum},
                        {}};
  transmit(to, reply, std::move(content));
}

void ucx_server::transmit(connection& to, const ucx_reply& reply, export_pool::pin content) {
  auto header = encode_reply(reply);
  if (!header || header->size() > worker_.max_header()) return drop(to);
  const auto self = connections_.find(to.endpoint);
  if (self == connections_.end()) return;
  auto made = std::make_unique<send>(this, self->second, *std::move(header), std::move(content));
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = on_sent;
  params.user_data = made.get();
  params.flags = UCP_AM_SEND_FLAG_REPLY;
  const auto* data = made->content ? made->content->data.get() : nullptr;
  auto* request = ucp_am_send_nbx(to.endpoint, ucx_reply_id, made->header.data(), made->header.size(), data,
                                  made->content ? made->content->size : 0, &params);
  if (UCS_PTR_IS_ERR(request)) return drop(to);  // nothing of it is under way
  if (request == nullptr) return;                // sent, and not looked at again
  ++to.sending;
  ++sends_;
  static_cast<void>(made.release());  // on_sent owns it
}

void ucx_server::on_sent(void* request, ucs_status_t status, void* user) {
  ucp_request_free(request);
  const std::unique_ptr<send> done{static_cast<send*>(user)};
  auto& to = *done->to;
  auto& server = *done->server;
  --server.sends_;
  --to.sending;
  if (status != UCS_OK) return server.drop(to);
  server.pump(to);
}

}  // namespace kvlease

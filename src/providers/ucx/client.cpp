#include "src/providers/ucx/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

namespace kvlease {

using clock_type = std::chrono::steady_clock;

namespace {

/// After the n-th failure in a row a peer is left alone for twice as long as after the one before.
std::chrono::milliseconds backoff(unsigned failures) {
  using std::chrono::milliseconds;
  return std::min(milliseconds{5000}, milliseconds{50} * (1u << std::min(failures, 8u)));
}

}  // namespace

/// One question under way.
struct ucx_client::asked {
  std::shared_ptr<ucx_asker> by;
  ucx_ask what;
  bytes extent;
  std::vector<std::size_t> units;
  std::vector<ucx_wanted> wanted;
  std::vector<bool> open;  ///< by unit: no reply yet
  std::size_t left;
};

class ucx_client::peer {
 public:
  std::string name;
  ucx_address address;
  ucp_ep_h endpoint = nullptr;
  bool broken = false;  ///< to be closed after this round of progress
  bool answered = false;
  bool unused = false;  ///< why it is broken: no failure
  std::string why;      ///< it was broken off last
  unsigned failures = 0;
  clock_type::time_point not_before{};
  std::map<std::uint64_t, asked> questions;
  std::set<landing*> landings;
};

/// Bytes on their way into a slot.
struct ucx_client::landing {
  ucx_client* client;
  std::shared_ptr<peer> from;
  std::shared_ptr<ucx_asker> by;
  std::size_t unit;
  unit_frame frame;
  bool by_force = false;
};

struct ucx_client::send {
  ucx_client* client;
  std::shared_ptr<peer> to;
  std::vector<std::byte> message;
};

ucx_client::ucx_client(ucx_worker& worker) : worker_{worker} {}
ucx_client::~ucx_client() = default;

result<void> ucx_client::listen() {
  if (const auto s = worker_.receive(ucx_reply_id, on_reply, this); s != UCS_OK)
    return fail(errc::provider, "ucx: no handler for replies: " + ucx_text(s));
  return {};
}

// ---- Connections -----------------------------------------------------------------------------------------

std::shared_ptr<ucx_client::peer> ucx_client::peer_at(const host_port& at, const ucx_address& address) {
  const auto name = to_string(at);
  std::erase_if(peers_, [](const auto& known) { return known.second.expired(); });
  if (const auto it = peers_.find(name); it != peers_.end())
    if (auto known = it->second.lock()) return known;
  auto made = std::make_shared<peer>();
  made->name = name;
  made->address = address;
  peers_[name] = made;
  return made;
}

void ucx_client::connect(peer& to) {
  if (to.endpoint != nullptr || clock_type::now() < to.not_before) return;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = to.address.for_ucx();
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {on_error, this};
  if (const auto s = ucp_ep_create(worker_.get(), &params, &to.endpoint); s != UCS_OK) {
    to.endpoint = nullptr;
    to.why = ucx_text(s);
    to.not_before = clock_type::now() + backoff(to.failures++);
    return;
  }
  to.broken = to.answered = false;
  connected_.emplace(to.endpoint, peers_.at(to.name).lock());
}

void ucx_client::on_error(void* self, ucp_ep_h endpoint, ucs_status_t status) {
  auto& client = *static_cast<ucx_client*>(self);
  if (const auto it = client.connected_.find(endpoint); it != client.connected_.end())
    client.break_off(*it->second, ucx_text(status));
}

/// Closed after this round of progress: UCX is in the middle of something now.
void ucx_client::break_off(peer& which, const std::string& why) {
  if (which.endpoint == nullptr || which.broken) return;
  which.broken = true;
  which.why = why;
  broken_.push_back(connected_.at(which.endpoint));
}

/// What lands goes on until its own callback, which comes in a later round.
void ucx_client::reset(peer& which) {
  if (!which.broken) return;
  which.broken = false;
  auto* endpoint = std::exchange(which.endpoint, nullptr);
  if (which.answered) which.failures = 0;
  if (!std::exchange(which.unused, false)) which.not_before = clock_type::now() + backoff(which.failures++);
  connected_.erase(endpoint);
  worker_.close_endpoint(endpoint);
  for (auto& [id, q] : std::exchange(which.questions, {})) {
    const auto why = fmt::format("peer {}: {}", which.name, which.why);
    for (std::size_t i = 0; i < q.units.size(); ++i)
      if (q.open[i]) q.by->lost(q.units[i], why);
    if (q.what == ucx_ask::probe) q.by->lost(0, why);
  }
}

void ucx_client::drop_unused() {
  for (const auto& [endpoint, p] : connected_)
    if (p.use_count() == 1 && p->questions.empty() && !p->broken) {
      p->unused = true;
      break_off(*p, "unused");
    }
  after_progress();
}

void ucx_client::after_progress() {
  while (!broken_.empty())
    for (const auto& p : std::exchange(broken_, {})) reset(*p);
}

void ucx_client::close() {
  for (const auto& [endpoint, p] : connected_) {
    for (auto* l : p->landings) l->by_force = true;
    break_off(*p, "the provider is closing");
  }
  after_progress();
}

// ---- Questions -------------------------------------------------------------------------------------------

void ucx_client::ask(peer& to, const std::shared_ptr<ucx_asker>& by, ucx_ask what, const bytes& extent,
                     std::span<const std::size_t> units, std::span<const ucx_wanted> wanted) {
  // As many as fit one question, and the rest in the next.
  do {
    std::size_t n = 0, size = ucx_question_head(extent);
    while (n < wanted.size() && n < ucx_question_units &&
           size + ucx_question_room(wanted[n].name) <= ucx_question_bytes)
      size += ucx_question_room(wanted[n++].name);
    n = wanted.empty() ? 0 : std::max<std::size_t>(n, 1);
    ask_once(to, by, what, extent, units.first(std::min(n, units.size())), wanted.first(n));
    units = units.subspan(std::min(n, units.size()));
    wanted = wanted.subspan(n);
  } while (!wanted.empty());
}

void ucx_client::ask_once(peer& to, const std::shared_ptr<ucx_asker>& by, ucx_ask what, const bytes& extent,
                          std::span<const std::size_t> units, std::span<const ucx_wanted> wanted) {
  const auto give_up = [&](const std::string& why) {
    for (const auto unit : units) by->lost(unit, why);
    if (what == ucx_ask::probe) by->lost(0, why);
  };
  auto message = encode_question({what, last_id_ + 1, extent, {wanted.begin(), wanted.end()}});
  if (!message) return give_up(message.error().text);
  connect(to);
  if (to.endpoint == nullptr || to.broken) return give_up(fmt::format("peer {}: {}", to.name, to.why));
  const auto id = ++last_id_;
  auto made = std::make_unique<send>(this, connected_.at(to.endpoint), *std::move(message));
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.cb.send = on_sent;
  params.user_data = made.get();
  params.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  auto* request = ucp_am_send_nbx(to.endpoint, ucx_question_id, nullptr, 0, made->message.data(),
                                  made->message.size(), &params);
  if (UCS_PTR_IS_ERR(request)) {
    break_off(to, ucx_text(UCS_PTR_STATUS(request)));
    return give_up(fmt::format("peer {}: {}", to.name, to.why));
  }
  to.questions.emplace(id, asked{by,
                                 what,
                                 extent,
                                 {units.begin(), units.end()},
                                 {wanted.begin(), wanted.end()},
                                 std::vector<bool>(units.size(), true),
                                 what == ucx_ask::probe ? 1 : units.size()});
  if (request == nullptr) return;
  ++sends_;
  static_cast<void>(made.release());  // on_sent owns it
}

void ucx_client::on_sent(void* request, ucs_status_t status, void* user) {
  ucp_request_free(request);
  const std::unique_ptr<send> done{static_cast<send*>(user)};
  --done->client->sends_;
  if (status != UCS_OK) done->client->break_off(*done->to, ucx_text(status));
}

void ucx_client::withdraw(const ucx_asker& by) {
  for (const auto& [endpoint, p] : connected_)
    std::erase_if(p->questions, [&](const auto& q) { return q.second.by.get() == &by; });
}

std::vector<std::shared_ptr<ucx_asker>> ucx_client::close_by_force(const ucx_asker& of) {
  std::vector<std::shared_ptr<ucx_asker>> others;
  for (const auto& [endpoint, p] : connected_) {
    if (std::ranges::none_of(p->landings, [&](const auto* l) { return l->by.get() == &of; })) continue;
    std::set<std::shared_ptr<ucx_asker>> there;
    for (const auto* l : p->landings) there.insert(l->by);
    for (const auto& [id, q] : p->questions) there.insert(q.by);
    const auto why = fmt::format(
        "peer {}: its endpoint was closed by force, to prove the end of another "
        "operation's access",
        p->name);
    for (const auto& a : there)
      if (a.get() != &of) {
        a->taken_down(why);
        others.push_back(a);
      }
    for (auto* l : p->landings) l->by_force = true;
    break_off(*p, why);
  }
  after_progress();
  return others;
}

// ---- Replies ---------------------------------------------------------------------------------------------

ucs_status_t ucx_client::on_reply(void* self, const void* header, std::size_t header_size, void* data,
                                  std::size_t size, const ucp_am_recv_param_t* param) {
  auto& client = *static_cast<ucx_client*>(self);
  // A reply counts only over the endpoint that its question went over.
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
  const auto it = client.connected_.find(param->reply_ep);
  if (it == client.connected_.end() || it->second->broken) return UCS_OK;
  const auto from = it->second;
  return client.take(*from, {static_cast<const std::byte*>(header), header_size}, data, size,
                     (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0);
}

ucs_status_t ucx_client::reject(peer& from, const std::string& why) {
  ++malformed_;
  break_off(from, "malformed message: " + why);
  return UCS_OK;  // data that has not been taken is dropped
}

ucs_status_t ucx_client::take(peer& from, std::span<const std::byte> header, void* data, std::size_t size,
                              bool rendezvous) {
  auto reply = decode_reply(header, size);
  if (!reply) return reject(from, reply.error().text);
  from.answered = true;
  from.failures = 0;
  const auto it = from.questions.find(reply->id);
  if (it == from.questions.end()) {
    // Withdrawn, unless the question was never asked.
    return reply->id > last_id_ || reply->id == 0 ? reject(from, "a reply to no question") : UCS_OK;
  }
  auto& q = it->second;
  if ((q.what == ucx_ask::probe) != (reply->verdict == ucx_verdict::probed))
    return reject(from, "a reply of another kind than its question");
  if (reply->verdict == ucx_verdict::probed) {
    if (reply->here.size() != q.wanted.size()) return reject(from, "a probe's reply of another length");
    const auto by = q.by;
    from.questions.erase(it);
    by->probed(reply->here);
    return UCS_OK;
  }
  const std::size_t index = reply->unit;
  if (index >= q.units.size() || !q.open[index]) return reject(from, "a reply to a unit that is not open");
  if (reply->verdict == ucx_verdict::served &&
      (reply->frame.extent != q.extent || reply->frame.name != q.wanted[index].name ||
       reply->length != q.wanted[index].length))
    return reject(from, "a frame of another unit than was asked for");
  q.open[index] = false;
  const bool last = --q.left == 0;
  const auto by = q.by;
  const auto unit = q.units[index];
  if (last) from.questions.erase(it);
  switch (reply->verdict) {
    case ucx_verdict::absent:
      by->absent(unit);
      return UCS_OK;
    case ucx_verdict::other_size:
      by->other_size(unit, reply->length);
      return UCS_OK;
    default:
      return serve(from, by, unit, *std::move(reply), data, size, rendezvous);
  }
}

ucs_status_t ucx_client::serve(peer& from, const std::shared_ptr<ucx_asker>& by, std::size_t unit,
                               ucx_reply reply, void* data, std::size_t size, bool rendezvous) {
  const auto place = by->land(unit);
  if (!place) return UCS_OK;
  if (!rendezvous) {
    if (size > 0) std::memcpy(place->data(), data, size);
    by->landed(unit, reply.frame, {}, false);
    return UCS_OK;
  }
  auto made = std::make_unique<landing>(this, connected_.at(from.endpoint), by, unit, std::move(reply.frame));
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.recv_am = on_landed;
  params.user_data = made.get();
  auto* request = ucp_am_recv_data_nbx(worker_.get(), data, place->data(), size, &params);
  if (UCS_PTR_IS_PTR(request)) {
    ++landings_;
    from.landings.insert(made.release());  // on_landed owns it
    return UCS_INPROGRESS;
  }
  by->landed(unit, made->frame,
             UCS_PTR_IS_ERR(request)
                 ? fmt::format("peer {}: {}", from.name, ucx_text(UCS_PTR_STATUS(request)))
                 : std::string{},
             false);
  return UCS_INPROGRESS;
}

void ucx_client::on_landed(void* request, ucs_status_t status, std::size_t size, void* user) {
  ucp_request_free(request);
  const std::unique_ptr<landing> done{static_cast<landing*>(user)};
  --done->client->landings_;
  done->from->landings.erase(done.get());
  std::string why;
  if (status != UCS_OK)
    why = fmt::format("peer {}: {}", done->from->name, ucx_text(status));
  else if (size != done->frame.length)
    why = fmt::format("peer {}: {} bytes of {} came", done->from->name, size, done->frame.length);
  done->by->landed(done->unit, done->frame, why, done->by_force);
}

}  // namespace kvlease

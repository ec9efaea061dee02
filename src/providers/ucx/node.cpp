#include "src/providers/ucx/node.hpp"

#include <fmt/format.h>

#include <utility>

namespace kvlease {

result<std::shared_ptr<ucx_node>> ucx_node::start(ucx_options options) {
  std::shared_ptr<ucx_node> made{new ucx_node{std::move(options)}};
  auto loop = ucx_loop::make(made->options_);
  if (!loop) return tl::unexpected{loop.error()};
  made->loop_ = *std::move(loop);
  const auto room = made->loop_->serving().max_header();
  if (room < ucx_reply_bytes)
    return fail(errc::provider, fmt::format("ucx: tls={} carries message headers of {} bytes, {} are needed",
                                            made->options_.tls, room, ucx_reply_bytes));
  made->server_ = std::make_unique<ucx_server>(made->loop_->serving(), made->pool_, made->options_);
  made->client_ = std::make_unique<ucx_client>(made->loop_->fetching());
  const auto listening = made->server_->listen();
  if (!listening) return tl::unexpected{listening.error()};
  made->listening_ = *listening;
  if (const auto ok = made->client_->listen(); !ok) return tl::unexpected{ok.error()};
  auto peers = made->options_.peers;
  if (made->options_.ask_self) peers.insert(peers.begin(), made->listening_);
  for (const auto& at : peers) {
    const auto address = resolve(at);
    if (!address) return tl::unexpected{address.error()};
    made->peers_.push_back(made->client_->peer_at(at, *address));
  }
  made->loop_->start({[node = made.get()] {
                        node->server_->after_progress();
                        node->client_->after_progress();
                      },
                      [node = made.get()] { return node->server_->idle() && node->client_->idle(); }});
  made->running_ = true;
  return made;
}

ucx_node::~ucx_node() {
  bool clean = true;
  if (running_)
    clean = loop_->stop(
        [this] {
          client_->close();
          server_->close();
        },
        std::chrono::seconds{5});
  if (clean) {
    server_.reset();
    loop_.reset();  // see ~ucx_server
    return;
  }
  // UCX still knows these: they must stay where they are.
  static_cast<void>(server_.release());
  static_cast<void>(client_.release());
}

}  // namespace kvlease

#include "src/providers/redis/redis_provider.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "src/providers/redis/transfer.hpp"
#include "src/providers/redis/unit_command.hpp"

namespace kvlease {

redis_provider::redis_provider(redis::options o, std::shared_ptr<const redis::tls_context> tls,
                               provider_context context)
    : transfer_provider{"redis", std::move(context)},
      routes_{std::make_shared<redis::routes>(std::move(o), std::move(tls))} {}

redis_provider::~redis_provider() { routes_->close(); }

std::string redis_provider::describe() const { return redis::describe(routes_->settings()); }

std::shared_ptr<attempt> redis_provider::fetch(const cache_extent& extent, route* along) {
  if (along) throw submission_rejected{"redis: foreign route: it opens none"};
  return submit(direction::fetch, extent);
}

std::shared_ptr<attempt> redis_provider::publish(const cache_extent& extent) {
  return submit(direction::publish, extent);
}

std::shared_ptr<attempt> redis_provider::submit(direction way, const cache_extent& extent) {
  auto made = std::make_shared<redis::transfer>(routes_, book(), way, extent);
  auto why = made->prepare();
  if (!why) why = made->oversize();
  if (why) {
    made->finish_and_end(failed{std::move(*why)});
  } else if (extent.units().empty()) {
    made->finish_and_end(delivered{{}});
  } else if (const auto ok = routes_->submit(made->commands()); !ok) {
    throw submission_rejected{"redis: " + ok.error().text};
  }
  return made;
}

std::optional<std::set<bytes>> redis_provider::probe(const bytes& extent, const std::set<bytes>& names) {
  const std::size_t at_once = std::min<std::size_t>(routes_->settings().queue, 256);
  std::set<bytes> hits;
  for (auto next = names.begin(); next != names.end();) {
    const auto answers = std::make_shared<redis::probe_answers>();
    std::vector<std::shared_ptr<redis::command>> commands;
    for (; next != names.end() && commands.size() < at_once; ++next)
      commands.push_back(redis::make_probe_command(routes_, answers, extent, *next));
    if (const auto ok = routes_->submit(commands); !ok) throw std::runtime_error{"redis: " + ok.error().text};
    hits.merge(answers->wait_for(commands.size()));
  }
  return hits;
}

// ---- By URI ----------------------------------------------------------------------------------------------

namespace {

result<provider_factory> open(std::string_view scheme, std::string_view after_colon) {
  auto o = redis::parse_options(scheme, after_colon);
  if (!o) return tl::unexpected{o.error()};
  std::shared_ptr<const redis::tls_context> tls;
  if (o->tls) {
    auto opened = redis::tls_context::open(o->security);
    if (!opened) return tl::unexpected{opened.error()};
    tls = std::move(*opened);
  }
  return provider_factory{[o = std::move(*o), tls](const provider_context& c) {
    return std::make_shared<redis_provider>(o, tls, c);
  }};
}

}  // namespace

result<provider_factory> open_redis(std::string_view after_colon) { return open("redis", after_colon); }
result<provider_factory> open_rediss(std::string_view after_colon) { return open("rediss", after_colon); }
result<provider_factory> open_redis_unix(std::string_view after_colon) {
  return open("redis+unix", after_colon);
}

}  // namespace kvlease

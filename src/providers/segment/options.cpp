#include "src/providers/segment/options.hpp"

#include <fmt/format.h>

#include "src/providers/uri_options.hpp"

namespace kvlease {

result<segment_options> parse_segment_options(std::string_view after_colon) {
  const auto o = uri_options::parse(
      "segment", after_colon,
      {"bytes", "segment", "durable", "direct", "engine", "depth", "queue", "bounce", "eviction"});
  if (!o) return tl::unexpected{o.error()};
  segment_options s;
  s.directory = o->place();
  if (s.directory.empty())
    return fail(errc::invalid, fmt::format("segment:{}: a directory must follow the colon", after_colon));
  const auto total = o->byte_size("bytes", s.bytes, std::uint64_t{1} << 20);
  const auto segment = o->byte_size("segment", s.segment, std::uint64_t{64} << 10);
  const auto durable = o->flag("durable", s.durable);
  const auto direct = o->flag("direct", s.direct);
  const auto engine = o->choice("engine", 0, {"auto", "uring", "threads"});
  const auto depth = o->number("depth", s.depth, 1, 1024);
  const auto queue = o->number("queue", s.queue, 1, std::uint64_t{1} << 24);
  const auto bounce = o->byte_size("bounce", s.bounce, std::uint64_t{64} << 10);
  const auto policy = o->choice("eviction", 0, {"slru", "s3fifo", "lru"});
  if (!total) return tl::unexpected{total.error()};
  if (!segment) return tl::unexpected{segment.error()};
  if (!durable) return tl::unexpected{durable.error()};
  if (!direct) return tl::unexpected{direct.error()};
  if (!engine) return tl::unexpected{engine.error()};
  if (!depth) return tl::unexpected{depth.error()};
  if (!queue) return tl::unexpected{queue.error()};
  if (!bounce) return tl::unexpected{bounce.error()};
  if (!policy) return tl::unexpected{policy.error()};
  s.bytes = *total;
  s.segment = *segment;
  s.durable = *durable;
  s.direct = *direct;
  s.engine = static_cast<engine_choice>(*engine);
  s.depth = static_cast<unsigned>(*depth);
  s.queue = *queue;
  s.bounce = *bounce;
  s.policy = static_cast<eviction>(*policy);
  return s;
}

}  // namespace kvlease

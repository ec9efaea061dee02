#include "tools/serve/options.hpp"

#include <fmt/format.h>

#include "tools/serve/addresses.hpp"

namespace kvlease::serve {

namespace {

constexpr std::size_t gib = std::size_t{1} << 30;

template <class T>
result<void> in_range(const char* option, T value, T least, T most) {
  if (value >= least && value <= most) return {};
  return fail(errc::invalid, fmt::format("--{} is {}, must be {} to {}", option, value, least, most));
}

result<void> check_ranges(const serve_options& o) {
  for (const auto& checked :
       {in_range<std::size_t>("instances", o.instances, 1, 64),
        in_range<std::size_t>("tokens-per-block", o.tokens_per_block, 1, 65536),
        in_range<std::size_t>("block-bytes", o.block_bytes, 64, gib),
        in_range<std::size_t>("pool-blocks", o.pool_blocks, 1, gib),
        in_range<std::size_t>("staging-slots", o.staging_slots, 1, std::size_t{1} << 24),
        in_range<std::size_t>("store-bytes", o.store_bytes, 1, 1024 * gib),
        in_range<std::size_t>("concurrency", o.concurrency, 1, 128),
        in_range<std::size_t>("queued", o.queued, 1, 4096)})
    if (!checked) return checked;
  if (o.block_bytes % 8 != 0)
    return fail(errc::invalid, fmt::format("--block-bytes is {}, must be a multiple of 8", o.block_bytes));
  if (o.local_reuse != "on" && o.local_reuse != "off")
    return fail(errc::invalid, fmt::format("--local-reuse is '{}', must be on or off", o.local_reuse));
  return {};
}

template <class T>
result<T> named(const char* option, result<T> r) {
  if (!r) r.error().text = fmt::format("--{}: {}", option, r.error().text);
  return r;
}

result<transfer_timeout> parse_timeout(const char* option, const std::string& text) {
  const auto seconds = replay::parse_duration(text);
  if (!seconds) return named<transfer_timeout>(option, tl::unexpected{seconds.error()});
  return named(option, transfer_timeout::make(*seconds));
}

}  // namespace

result<serve_plan> plan_serve(const serve_options& o) {
  if (const auto ok = check_ranges(o); !ok) return tl::unexpected{ok.error()};
  const auto device = named("device", parse_device_choice(o.device));
  if (!device) return tl::unexpected{device.error()};
  if (const auto there = named("device", check_device(*device)); !there) return tl::unexpected{there.error()};
  const auto timeout = parse_timeout("timeout", o.timeout);
  if (!timeout) return tl::unexpected{timeout.error()};
  const auto drain = parse_timeout("drain", o.drain);
  if (!drain) return tl::unexpected{drain.error()};
  const auto budget = parse_timeout("budget", o.budget);
  if (!budget) return tl::unexpected{budget.error()};
  const auto late = parse_timeout("late", o.late);
  if (!late) return tl::unexpected{late.error()};
  auto faults = named("faults", parse_faults(o.faults, o.seed));
  if (!faults) return tl::unexpected{faults.error()};
  faults->late = late->value();
  if (!o.tcp.empty())
    if (const auto where = named("tcp", parse_loopback(o.tcp)); !where) return tl::unexpected{where.error()};
  // The embedded default takes its bound from --store-bytes.
  auto provider = named(
      "backend",
      provider_from_uri(o.backend == "memory:" ? fmt::format("memory:?bytes={}", o.store_bytes) : o.backend));
  if (!provider) return tl::unexpected{provider.error()};
  return serve_plan{.instances = {.work = {},
                                  .instances = o.instances,
                                  .block_bytes = o.block_bytes,
                                  .tokens_per_block = o.tokens_per_block,
                                  .pool_blocks = o.pool_blocks,
                                  .staging_slots = o.staging_slots,
                                  .provider = *std::move(provider),
                                  .backend = o.backend,
                                  .device = *device,
                                  .concurrency = o.concurrency,
                                  .timeout = *timeout,
                                  .seed = o.seed,
                                  .abort = 0,
                                  .faults = *faults,
                                  .local_reuse = o.local_reuse == "on",
                                  .quiet = o.quiet,
                                  .unproven_budget = budget->value()},
                    .socket = o.socket.empty() ? default_socket_path() : o.socket,
                    .tcp = o.tcp.empty() ? std::nullopt : std::optional{o.tcp},
                    .queued = o.queued,
                    .drain = drain->value(),
                    .retry_proofs = o.retry_proofs,
                    .drills = o.drills};
}

}  // namespace kvlease::serve

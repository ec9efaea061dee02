#include "tools/replay/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "tools/replay/generate.hpp"

namespace kvlease::replay {

namespace {

template <class T>
result<void> in_range(const char* option, T value, T least, T most) {
  if (value >= least && value <= most) return {};
  return fail(errc::invalid, fmt::format("--{} is {}, must be {} to {}", option, value, least, most));
}

std::size_t blocks_of(const trace_request& r, std::uint32_t tokens_per_block) {
  return (r.input_tokens + tokens_per_block - 1) / tokens_per_block;
}

std::size_t longest(const trace& t) {
  std::size_t most = 1;
  for (const auto& r : t.requests) most = std::max(most, blocks_of(r, t.tokens_per_block));
  return most;
}

std::optional<replay_role> role_of(std::string_view name) {
  if (name == "both") return replay_role::both;
  if (name == "publish") return replay_role::publish;
  if (name == "fetch") return replay_role::fetch;
  return std::nullopt;
}

result<trace> get_trace(const replay_options& o) {
  if (o.trace_path.empty())
    return generate(o.workload, o.requests.value_or(2000), o.tokens_per_block.value_or(512), o.seed);
  const auto format = parse_format(o.format);
  if (!format) return tl::unexpected{format.error()};
  return load_trace(o.trace_path, *format, o.requests);
}

result<void> check_ranges(const replay_options& o) {
  constexpr std::size_t gib = std::size_t{1} << 30;
  for (const auto& checked :
       {in_range<std::size_t>("instances", o.instances, 1, 64),
        in_range<std::size_t>("block-bytes", o.block_bytes, 64, gib),
        in_range<std::size_t>("staging-slots", o.staging_slots, 1, std::size_t{1} << 24),
        in_range<std::size_t>("store-bytes", o.store_bytes, 1, 1024 * gib),
        in_range<std::size_t>("concurrency", o.concurrency, 1, 1024), in_range("abort", o.abort, 0.0, 1.0)})
    if (!checked) return checked;
  if (o.block_bytes % 8 != 0)
    return fail(errc::invalid, fmt::format("--block-bytes is {}, must be a multiple of 8", o.block_bytes));
  if (o.local_reuse != "on" && o.local_reuse != "off")
    return fail(errc::invalid, fmt::format("--local-reuse is '{}', must be on or off", o.local_reuse));
  if (!role_of(o.role))
    return fail(errc::invalid, fmt::format("--role is '{}', must be both, publish or fetch", o.role));
  return {};
}

}  // namespace

result<std::chrono::duration<double>> parse_duration(const std::string& text) {
  double value = 0;
  const auto* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value);
  const std::string_view unit{rest, static_cast<std::size_t>(end - rest)};
  const double scale = unit == "s" ? 1 : unit == "ms" ? 1e-3 : unit == "us" ? 1e-6 : unit == "m" ? 60 : 0;
  if (problem != std::errc{} || scale == 0)
    return fail(errc::invalid,
                fmt::format("'{}' is no duration: a number and us, ms, s or m, such as 200ms", text));
  return std::chrono::duration<double>{value * scale};
}

result<replay_plan> plan_replay(const replay_options& o) {
  if (const auto ok = check_ranges(o); !ok) return tl::unexpected{ok.error()};
  const auto named = [](const char* option, const error& e) {
    return tl::unexpected{error{e.code, fmt::format("--{}: {}", option, e.text)}};
  };
  const auto device = parse_device_choice(o.device);
  if (!device) return named("device", device.error());
  if (const auto there = check_device(*device); !there) return named("device", there.error());
  const auto seconds = parse_duration(o.timeout);
  if (!seconds) return named("timeout", seconds.error());
  const auto timeout = transfer_timeout::make(*seconds);
  if (!timeout) return named("timeout", timeout.error());
  const auto late = parse_duration(o.late);
  if (!late) return named("late", late.error());
  const auto late_checked = transfer_timeout::make(*late);
  if (!late_checked) return named("late", late_checked.error());
  auto faults = parse_faults(o.faults, o.seed);
  if (!faults) return named("faults", faults.error());
  faults->late = late_checked->value();

  // The embedded default takes its bound from --store-bytes, and moves bytes inside the call while requests
  // run one by one: then a run repeats, whatever the machine's timing.
  auto provider =
      provider_from_uri(o.backend == "memory:" ? fmt::format("memory:?bytes={}&background={}", o.store_bytes,
                                                             o.concurrency > 1 ? "on" : "off")
                                               : o.backend);
  if (!provider) return named("backend", provider.error());

  auto work = get_trace(o);
  if (!work) return tl::unexpected{work.error()};
  if (o.tokens_per_block && *o.tokens_per_block != work->tokens_per_block)
    return fail(errc::invalid, fmt::format("--tokens-per-block is {}, must be the trace's {}",
                                           *o.tokens_per_block, work->tokens_per_block));
  const auto most = longest(*work);
  const auto at_once = (o.concurrency + o.instances - 1) / o.instances;
  const auto pool = o.pool_blocks.value_or(std::max(most, std::min(most * at_once, std::size_t{8192})));
  if (pool < most)
    return fail(errc::invalid,
                fmt::format("--pool-blocks is {}, must be at least the {} blocks of the longest "
                            "request",
                            pool, most));
  if (const auto ok = in_range<std::size_t>("pool-blocks", pool, 1, std::size_t{1} << 30); !ok)
    return tl::unexpected{ok.error()};
  const auto tokens_per_block = work->tokens_per_block;
  return replay_plan{.work = *std::move(work),
                     .instances = o.instances,
                     .block_bytes = o.block_bytes,
                     .tokens_per_block = tokens_per_block,
                     .pool_blocks = pool,
                     .staging_slots = o.staging_slots,
                     .provider = *std::move(provider),
                     .backend = o.backend,
                     .device = *device,
                     .concurrency = o.concurrency,
                     .timeout = *timeout,
                     .seed = o.seed,
                     .abort = o.abort,
                     .faults = *faults,
                     .local_reuse = o.local_reuse == "on",
                     .role = *role_of(o.role),
                     .quiet = o.quiet,
                     .journal_path = o.journal_path};
}

}  // namespace kvlease::replay

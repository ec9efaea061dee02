#include "tools/replay/report.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <algorithm>

namespace kvlease::replay {

namespace {

quantiles quantiles_of(std::vector<double>& samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto at = [&](double q) {
    return samples[static_cast<std::size_t>(q * static_cast<double>(samples.size() - 1))];
  };
  return {at(0.5), at(0.99), samples.size()};
}

double us(time_point from, time_point to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

nlohmann::ordered_json to_json(const quantiles& q) {
  return {{"p50_us", q.p50_us}, {"p99_us", q.p99_us}, {"samples", q.samples}};
}

}  // namespace

void count(outcome_counts& counts, const outcome& value, std::size_t units) {
  if (const auto* ok = std::get_if<delivered>(&value)) {
    const auto served = ok->served().size();
    ++(served == units ? counts.delivered : served == 0 ? counts.miss : counts.partial);
  } else if (const auto* bad = std::get_if<failed>(&value)) {
    ++(bad->reason() == "transfer timeout"                  ? counts.timeout
       : bad->reason().starts_with("submission rejected: ") ? counts.rejected
                                                            : counts.failed);
  } else {
    ++counts.cancelled;
  }
}

std::vector<std::string> report::missed_faults() const {
  std::vector<std::string> missed;
  for (std::size_t k = 0; k < fault_kind_count; ++k)
    if (faults_asked[k] && faults_struck[k] == 0) missed.emplace_back(to_string(static_cast<fault_kind>(k)));
  return missed;
}

int report::exit_status() const {
  const bool held = wrong_blocks == 0 && exposure_bytes == 0 && slots_conserved && problems.empty();
  if (!held) return 1;
  if (fatal) return 3;
  return operations_open == 0 && stopped && missed_faults().empty() ? 0 : 1;
}

nlohmann::ordered_json to_json(const report& r) {
  nlohmann::ordered_json struck = nlohmann::ordered_json::object();
  for (std::size_t k = 0; k < fault_kind_count; ++k)
    struck[std::string{to_string(static_cast<fault_kind>(k))}] = r.faults_struck[k];
  return {{"schema_version", report_schema_version},
          {"trace", r.trace_source},
          {"backend", r.backend},
          {"device", r.device},
          {"seed", r.seed},
          {"requests", r.requests},
          {"block_refs", r.block_refs},
          {"oracle_hit_blocks", r.oracle_hit_blocks},
          {"fetched_blocks", r.fetched_blocks},
          {"published_blocks", r.published_blocks},
          {"local_hit_blocks", r.local_hit_blocks},
          {"operations", r.operations},
          {"outcomes",
           {{"delivered", r.outcomes.delivered},
            {"partial", r.outcomes.partial},
            {"miss", r.outcomes.miss},
            {"failed", r.outcomes.failed},
            {"cancelled", r.outcomes.cancelled},
            {"timeout", r.outcomes.timeout},
            {"rejected", r.outcomes.rejected}}},
          {"outcome_digest", r.outcome_digest},
          {"aborted", r.aborted},
          {"not_run", r.not_run},
          {"not_leased", r.not_leased},
          {"faults_struck", struck},
          {"faults_missed", r.missed_faults()},
          {"wrong_blocks", r.wrong_blocks},
          {"exposure_bytes", r.exposure_bytes},
          {"retained_operations", r.retained_operations},
          {"slots",
           {{"total", r.slots.total},
            {"free", r.slots.free},
            {"lent", r.slots.lent},
            {"awaiting_proof", r.slots.awaiting_proof},
            {"quarantined", r.slots.quarantined}}},
          {"slots_conserved", r.slots_conserved},
          {"operations_open", r.operations_open},
          {"fatal", r.fatal},
          {"fatal_reason", r.fatal_reason},
          {"stopped", r.stopped},
          {"problems", r.problems},
          {"seconds", r.seconds},
          {"operations_per_second", r.seconds > 0 ? static_cast<double>(r.operations) / r.seconds : 0},
          {"bytes_fetched", r.bytes_fetched},
          {"bytes_published", r.bytes_published},
          {"latency",
           {{"submit_to_outcome", to_json(r.submit_to_outcome)},
            {"outcome_to_proof", to_json(r.outcome_to_proof)},
            {"proof_to_released", to_json(r.proof_to_released)}}},
          {"exit_status", r.exit_status()}};
}

void print(const report& r, std::ostream& out) {
  const auto line = [&out](const char* what, const std::string& value) {
    fmt::print(out, "  {:<18} {}\n", what, value);
  };
  const auto latency = [](const quantiles& q) {
    return fmt::format("p50 {:.0f} us, p99 {:.0f} us", q.p50_us, q.p99_us);
  };
  constexpr double mib = 1024.0 * 1024.0;
  fmt::print(out, "replay of {} over {}\n", r.trace_source, r.backend);
  line("device", r.device);
  line("requests",
       fmt::format("{}{}{}", r.requests, r.aborted > 0 ? fmt::format(", {} aborted", r.aborted) : "",
                   r.not_run > 0 ? fmt::format(", {} not run", r.not_run) : ""));
  line("blocks", fmt::format("{} referenced; {} fetched (a cache that never forgets: {}), {} reused locally, "
                             "{} published",
                             r.block_refs, r.fetched_blocks, r.oracle_hit_blocks, r.local_hit_blocks,
                             r.published_blocks));
  line("outcomes",
       fmt::format("{} delivered, {} partial, {} miss, {} failed, {} cancelled, {} timeout, {} rejected",
                   r.outcomes.delivered, r.outcomes.partial, r.outcomes.miss, r.outcomes.failed,
                   r.outcomes.cancelled, r.outcomes.timeout, r.outcomes.rejected));
  std::string struck;
  for (std::size_t k = 0; k < fault_kind_count; ++k)
    if (r.faults_asked[k])
      struck += fmt::format("{}{} {}", struck.empty() ? "" : ", ", to_string(static_cast<fault_kind>(k)),
                            r.faults_struck[k]);
  line("faults struck", struck.empty() ? "none asked for" : struck);
  line("slots", fmt::format("{} in all: {} free, {} lent, {} awaiting proof, {} quarantined", r.slots.total,
                            r.slots.free, r.slots.lent, r.slots.awaiting_proof, r.slots.quarantined));
  line("safety",
       fmt::format("{} wrong blocks, {} exposure bytes, slots {}, {} operations open", r.wrong_blocks,
                   r.exposure_bytes, r.slots_conserved ? "conserved" : "NOT CONSERVED", r.operations_open));
  line("moved", fmt::format("{:.1f} MiB in, {:.1f} MiB out", static_cast<double>(r.bytes_fetched) / mib,
                            static_cast<double>(r.bytes_published) / mib));
  line("time", fmt::format("{:.2f} s, {} operations, {:.0f} a second", r.seconds, r.operations,
                           r.seconds > 0 ? static_cast<double>(r.operations) / r.seconds : 0));
  line("submit → outcome", latency(r.submit_to_outcome));
  line("outcome → proof", latency(r.outcome_to_proof));
  line("proof → released", latency(r.proof_to_released));
  if (r.fatal) line("FATAL", r.fatal_reason);
  for (const auto& kind : r.missed_faults()) line("NOT STRUCK", kind + " was asked for and struck no time");
  for (const auto& p : r.problems) line("PROBLEM", p);
}

void latency_log::add(const operation_times& t) {
  const std::lock_guard lock{mutex_};
  submit_.push_back(us(t.submitted, t.outcome));
  // The proof may have been there first.
  proof_.push_back(std::max(0.0, us(t.outcome, t.access_ended)));
  release_.push_back(us(std::max(t.access_ended, t.outcome), t.released));
}

void latency_log::fill(report& r) {
  const std::lock_guard lock{mutex_};
  r.submit_to_outcome = quantiles_of(submit_);
  r.outcome_to_proof = quantiles_of(proof_);
  r.proof_to_released = quantiles_of(release_);
}

}  // namespace kvlease::replay

#include "tools/replay/replay.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <chrono>
#include <thread>

#include "tools/replay/driver.hpp"
#include "tools/replay/instance.hpp"
#include "tools/replay/oracle.hpp"

namespace kvlease::replay {

namespace {

using steady = std::chrono::steady_clock;

/// Takes requests in the trace's order, one a thread at a time; request i runs on instance i mod n.
void run_all(run_context& run, std::vector<std::unique_ptr<instance>>& instances, std::ostream* progress) {
  const auto total = run.plan.work.requests.size();
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> running{run.plan.concurrency};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < run.plan.concurrency; ++t)
    threads.emplace_back([&] {
      for (auto i = next++; i < total; i = next++) {
        run_request(run, *instances[i % instances.size()], i);
        // A publish that failed early may still land, and whether the next request finds it must not hang on
        // the machine's timing: one at a time means such operations too.
        while (run.plan.concurrency == 1 && run.unsuccessful > 0 && !run.stop)
          std::this_thread::sleep_for(std::chrono::microseconds{50});
      }
      --running;
    });
  while (progress != nullptr && running > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds{100});
    fmt::print(*progress, "\rreplay: {} of {} requests", run.done.load(), total);
    progress->flush();
  }
  if (progress != nullptr) fmt::print(*progress, "\r{:60}\r", "");
  for (auto& t : threads) t.join();
}

/// Operations outlive their requests: waits until each is released or retained for good, which the clocks
/// decide within two timeouts.
void drain(run_context& run) {
  const auto give_up = steady::now() + 3 * run.plan.timeout.value() + std::chrono::seconds{5};
  while (run.open > 0 && steady::now() < give_up) std::this_thread::sleep_for(std::chrono::microseconds{200});
}

void add_instance(report& r, instance& i) {
  const auto slots = i.lender->slots().get();
  if (slots) {
    r.slots += *slots;
    r.slots_conserved = r.slots_conserved && slots->conserved();
  } else {
    r.slots_conserved = false;
    r.problems.push_back("slots: " + to_string(slots.error()));
  }
  const auto exposure = i.lender->check_exposure().get();
  if (exposure)
    r.exposure_bytes += *exposure;
  else
    r.problems.push_back("exposure: " + to_string(exposure.error()));
  const auto struck = i.faults->struck();
  for (std::size_t k = 0; k < fault_kind_count; ++k) r.faults_struck[k] += struck[k];
  if (const auto f = i.lender->fatal()) {
    r.fatal = true;
    r.fatal_reason = fmt::format("{} of request {}: {}", to_string(f->way), to_string(f->request), f->reason);
  }
}

std::string digest_of(const std::vector<std::string>& outcomes) {
  sha256_stream h;
  for (const auto& line : outcomes) {
    h.update(std::as_bytes(std::span{line}));
    h.update(std::as_bytes(std::span{"\n", 1}));
  }
  return to_hex(h.finish());
}

void fill(report& r, run_context& run) {
  const auto& plan = run.plan;
  r.trace_source = plan.work.source;
  r.backend = plan.backend;
  r.requests = plan.work.requests.size();
  const auto oracle = count_hits(plan.work);
  r.block_refs = oracle.block_refs;
  r.oracle_hit_blocks = oracle.hit_blocks;
  r.fetched_blocks = run.fetched;
  r.published_blocks = run.published;
  r.local_hit_blocks = run.local_hits;
  r.aborted = run.aborted;
  r.outcomes = run.outcomes();
  r.not_run = run.not_run;
  r.not_leased = run.not_leased;
  r.wrong_blocks = run.wrong;
  r.retained_operations = run.retained;
  r.operations = run.operations;
  r.operations_open = run.open + run.kept;
  r.bytes_fetched = r.fetched_blocks * plan.block_bytes;
  r.bytes_published = r.published_blocks * plan.block_bytes;
  r.seed = plan.seed;
  r.outcome_digest = digest_of(run.outcomes_of);
  for (std::size_t k = 0; k < fault_kind_count; ++k) r.faults_asked[k] = plan.faults.probability[k] > 0;
  run.latencies.fill(r);
}

}  // namespace

result<report> run_replay(const replay_plan& plan, std::ostream* progress) {
  run_context run{plan};
  std::vector<std::unique_ptr<instance>> instances;
  for (std::size_t n = 0; n < plan.instances; ++n) {
    auto made = make_instance(plan, n, [&run](const fatal_record&) { run.stop = true; });
    if (!made) return tl::unexpected{made.error()};
    instances.push_back(*std::move(made));
  }
  report r;
  const auto began = steady::now();
  run_all(run, instances, progress);
  drain(run);
  r.seconds = std::chrono::duration<double>(steady::now() - began).count();

  if (plan.before_stop && !r.fatal) plan.before_stop(instances.front()->faults->describe());

  r.device = instances.front()->device;
  for (auto& i : instances) add_instance(r, *i);
  fill(r, run);
  for (auto& p : run.problems()) r.problems.push_back(std::move(p));
  run.timer.close();
  if (!r.fatal)
    for (auto& i : instances) {
      const auto stopped = i->lender->stop(std::chrono::seconds{5});
      r.stopped = r.stopped && stopped.stopped;
      for (const auto& line : stopped.retained) r.problems.push_back("not stopped: " + line);
    }
  return r;
}

}  // namespace kvlease::replay

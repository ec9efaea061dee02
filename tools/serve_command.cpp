#include "tools/serve_command.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "tools/serve/host_service.hpp"

namespace kvlease {

namespace {

constexpr int fatal_status = 70, interrupted_status = 130;

/// Straight to the descriptor: what follows may end the process.
void say(const std::string& line) {
  const auto text = "kvlease serve: " + line + "\n";
  [[maybe_unused]] const auto n = ::write(STDERR_FILENO, text.data(), text.size());
}

/// The signals that end the service. Blocked in every thread; taken in one.
sigset_t ending_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, s);
  return set;
}

/// 4.8: reports, then ends the process without destructors: memory that is not proven free stays mapped until
/// the process is gone, and nothing of it is reused.
void on_fatal(bool stay, std::size_t instance, const fatal_record& f) {
  say(fmt::format("fatal: runtime {}: {}: {}; its memory stays mapped{}", instance, subject_of(f), f.reason,
                  stay ? "" : "; ending with status 70"));
  if (!stay) ::_exit(fatal_status);
}

void report(const serve::drain_report& r) {
  for (std::size_t n = 0; n < r.runtimes.size(); ++n) {
    const auto& one = r.runtimes[n];
    for (const auto& line : one.retained) say(fmt::format("retained: runtime {}: {}", n, line));
    say(fmt::format("runtime {} {} in {:.1f} s: {} retained, {} wrong blocks, {} exposure bytes{}{}", n,
                    one.stopped ? "drained" : "not drained", one.seconds, one.retained.size(),
                    one.wrong_blocks, one.exposure_bytes,
                    one.faults.empty() ? "" : "; faults struck: ", one.faults));
  }
  if (r.requests_open > 0) say(fmt::format("{} requests did not end", r.requests_open));
}

/// Drains on a thread of its own, so that a second SIGINT is heard meanwhile.
int serve_until_told(serve::host_service& service, const sigset_t& signals) {
  int signal = 0;
  ::sigwait(&signals, &signal);
  say(fmt::format("{}: draining{}", ::strsignal(signal), signal == SIGINT ? "; once more ends at once" : ""));
  int interrupts = signal == SIGINT ? 1 : 0;
  std::atomic<bool> done{false};
  serve::drain_report ended;
  std::thread drain{[&] {
    ended = service.drain();
    done = true;
  }};
  while (!done) {
    const timespec slice{0, 50'000'000};
    if (::sigtimedwait(&signals, nullptr, &slice) == SIGINT && ++interrupts == 2) {
      say("ending at once; what is not proven free is left to the end of the process");
      ::_exit(interrupted_status);
    }
  }
  drain.join();
  report(ended);
  if (ended.requests_open > 0) ::_exit(1);  // their threads are stuck
  return ended.good() ? 0 : 1;
}

}  // namespace

void add_serve(CLI::App& app, serve::serve_options& o) {
  auto* sub =
      app.add_subcommand("serve", "A host service that embeds the runtime: requests over HTTP, inspection");
  sub->add_option("--socket", o.socket,
                  "Unix socket, mode 0600 (default: $KVLEASE_SOCKET, else kvlease.sock in "
                  "$XDG_RUNTIME_DIR, else /tmp/kvlease-UID.sock)");
  sub->add_option("--tcp", o.tcp, "Also on loopback TCP: 127.0.0.1:PORT, [::1]:PORT or localhost:PORT");
  sub->add_option("--backend", o.backend, "Provider URI")->capture_default_str();
  sub->add_option("--device", o.device, "Memory and copies of the pages: host, cuda or cuda:N")
      ->capture_default_str();
  sub->add_option("--instances", o.instances, "Managers with a runtime each, that share the store")
      ->capture_default_str();
  sub->add_option("--tokens-per-block", o.tokens_per_block, "Tokens of a block")->capture_default_str();
  sub->add_option("--block-bytes", o.block_bytes, "Bytes of a block's page and slot")->capture_default_str();
  sub->add_option("--pool-blocks", o.pool_blocks, "Device pages an instance")->capture_default_str();
  sub->add_option("--staging-slots", o.staging_slots, "Staging slots an instance")->capture_default_str();
  sub->add_option("--store-bytes", o.store_bytes, "Bound of the store memory:")->capture_default_str();
  sub->add_option("--concurrency", o.concurrency, "Requests that run at once")->capture_default_str();
  sub->add_option("--queued", o.queued, "Requests that wait; more are refused")->capture_default_str();
  sub->add_option("--timeout", o.timeout, "Deadline of a transfer, and the grace after it")
      ->capture_default_str();
  sub->add_option("--drain", o.drain, "At the end: for running requests, then for evidence")
      ->capture_default_str();
  sub->add_option("--budget", o.budget,
                  "How long memory may be held beyond its outcome before health says so")
      ->capture_default_str();
  sub->add_option("--local-reuse", o.local_reuse, "Reuse blocks of the instance's own pages: on or off")
      ->capture_default_str();
  sub->add_flag("--retry-proofs,!--no-retry-proofs", o.retry_proofs,
                "Retry a disputed proof once, after a quarter of the timeout");
  sub->add_option("--faults", o.faults,
                  "KIND=P,... of miss, partial, fail, reject, escape, hang, late, unproven, stubborn");
  sub->add_option("--late", o.late, "Bound of the delays of late and stubborn")->capture_default_str();
  sub->add_option("--seed", o.seed, "Of the faults")->capture_default_str();
  sub->add_flag("--drills", o.drills, "Requests may make states last, to see them in the inspection");
  sub->add_flag("--stay", o.stay, "Stay after fatal, to be looked at, in place of ending with status 70");
  sub->add_flag("--quiet", o.quiet, "Say nothing at the start");
}

int run_serve_command(const serve::serve_options& o, std::ostream& out, std::ostream& err) {
  const auto plan = serve::plan_serve(o);
  if (!plan) {
    err << "kvlease serve: " << plan.error().text << "\n";
    return 2;
  }
  std::signal(SIGPIPE, SIG_IGN);  // who read our stderr may have gone: the drain goes on
  // Before any thread is made: each takes over what is blocked.
  const auto signals = ending_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  auto service = serve::host_service::start(
      *plan, [stay = o.stay](std::size_t n, const fatal_record& f) { on_fatal(stay, n, f); });
  if (!service) {
    err << "kvlease serve: " << service.error().text << "\n";
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return 3;
  }
  if (!o.quiet) {
    out << fmt::format("kvlease serve: {} over {} on {}, at {}",
                       plan->instances.instances == 1 ? "one runtime"
                                                      : fmt::format("{} runtimes", plan->instances.instances),
                       plan->instances.backend, (*service)->device(), plan->socket);
    if (plan->tcp) out << fmt::format(" and http://127.0.0.1:{}/", (*service)->tcp_port());
    out << std::endl;
  }
  const int status = serve_until_told(**service, signals);
  service->reset();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return status;
}

}  // namespace kvlease

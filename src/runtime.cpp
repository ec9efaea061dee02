#include "src/include/kvlease/runtime.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/errors.hpp"
#include "actors/inspection_port.hpp"
#include "actors/spawn.hpp"
#include "src/containment.hpp"
#include "src/journal_file.hpp"
#include "src/thread_pool.hpp"

namespace kvlease {

namespace {

// ---- the relay: the façade's one actor, between plain calls and messages

struct relay_state;
/// A façade call, run on the relay.
struct relay_call {
  std::shared_ptr<std::function<void(relay_state&)>> run;
};
using relay_actor =
    iface<void(lease_ready), void(lease_failed), void(operation_outcome), void(operation_released),
          void(operation_retained), void(fatal_record), void(relay_call), void(quit_now)>;

/// What the arbiter said of an operation that this relay does not know yet.
struct early_word {
  std::function<void(const operation_events&)> pass_on;
  bool last = false;
};

struct relay_state {
  static inline const char* name = "kvlease.relay";
  relay_actor::pointer self;
  std::shared_ptr<const wiring> actors;
  std::unordered_map<lease_id, lease_events> leases;
  std::unordered_map<operation_id, operation_events> operations;
  /// The arbiter may speak of an operation before the adapter has answered the submit: there is no order
  /// across senders. Its messages wait here until the answer is in.
  std::unordered_map<operation_id, std::vector<early_word>> early;
  std::size_t submitting = 0;
};

using relay_pointer = relay_actor::stateful_pointer<relay_state>;

template <class Message>
void on_operation(relay_state& s, const Message& m,
                  std::function<void(const Message&)> operation_events::*slot, bool last) {
  const auto it = s.operations.find(m.operation);
  if (it == s.operations.end()) {
    if (s.submitting > 0)
      s.early[m.operation].push_back({[m, slot](const operation_events& e) {
                                        if (e.*slot) (e.*slot)(m);
                                      },
                                      last});
    return;
  }
  if (it->second.*slot) (it->second.*slot)(m);
  if (last) s.operations.erase(it);
}

relay_actor::behavior_type relay(relay_pointer self, std::shared_ptr<const wiring> actors) {
  self->state.self = self;
  self->state.actors = std::move(actors);
  return {
      [self](const lease_ready& m) {
        const auto it = self->state.leases.find(m.lease);
        if (it == self->state.leases.end()) return;
        const auto events = std::move(it->second);
        self->state.leases.erase(it);
        if (events.ready) events.ready(m.lease, m.view);
      },
      [self](const lease_failed& m) {
        const auto it = self->state.leases.find(m.lease);
        if (it == self->state.leases.end()) return;
        const auto events = std::move(it->second);
        self->state.leases.erase(it);
        if (events.failed) events.failed(m.lease, m.why);
      },
      [self](const operation_outcome& m) { on_operation(self->state, m, &operation_events::outcome, false); },
      [self](const operation_released& m) {
        on_operation(self->state, m, &operation_events::released, true);
      },
      [self](const operation_retained& m) {
        on_operation(self->state, m, &operation_events::retained, m.final);
      },
      [](const fatal_record&) {},
      [self](const relay_call& c) { (*c.run)(self->state); },
      [self](const quit_now&) { self->quit(); },
  };
}

std::uint32_t next_incarnation() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

struct system_config : caf::actor_system_config {
  explicit system_config(std::size_t threads) { configure_scheduler(*this, threads); }
};

void report_fatal(const fatal_record& f) {
  std::fprintf(stderr, "kvlease: fatal: %s: %s; its memory stays mapped\n", subject_of(f).c_str(),
               f.reason.c_str());
}

}  // namespace

}  // namespace kvlease

KVLEASE_LOCAL_MESSAGE(kvlease::relay_call);

namespace kvlease {

/// Of the shutdown that the destructor makes: two seconds for evidence, then for the answer on top of them,
/// for the actors' end, and for each pool's running jobs.
constexpr std::chrono::seconds stop_bound{2};
constexpr std::chrono::milliseconds answer_slack{500}, end_bound{500}, pool_patience{200};

/// Written by the arbiter's thread; outlives the runtime where actors are left behind.
struct fatal_latch {
  std::mutex mutex;
  std::optional<fatal_record> record;
};

/// A host callback, manager port or device that is stuck in a call keeps its actor from ending, and the
/// actor system with it: it is left behind (7.8).
void leave_behind(std::unique_ptr<system_config> config, std::unique_ptr<caf::actor_system> system) {
  static std::mutex mutex;
  static auto* graveyard =
      new std::vector<std::pair<std::unique_ptr<system_config>, std::unique_ptr<caf::actor_system>>>;
  const std::lock_guard lock{mutex};
  graveyard->emplace_back(std::move(config), std::move(system));
}

struct runtime::body {
  runtime_options options;
  std::shared_ptr<thread_pool> submitters, provers, helpers;
  std::shared_ptr<fatal_latch> fatal = std::make_shared<fatal_latch>();
  std::shared_ptr<containment> contain;
  std::unique_ptr<system_config> config;
  std::unique_ptr<caf::actor_system> system;
  runtime_parts parts;
  relay_actor relay_handle;
  std::shared_ptr<closable_inspection> port;
  std::unique_ptr<journal_file_writer> on_file;
  bool stopped = false;

  ~body() {
    if (port != nullptr) port->close();
    if (parts.actors != nullptr) {
      const auto quit = [](const auto&... actors) { (caf::anon_send(actors, quit_now{}), ...); };
      const auto& a = *parts.actors;
      quit(a.supervisor, relay_handle);
      // A supervisor that is down passes nothing on.
      if (!actors_end())
        quit(a.manager, a.lender, a.adapter, a.backend, a.proof_collector, a.deadline_arbiter, a.cuda,
             a.inspector);
    }
    const auto roots = parts.roots;
    parts = {};
    relay_handle = nullptr;
    const bool stuck = system != nullptr && !actors_end();
    if (stuck) {
      std::fprintf(stderr, "kvlease: %zu actors are stuck in a call and left behind\n",
                   system->registry().running());
      leave_behind(std::move(config), std::move(system));
    }
    system.reset();
    config.reset();
    const auto left = submitters->close() + provers->close() + helpers->close();
    if (roots != nullptr && (!stopped || stuck || left > 0)) {
      const auto rest = roots->rest();
      if (!rest.empty())
        std::fprintf(stderr, "kvlease: %zu roots are left mapped until the process ends, first: %s\n",
                     rest.size(), rest.front().c_str());
      leave_mapped(roots);
    }
  }

  bool actors_end() const {
    const auto until = std::chrono::steady_clock::now() + end_bound;
    while (system->registry().running() > 0) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return true;
  }

  stop_report stop(std::chrono::nanoseconds bound, std::chrono::nanoseconds slack) {
    if (stopped) return {true, {}};
    auto promise = std::make_shared<std::promise<result<stop_report>>>();
    auto future = promise->get_future();
    const auto within = bound + slack;
    on_relay([bound, within, promise](relay_state& r) {
      r.self->request(r.actors->supervisor, within, stop_runtime{bound})
          .then([promise](stop_report& report) { promise->set_value(std::move(report)); },
                [promise](caf::error& e) { promise->set_value(tl::unexpected{from_caf(e)}); });
    });
    // The relay itself may be stuck, in a host's callback.
    if (future.wait_for(within + answer_slack) != std::future_status::ready)
      return {false, {"the runtime's relay does not answer: a callback blocks it"}};
    const auto report = future.get();
    if (!report) return {false, {to_string(report.error())}};
    stopped = report->stopped;
    if (stopped) parts.roots->free_memory();
    return *report;
  }

  /// Runs `call(relay)` on the relay.
  void on_relay(std::function<void(relay_state&)> call) {
    caf::anon_send(relay_handle,
                   relay_call{std::make_shared<std::function<void(relay_state&)>>(std::move(call))});
  }

  /// Asks an actor and puts its answer into a future; `convert` makes the façade's value of it, and sees the
  /// relay, before any later message does.
  template <class Answer, class Value, class Whom, class Question, class Convert>
  answer_of<Value> ask(Whom whom, Question question, Convert convert) {
    auto promise = std::make_shared<std::promise<result<Value>>>();
    auto future = promise->get_future();
    on_relay([this_within = options.answer_within, whom, question = std::move(question), promise,
              convert = std::move(convert)](relay_state& r) {
      r.self->request(whom(*r.actors), this_within, question)
          .then([&r, promise, convert](Answer& a) { promise->set_value(convert(r, std::move(a))); },
                [promise](caf::error& e) { promise->set_value(tl::unexpected{from_caf(e)}); });
    });
    return future;
  }

  template <class Value, class Whom, class Question>
  answer_of<Value> ask_plain(Whom whom, Question question) {
    return ask<Value, Value>(whom, std::move(question),
                             [](relay_state&, Value v) { return result<Value>{std::move(v)}; });
  }
  template <class Whom, class Question>
  answer_of<void> ask_done(Whom whom, Question question) {
    return ask<done, void>(whom, std::move(question), [](relay_state&, done) { return result<void>{}; });
  }
};

namespace {
constexpr auto the_manager = [](const wiring& w) { return w.manager; };
constexpr auto the_lender = [](const wiring& w) { return w.lender; };
constexpr auto the_adapter = [](const wiring& w) { return w.adapter; };
}  // namespace

result<std::unique_ptr<runtime>> runtime::start(runtime_options options) {
  if (options.device == nullptr) return fail(errc::invalid, "runtime_options.device is missing");
  if (options.manager == nullptr) return fail(errc::invalid, "runtime_options.manager is missing");
  if (!options.open_provider) return fail(errc::invalid, "runtime_options.open_provider is missing");
  for (const auto& [name, value] : {std::pair{"max_operations", options.max_operations},
                                    {"max_waiting_leases", options.max_waiting_leases},
                                    {"max_queued_submissions", options.max_queued_submissions},
                                    {"scheduler_threads", options.scheduler_threads},
                                    {"submit_workers", options.submit_workers},
                                    {"proof_workers", options.proof_workers},
                                    {"provider_workers", options.provider_workers}})
    if (value < 1)
      return fail(errc::invalid, fmt::format("runtime_options.{} is 0, must be at least 1", name));
  if (!(options.climb_after > 0 && options.climb_after < 1))
    return fail(errc::invalid, fmt::format("runtime_options.climb_after is {}, must be above 0 and below 1",
                                           options.climb_after));
  const auto grace = transfer_timeout::make(options.shutdown_grace);
  if (!grace) return fail(errc::invalid, "runtime_options.shutdown_grace: " + grace.error().text);

  const auto began = std::chrono::steady_clock::now();
  auto b = std::make_unique<body>();
  b->submitters = std::make_shared<thread_pool>("kvl-submit", options.submit_workers, pool_patience);
  b->provers = std::make_shared<thread_pool>("kvl-proof", options.proof_workers, pool_patience);
  b->helpers = std::make_shared<thread_pool>("kvl-provider", options.provider_workers, pool_patience);
  b->contain = std::make_shared<containment>(options.on_fatal ? options.on_fatal : report_fatal);
  b->config = std::make_unique<system_config>(options.scheduler_threads);
  b->system = std::make_unique<caf::actor_system>(*b->config);

  runtime_setup setup{.runtime = {next_incarnation()},
                      .profile = options.profile,
                      .device = options.device,
                      .manager = options.manager,
                      .manager_blocks = options.manager_blocks,
                      .staging_slots = options.staging_slots,
                      .scope = options.scope,
                      .open_provider = options.open_provider,
                      .submit_workers = b->submitters,
                      .proof_workers = b->provers,
                      .provider_workers = b->helpers,
                      .registration_timeout = *grace,
                      .contain = [latch = b->fatal, contain = b->contain](const fatal_record& f) {
                        {
                          const std::lock_guard lock{latch->mutex};
                          latch->record = f;
                        }
                        contain->trigger(f);
                      }};
  setup.staging_memory = options.staging_memory;
  setup.page_access_bytes = options.page_access_bytes;
  setup.ladder = {options.proof_rungs, options.climb_after};
  setup.cuda_spin = options.spin;
  setup.keep_awake = options.keep_awake;
  if (options.journal)
    setup.log =
        std::make_shared<journal>(setup.runtime, options.journal_records, std::chrono::steady_clock::now());
  if (options.journal && !options.journal_file.empty()) {
    auto file = journal_file_writer::open(setup.log, options.journal_file);
    if (!file) {
      b->stopped = true;
      return tl::unexpected{file.error()};
    }
    b->on_file = *std::move(file);
  }
  setup.metered = options.meters;
  setup.paint = options.paint_slots ? paint_mode::full : paint_mode::off;
  setup.max_operations = options.max_operations;
  setup.max_waiting_leases = options.max_waiting_leases;
  setup.max_queued_submissions = options.max_queued_submissions;
  b->options = std::move(options);
  auto parts = spawn_runtime(*b->system, std::move(setup));
  if (!parts) {
    b->stopped = true;
    return tl::unexpected{parts.error()};
  }
  b->parts = *std::move(parts);
  b->relay_handle = b->system->spawn(relay, b->parts.actors);
  b->port = make_inspection(b->parts.actors->inspector,
                            {.runtime = b->parts.actors->runtime,
                             .watch = b->parts.watch,
                             .started = began,
                             .unproven_budget = b->options.unproven_budget,
                             .exposure_bytes =
                                 [touches = b->parts.touches, paint = b->parts.paint_exposure] {
                                   return touches->exposure_bytes() + paint->load();
                                 },
                             .workers =
                                 [submitters = b->submitters, provers = b->provers] {
                                   const auto s = submitters->look(), p = provers->look();
                                   return worker_figures{s.threads + p.threads, s.busy + p.busy};
                                 },
                             .now = {}});
  const auto started = b->ask_done(the_adapter, start_adapter{}).get();
  if (!started) return tl::unexpected{started.error()};
  return std::unique_ptr<runtime>{new runtime{std::move(b)}};
}

runtime::runtime(std::unique_ptr<body> b) : body_{std::move(b)} {}

runtime::~runtime() {
  if (!body_->stopped && !fatal()) body_->stop(stop_bound, answer_slack);
}

answer_of<request_info> runtime::admit(request_spec spec) {
  return body_->ask_plain<request_info>(the_manager,
                                        admit_request{std::make_shared<const request_spec>(std::move(spec))});
}

answer_of<request_info> runtime::describe(request_id request) {
  return body_->ask_plain<request_info>(the_manager, describe_request{request});
}

answer_of<request_info> runtime::grow(request_id request, std::int64_t end) {
  return body_->ask_plain<request_info>(the_manager, grow_request{request, end});
}

answer_of<request_info> runtime::commit(request_id request, std::int64_t end, event_handle written) {
  return body_->ask_plain<request_info>(the_manager, commit_request{request, end, written});
}

answer_of<void> runtime::free(request_id request) {
  return body_->ask_done(the_manager, free_request{request});
}

answer_of<void> runtime::write_pages(request_id request, token_range range,
                                     std::shared_ptr<std::vector<std::byte>> buffer) {
  return body_->ask_done(the_manager,
                         move_pages{request, range, copy_kind::host_to_device, std::move(buffer)});
}

answer_of<void> runtime::read_pages(request_id request, token_range range,
                                    std::shared_ptr<std::vector<std::byte>> buffer) {
  return body_->ask_done(the_manager,
                         move_pages{request, range, copy_kind::device_to_host, std::move(buffer)});
}

answer_of<lease_id> runtime::lend(direction way, request_id request, token_range range, lease_events events,
                                  std::optional<std::chrono::nanoseconds> wait_at_most) {
  return body_->ask<lease_id, lease_id>(
      the_lender, kvlease::lend{way, request, range, host_actor{body_->relay_handle}, wait_at_most},
      [events = std::move(events)](relay_state& r, lease_id lease) {
        r.leases.emplace(lease, events);
        return result<lease_id>{lease};
      });
}

answer_of<void> runtime::withdraw(lease_id lease) {
  return body_->ask<done, void>(the_lender, withdraw_lease{lease}, [lease](relay_state& r, done) {
    r.leases.erase(lease);
    return result<void>{};
  });
}

answer_of<std::optional<readiness>> runtime::ready_from(request_id request) {
  return body_->ask<readiness_answer, std::optional<readiness>>(
      the_lender, ask_readiness{request},
      [](relay_state&, readiness_answer a) { return result<std::optional<readiness>>{a.value}; });
}

answer_of<slot_counts> runtime::slots() { return body_->ask_plain<slot_counts>(the_lender, ask_slots{}); }

result<read_guard> runtime::guard(lease_id lease) { return body_->parts.roots->guard(lease); }

answer_of<operation_id> runtime::submit(direction way, lease_id lease, request_id request,
                                        transfer_timeout timeout, operation_events events,
                                        std::optional<route_id> along) {
  auto promise = std::make_shared<std::promise<result<operation_id>>>();
  auto future = promise->get_future();
  body_->on_relay([within = body_->options.answer_within, promise, events = std::move(events),
                   question = kvlease::submit{lease, way, request, timeout, host_actor{body_->relay_handle},
                                              std::nullopt, end_of_sequence::yes, along}](relay_state& r) {
    ++r.submitting;
    r.self->request(r.actors->adapter, within, question)
        .then(
            [&r, promise, events](operation_id op) {
              r.operations.emplace(op, events);
              promise->set_value(op);
              if (const auto it = r.early.find(op); it != r.early.end()) {
                for (const auto& word : it->second) {
                  word.pass_on(events);
                  if (word.last) r.operations.erase(op);
                }
                r.early.erase(it);
              }
              if (--r.submitting == 0) r.early.clear();
            },
            [&r, promise](caf::error& e) {
              promise->set_value(tl::unexpected{from_caf(e)});
              if (--r.submitting == 0) r.early.clear();
            });
  });
  return future;
}

answer_of<route_id> runtime::open_route(std::string hint) {
  return body_->ask_plain<route_id>([](const wiring& w) { return w.backend; },
                                    kvlease::open_route{std::move(hint)});
}

answer_of<void> runtime::close_route(route_id route) {
  return body_->ask_done([](const wiring& w) { return w.backend; }, kvlease::close_route{route});
}

answer_of<void> runtime::cancel(operation_id operation, cancelled_by who) {
  auto promise = std::make_shared<std::promise<result<void>>>();
  auto future = promise->get_future();
  body_->on_relay([within = body_->options.answer_within, operation, who, promise](relay_state& r) {
    r.self->request(r.actors->adapter, within, cancel_operation{operation, who})
        .then([promise](done) { promise->set_value({}); },
              [&r, within, operation, who, promise](caf::error& e) {
                const auto why = from_caf(e);
                if (why.code == errc::unknown) return promise->set_value(tl::unexpected{why});
                // The adapter can't propose it any more, so the arbiter does (architecture, flow step 5).
                r.self->request(r.actors->deadline_arbiter, within, cancel_directly{operation, who})
                    .then([promise](done) { promise->set_value({}); },
                          [promise](caf::error& e2) { promise->set_value(tl::unexpected{from_caf(e2)}); });
              });
  });
  return future;
}

answer_of<void> runtime::retry_proof(operation_id operation) {
  return body_->ask_done(the_adapter, kvlease::retry_proof{operation});
}

answer_of<snapshot> runtime::look() {
  return body_->ask_plain<snapshot>([](const wiring& w) { return w.inspector; }, take_snapshot{});
}

std::uint64_t runtime::exposure_bytes() const { return body_->parts.exposure_bytes(); }

answer_of<std::uint64_t> runtime::check_exposure() {
  return body_->ask<std::uint64_t, std::uint64_t>(
      the_lender, check_paint{}, [touches = body_->parts.touches](relay_state&, std::uint64_t paint) {
        return result<std::uint64_t>{paint + touches->exposure_bytes()};
      });
}

std::optional<fatal_record> runtime::fatal() const {
  const std::lock_guard lock{body_->fatal->mutex};
  return body_->fatal->record;
}

std::shared_ptr<inspection_port> runtime::inspection() const { return body_->port; }

stop_report runtime::stop(std::chrono::nanoseconds bound) {
  return body_->stop(bound, body_->options.answer_within);
}

}  // namespace kvlease

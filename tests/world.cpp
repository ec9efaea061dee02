#include "tests/world.hpp"

#include <cxxabi.h>
#include <doctest/doctest.h>

#include <caf/event_based_actor.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scheduled_actor.hpp>

#include "actors/errors.hpp"
#include "src/guard.hpp"
#include "src/mix.hpp"
#include "tests/inject.hpp"

namespace kvlease::test {

struct job_message {
  std::shared_ptr<std::function<void()>> run;
};

}  // namespace kvlease::test

KVLEASE_LOCAL_MESSAGE(kvlease::test::job_message);

namespace kvlease::test {

class scheduled_executor final : public executor {
 public:
  explicit scheduled_executor(caf::actor_system& system)
      : system_{system}, worker_{system.spawn([](caf::event_based_actor* self) -> caf::behavior {
          self->set_exception_handler(
              [](caf::scheduled_actor*, std::exception_ptr&) { return caf::error{}; });
          return {[](const job_message& job) { (*job.run)(); }};
        })} {}

  void post(std::function<void()> job) override {
    if (refuse > 0) {
      --refuse;
      throw std::runtime_error{"no thread"};
    }
    if (hold) return held.push_back(std::move(job));
    caf::anon_send(worker_, job_message{std::make_shared<std::function<void()>>(std::move(job))});
  }
  void post_after(std::chrono::nanoseconds delay, std::function<void()> job) override {
    const auto message = job_message{std::make_shared<std::function<void()>>(std::move(job))};
    system_.spawn([delay, message, worker = worker_](caf::event_based_actor* self) {
      self->delayed_send(worker, delay, message);
    });
  }
  time_point now() const override { return system_.clock().now(); }
  void close() {
    caf::anon_send_exit(worker_, caf::exit_reason::user_shutdown);
    worker_ = nullptr;
    held.clear();
  }

  bool hold = false;
  int refuse = 0;  ///< posts to come that throw
  std::deque<std::function<void()>> held;

 private:
  caf::actor_system& system_;
  caf::actor worker_;
};

namespace {

struct recorder_state {
  static inline const char* name = "host";
};

host_actor::behavior_type recorder(host_actor::stateful_pointer<recorder_state>, world::inside* in) {
  return {
      [in](const lease_ready& m) { in->leases[m.lease].view = m.view; },
      [in](const lease_failed& m) { in->leases[m.lease].failure = m.why; },
      [in](const operation_outcome& m) {
        auto& h = in->operations[m.operation];
        h.events.push_back("outcome " + to_string(m.value));
        if (h.outcomes++ == 0) h.value = m.value;
      },
      [in](const operation_released& m) {
        auto& h = in->operations[m.operation];
        h.events.push_back("released");
        ++h.releases;
        h.times = m.times;
      },
      [in](const operation_retained& m) {
        auto& h = in->operations[m.operation];
        h.events.push_back((m.final ? "retained for good: " : "retained: ") + m.reason);
        ++h.retentions;
        h.final |= m.final;
      },
      [in](const fatal_record& f) { in->fatal = f; },
  };
}

result<void> done_only(result<done> r) {
  if (!r) return tl::unexpected{r.error()};
  return {};
}

template <class T>
T must(result<T> r) {
  INFO((r ? std::string{} : to_string(r.error())));
  REQUIRE(r.has_value());
  return *std::move(r);
}

std::string type_name(const std::type_info* t) {
  if (t == nullptr) return "?";
  int status = 0;
  char* name = abi::__cxa_demangle(t->name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : t->name();
  std::free(name);  // NOLINT: what __cxa_demangle asks for
  return text;
}

}  // namespace

void world::inside::settle() {
  if (!options.step_by_hand) run();
}

void world::inside::run() {
  do {
    while (scheduler->try_run_once()) {
    }
    // A GPU works in real time; the CUDA actor looks at it at the next of its virtual times.
  } while (bench && bench->settle() && to_next_timer(std::chrono::milliseconds{1}));
}

bool world::inside::to_next_timer(std::chrono::nanoseconds at_most) {
  const auto& timers = scheduler->clock().schedule();
  const auto now = scheduler->clock().now();
  if (timers.empty() || timers.begin()->first > now + at_most) return false;
  scheduler->advance_time(std::max(timers.begin()->first - now, std::chrono::steady_clock::duration{0}));
  return true;
}

world::world(world_options o) : inside_{std::make_unique<inside>()} {
  auto& in = *inside_;
  in.options = o;
  in.system = std::make_unique<caf::actor_system>(in.config);
  in.scheduler = &dynamic_cast<caf::scheduler::test_coordinator&>(in.system->scheduler());
  in.submit_workers = std::make_shared<scheduled_executor>(*in.system);
  in.proof_workers = std::make_shared<scheduled_executor>(*in.system);
  in.provider_workers = std::make_shared<scheduled_executor>(*in.system);
  bench = o.bench ? o.bench : device_bench::host(host_stream::inline_);
  in.bench = bench;
  if (o.hold_stream) bench->hold();
  device = bench->host_port();
  paged_manager_options m;
  m.tokens_per_block = o.tokens_per_block;
  m.pool_groups = {{o.page_bytes, o.pages}};
  m.layer_groups = {{.pool_group = 0, .layers = {0}}};
  m.reuse = o.reuse;
  auto made = must(paged_manager::make(
      m, {must(bench->port()->allocate_device(static_cast<std::size_t>(o.page_bytes * o.pages)))}));
  manager = made.get();
  if (!o.open_provider) provider = std::make_shared<scripted_provider>(o.provider);
  runtime_setup setup{.runtime = in.runtime,
                      .profile = supported_profile(o.backend_revision),
                      .device = bench->port(),
                      .manager = std::move(made),
                      .staging_slots = {o.slots},
                      .page_access_bytes = 4096,
                      .scope = "world",
                      .open_provider = o.open_provider ? o.open_provider : [this](const provider_context&)
                          -> std::shared_ptr<kvlease::provider> { return provider; },
                      .submit_workers = in.submit_workers,
                      .proof_workers = in.proof_workers,
                      .provider_workers = in.provider_workers,
                      .registration_timeout = must(transfer_timeout::make(o.timeout)),
                      .contain = [raw = inside_.get()](const fatal_record&) { ++raw->containments; }};
  setup.polling = {1ms, 100ms};
  setup.ladder.rungs = o.proof_rungs;
  setup.max_operations = o.max_operations;
  setup.max_waiting_leases = o.max_waiting_leases;
  setup.max_queued_submissions = o.max_queued_submissions;
  in.started = in.scheduler->clock().now();
  if (o.journal_records > 0) in.log = std::make_shared<journal>(in.runtime, o.journal_records, in.started);
  setup.log = in.log;
  in.parts = must(spawn_runtime(*in.system, std::move(setup)));
  roots = in.parts.roots;
  in.host = in.system->spawn(recorder, inside_.get());
  caf::anon_send(in.parts.actors->deadline_arbiter, watch_fatal{in.host});
  in.run();
  if (o.start) must(start().map([] { return 0; }));
}

world::~world() {
  auto& in = *inside_;
  caf::anon_send(in.parts.actors->supervisor, quit_now{});
  caf::anon_send_exit(in.host, caf::exit_reason::user_shutdown);
  for (const auto& e : {in.submit_workers, in.proof_workers, in.provider_workers}) {
    e->hold = false;
    e->close();
  }
  in.run();
  // A killed supervisor passes nothing on.
  const auto& a = *in.parts.actors;
  const auto end = [](const auto&... h) { (caf::anon_send_exit(h, caf::exit_reason::kill), ...); };
  end(a.manager, a.lender, a.adapter, a.backend, a.proof_collector, a.deadline_arbiter, a.cuda, a.supervisor,
      a.inspector);
  in.run();
  in.parts = {};
  in.host = nullptr;
  in.submit_workers = in.proof_workers = in.provider_workers = nullptr;
  in.system->await_actors_before_shutdown(false);
  in.system.reset();
  const auto seen = verdict();
  // Rule 8.3 lets memory go early on purpose.
  if (in.options.check_journal && seen.broken && !mutated(mutation::release_at_outcome))
    FAIL_CHECK("the journal breaks rule ", seen.broken->rule, " at record ", seen.broken->sequence, ": ",
               seen.broken->what);
}

// ---- time and scheduling

void world::run() { in().run(); }

time_point world::now() const { return inside_->scheduler->clock().now(); }

void world::advance(std::chrono::nanoseconds by) {
  auto& s = *in().scheduler;
  const auto end = now() + by;
  in().run();
  for (;;) {
    const auto& timers = s.clock().schedule();
    if (timers.empty() || timers.begin()->first > end) break;
    s.advance_time(std::max(timers.begin()->first - now(), std::chrono::steady_clock::duration{0}));
    in().run();
  }
  if (now() < end) s.advance_time(end - now());
  in().run();
}

std::size_t world::ready() const { return inside_->scheduler->jobs.size(); }

void world::step(std::size_t i) {
  auto& jobs = in().scheduler->jobs;
  if (jobs.empty()) return;
  const auto at = jobs.begin() + static_cast<std::ptrdiff_t>(i % jobs.size());
  std::rotate(jobs.begin(), at, at + 1);
  if (auto* actor = dynamic_cast<caf::scheduled_actor*>(jobs.front())) {
    std::string line = actor->name();
    if (const auto* m = actor->peek_at_next_mailbox_element(); m != nullptr && !m->content().empty())
      line += " <- " + type_name(m->content().type(0).second);
    in().trace.push_back(std::move(line));
  }
  in().scheduler->try_run_once();
}

void world::run_random(std::uint64_t seed, std::chrono::nanoseconds until) {
  auto& s = *in().scheduler;
  const auto end = now() + until;
  for (std::uint64_t n = 0;; ++n) {
    if (ready() > 0) {
      step(mix64(seed, n, 0) % ready());
      continue;
    }
    const auto& timers = s.clock().schedule();
    if (timers.empty() || timers.begin()->first > end) break;
    s.advance_time(std::max(timers.begin()->first - now(), std::chrono::steady_clock::duration{0}));
  }
  if (now() < end) s.advance_time(end - now());
}

const std::vector<std::string>& world::trace() const { return inside_->trace; }

// ---- the host

request_id world::admit(std::int64_t tokens, std::uint32_t first) {
  auto spec = std::make_shared<request_spec>();
  for (std::int64_t i = 0; i < tokens; ++i) spec->prompt.push_back(first + static_cast<std::uint32_t>(i));
  return must(ask<request_info>(in(), in().parts.actors->manager, admit_request{std::move(spec)})).request;
}

result<lease_id> world::lend(direction way, request_id request, token_range range,
                             std::optional<std::chrono::nanoseconds> wait_at_most) {
  return ask<lease_id>(in(), in().parts.actors->lender,
                       kvlease::lend{way, request, range, in().host, wait_at_most});
}

result<operation_id> world::submit(direction way, lease_id lease, request_id request,
                                   std::optional<owner_id> owner,
                                   std::optional<std::chrono::duration<double>> timeout) {
  const auto t = transfer_timeout::make(timeout.value_or(in().options.timeout));
  if (!t) return tl::unexpected{t.error()};
  return ask<operation_id>(in(), in().parts.actors->adapter,
                           kvlease::submit{lease, way, request, *t, in().host, owner, end_of_sequence::yes});
}

operation_id world::fetch(request_id request, std::int64_t blocks) {
  const auto lease = must(lend(direction::fetch, request, {0, blocks * in().options.tokens_per_block}));
  return must(submit(direction::fetch, lease, request));
}

void world::compute(request_id request, std::int64_t blocks, std::byte fill) {
  const auto end = blocks * in().options.tokens_per_block;
  must(grow(request, end));
  auto buffer = std::make_shared<std::vector<std::byte>>(
      static_cast<std::size_t>(blocks * in().options.page_bytes), fill);
  must(ask<done>(in(), in().parts.actors->manager,
                 move_pages{request, {0, end}, copy_kind::host_to_device, buffer}));
  must(commit(request, end));
}

result<request_info> world::commit(request_id request, std::int64_t end, event_handle written) {
  return ask<request_info>(in(), in().parts.actors->manager, commit_request{request, end, written});
}

operation_id world::publish(request_id request, std::int64_t blocks, std::byte fill) {
  compute(request, blocks, fill);
  const auto lease = must(lend(direction::publish, request, {0, blocks * in().options.tokens_per_block}));
  return must(submit(direction::publish, lease, request));
}

result<void> world::cancel(operation_id op, cancelled_by who) {
  return done_only(ask<done>(in(), in().parts.actors->adapter, cancel_operation{op, who}));
}
result<void> world::cancel_directly(operation_id op) {
  return done_only(ask<done>(in(), in().parts.actors->deadline_arbiter, kvlease::cancel_directly{op}));
}
result<void> world::retry_proof(operation_id op) {
  return done_only(ask<done>(in(), in().parts.actors->adapter, kvlease::retry_proof{op}));
}
result<void> world::free(request_id request) {
  return done_only(ask<done>(in(), in().parts.actors->manager, free_request{request}));
}
result<void> world::withdraw(lease_id lease) {
  return done_only(ask<done>(in(), in().parts.actors->lender, withdraw_lease{lease}));
}
result<owner_id> world::create_owner(request_id request, std::chrono::duration<double> timeout) {
  const auto t = transfer_timeout::make(timeout);
  if (!t) return tl::unexpected{t.error()};
  return ask<owner_id>(in(), in().parts.actors->deadline_arbiter,
                       kvlease::create_owner{request, direction::fetch, *t});
}
result<std::optional<readiness>> world::ready_from(request_id request) {
  auto got = ask<readiness_answer>(in(), in().parts.actors->lender, ask_readiness{request});
  if (!got) return tl::unexpected{got.error()};
  return got->value;
}
result<request_info> world::grow(request_id request, std::int64_t end) {
  return ask<request_info>(in(), in().parts.actors->manager, grow_request{request, end});
}
result<request_info> world::describe(request_id request) {
  return ask<request_info>(in(), in().parts.actors->manager, describe_request{request});
}
std::vector<std::byte> world::page(request_id request, std::int64_t block) {
  const auto tpb = in().options.tokens_per_block;
  const auto rows = must(manager->rows(request, {block * tpb, (block + 1) * tpb}));
  return bench->read(rows.front().address, rows.front().nbytes);
}
slot_counts world::slots() { return must(ask<slot_counts>(in(), in().parts.actors->lender, ask_slots{})); }
result<void> world::start() {
  return done_only(ask<done>(in(), in().parts.actors->adapter, start_adapter{}));
}
std::pair<bool, std::vector<std::string>> world::close_adapter() {
  const auto rest = must(ask<adapter_rest>(in(), in().parts.actors->adapter, kvlease::close_adapter{}));
  return {rest.closed, rest.waiting_for};
}
stop_report world::stop(std::chrono::nanoseconds bound) {
  auto got = std::make_shared<std::optional<stop_report>>();
  in().system->spawn([got, bound, whom = in().parts.actors->supervisor](caf::event_based_actor* self) {
    self->request(whom, caf::infinite, stop_runtime{bound})
        .then([got](stop_report& r) { got->emplace(std::move(r)); }, [](caf::error&) {});
  });
  in().run();
  if (!*got) advance(bound + 10ms);
  REQUIRE(got->has_value());
  return **got;
}
result<route_id> world::open_route(const std::string& hint) {
  return ask<route_id>(in(), in().parts.actors->backend, kvlease::open_route{hint});
}
result<void> world::close_route(route_id route) {
  return done_only(ask<done>(in(), in().parts.actors->backend, kvlease::close_route{route}));
}
result<void> world::close_admission() {
  return done_only(ask<done>(in(), in().parts.actors->deadline_arbiter, kvlease::close_admission{}));
}
result<void> world::stop_arbiter() {
  return done_only(ask<done>(in(), in().parts.actors->deadline_arbiter, kvlease::stop_arbiter{}));
}
result<snapshot> world::look() {
  auto got = std::make_shared<std::optional<result<snapshot>>>();
  in().system->spawn([got, whom = in().parts.actors->inspector](caf::event_based_actor* self) {
    self->request(whom, caf::infinite, take_snapshot{})
        .then([got](snapshot& s) { got->emplace(std::move(s)); },
              [got](caf::error& e) { got->emplace(tl::unexpected{from_caf(e)}); });
  });
  in().run();
  if (!*got) advance(200ms);  // actors that do not answer are given up by then
  return *got ? **got : result<snapshot>{fail(errc::timeout, "no snapshot")};
}
std::uint64_t world::paint_exposure() {
  return must(ask<std::uint64_t>(in(), in().parts.actors->lender, check_paint{}));
}
std::uint64_t world::touch_exposure() const { return inside_->parts.touches->exposure_bytes(); }
std::uint64_t world::exposure_bytes() { return paint_exposure() + touch_exposure(); }

const heard& world::of(operation_id op) { return in().operations[op]; }
const lease_heard& world::of(lease_id lease) { return in().leases[lease]; }

std::int64_t world::figure(actor_kind kind, const std::string& name) {
  const auto s = look();
  if (!s) return -1;
  for (const auto& entry : s->actors)
    if (entry.kind == kind && entry.answered)
      if (const auto it = entry.report.figures.find(name); it != entry.report.figures.end())
        return it->second;
  return -1;
}

const std::optional<fatal_record>& world::fatal() const { return inside_->fatal; }
int world::containments() const { return inside_->containments; }

// ---- the machinery

const std::vector<part>& world::parts() const { return inside_->parts.parts; }

void world::hold_workers(bool submit, bool proof) {
  const auto set = [](scheduled_executor& e, bool hold) {
    e.hold = hold;
    if (hold) return;
    for (auto& job : std::exchange(e.held, {})) e.post(std::move(job));
  };
  set(*in().submit_workers, submit);
  set(*in().proof_workers, proof);
  in().settle();
}

void world::refuse_jobs(int submit, int proof) {
  in().submit_workers->refuse = submit;
  in().proof_workers->refuse = proof;
}

bool world::run_one_submit_job() {
  auto& held = in().submit_workers->held;
  if (held.empty()) return false;
  auto job = std::move(held.front());
  held.pop_front();
  job();
  in().settle();
  return true;
}

void world::kill(actor_kind kind) {
  const auto& a = *in().parts.actors;
  const auto end = [](const auto& h) { caf::anon_send_exit(h, caf::exit_reason::kill); };
  switch (kind) {
    case actor_kind::manager:
      end(a.manager);
      break;
    case actor_kind::lender:
      end(a.lender);
      break;
    case actor_kind::adapter:
      end(a.adapter);
      break;
    case actor_kind::backend:
      end(a.backend);
      break;
    case actor_kind::proof_collector:
      end(a.proof_collector);
      break;
    case actor_kind::deadline_arbiter:
      end(a.deadline_arbiter);
      break;
    case actor_kind::cuda:
      end(a.cuda);
      break;
    case actor_kind::supervisor:
      end(a.supervisor);
      break;
    case actor_kind::inspector:
      end(a.inspector);
      break;
  }
  in().settle();
}

bool world::alive(actor_kind kind) {
  const auto s = look();
  REQUIRE(s.has_value());
  return std::ranges::find(s->down, kind) == s->down.end();
}

}  // namespace kvlease::test

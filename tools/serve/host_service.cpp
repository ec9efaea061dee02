#include "tools/serve/host_service.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>

namespace kvlease::serve {

namespace {

unsigned status_of(const error& e) {
  switch (e.code) {
    case errc::invalid:
      return 400;
    case errc::capacity:
    case errc::state:
    case errc::no_memory:
      return 503;
    case errc::timeout:
      return 504;
    default:
      return 500;
  }
}

}  // namespace

host_service::host_service(const serve_plan& plan) : plan_{plan} {}

result<std::unique_ptr<host_service>> host_service::start(
    const serve_plan& plan, std::function<void(std::size_t, const fatal_record&)> on_fatal) {
  auto made = std::unique_ptr<host_service>{new host_service{plan}};
  // The drain has its own bound, and a request its own grace: registrations end neither before its time.
  made->plan_.instances.shutdown_grace =
      std::max(std::chrono::duration<double>{plan.drain},
               std::chrono::duration<double>{plan.instances.timeout.value()}) *
          2 +
      std::chrono::seconds{10};
  std::vector<std::shared_ptr<inspection_port>> ports;
  for (std::size_t n = 0; n < plan.instances.instances; ++n) {
    std::shared_ptr<drill_device> drilled;
    if (plan.drills)
      made->plan_.instances.decorate_device = [&drilled](std::shared_ptr<device_port> inner) {
        return drilled = std::make_shared<drill_device>(std::move(inner));
      };
    auto one = replay::make_instance(made->plan_.instances, n,
                                     [n, on_fatal](const fatal_record& f) { on_fatal(n, f); });
    if (!one) return tl::unexpected{one.error()};
    ports.push_back((*one)->lender->inspection());
    made->instances_.push_back(*std::move(one));
    made->floors_.push_back(std::make_unique<request_floor>(made->plan_, plan.instances.pool_blocks));
    made->floors_.back()->device = drilled;
  }
  made->routes_ =
      std::make_unique<inspection_routes>(std::move(ports), [raw = made.get()] { return raw->draining(); });
  made->requests_ = std::make_unique<job_queue>(plan.instances.concurrency, plan.queued);
  auto server =
      http_server::start({.socket_path = plan.socket,
                          .tcp = plan.tcp,
                          // Requests that wait for their answers take no connection from inspection.
                          .max_connections = 256 + plan.instances.concurrency + plan.queued,
                          .posts = "/request"},
                         [raw = made.get()](const http_request& request, const http_reply& reply) {
                           raw->handle(request, reply);
                         });
  if (!server) return tl::unexpected{server.error()};
  made->server_ = *std::move(server);
  return made;
}

host_service::~host_service() {
  server_.reset();
  for (auto& f : floors_) f->end();
  requests_.reset();
  for (auto& f : floors_) f->timer.close();
  routes_.reset();
  instances_.clear();  // before the floors: a runtime calls back into them until it has ended
}

void host_service::handle(const http_request& request, const http_reply& reply) {
  if (request.path != "/request") return reply(routes_->answer(request));
  if (request.method != "POST") return reply(wrong_method("POST", "requests are posted"));
  take_request(request, reply);
}

void host_service::take_request(const http_request& request, const http_reply& reply) {
  auto ask = parse_request(request.body, plan_);
  if (!ask) return reply(problem(400, ask.error().text));
  if ((ask->drill.copy.count() > 0 || ask->drill.lose_copy) && floors_.front()->device == nullptr)
    return reply(problem(400, "drill: copies can't be drilled in this build"));
  {
    const std::lock_guard lock{mutex_};
    if (draining_) return reply(problem(503, "the service drains"));
    ++open_;
  }
  const auto instance = ask->instance.value_or(next_++ % instances_.size());
  const auto ended = [this] {
    const std::lock_guard lock{mutex_};
    --open_;
    changed_.notify_all();
  };
  const bool taken = requests_->post([this, instance, ask = *std::move(ask), reply, ended] {
    const auto answer = run_request(*floors_[instance], *instances_[instance], instance, ask);
    reply(answer ? http_response{200, to_json(*answer)}
                 : problem(status_of(answer.error()), answer.error().text));
    ended();
  });
  if (taken) return;
  ended();
  reply(problem(503, fmt::format("{} requests wait already", plan_.queued)));
}

std::optional<inspect::drain_note> host_service::draining() {
  const std::lock_guard lock{mutex_};
  if (!draining_) return std::nullopt;
  return inspect::drain_note{evidence_ ? "evidence" : "requests", open_, drain_until_ - steady::now()};
}

runtime_drain host_service::drain_one(std::size_t n) {
  auto& lender = *instances_[n]->lender;
  const auto began = steady::now();
  auto stopped = lender.stop(plan_.drain);
  runtime_drain r;
  r.stopped = stopped.stopped;
  r.seconds = std::chrono::duration<double>(steady::now() - began).count();
  r.retained = std::move(stopped.retained);
  if (!r.stopped && r.retained.empty()) r.retained.emplace_back("not stopped");
  r.exposure_bytes = lender.exposure_bytes();
  r.wrong_blocks = floors_[n]->wrong;
  const auto struck = instances_[n]->faults->struck();
  for (std::size_t k = 0; k < struck.size(); ++k)
    if (struck[k] > 0)
      r.faults += fmt::format("{}{} {}", r.faults.empty() ? "" : ", ", to_string(static_cast<fault_kind>(k)),
                              struck[k]);
  return r;
}

drain_report host_service::drain() {
  drain_report r;
  {
    std::unique_lock lock{mutex_};
    drain_until_ = steady::now() + plan_.drain;
    draining_ = true;
    changed_.wait_for(lock, plan_.drain, [this] { return open_ == 0; });
  }
  for (auto& f : floors_) f->end();
  {
    const std::lock_guard lock{mutex_};
    drain_until_ = steady::now() + plan_.drain;
    evidence_ = true;
  }
  // All at once: one that waits for evidence must not take the others' time.
  std::vector<std::future<runtime_drain>> drains;
  for (std::size_t n = 0; n < instances_.size(); ++n)
    drains.push_back(std::async(std::launch::async, [this, n] { return drain_one(n); }));
  for (auto& d : drains) r.runtimes.push_back(d.get());
  std::unique_lock lock{mutex_};
  changed_.wait_for(lock, std::chrono::seconds{2}, [this] { return open_ == 0; });
  r.requests_open = open_;
  return r;
}

}  // namespace kvlease::serve

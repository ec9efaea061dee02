#include "src/providers/ucx/loop.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <ucs/debug/debug.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace kvlease {

std::string ucx_text(ucs_status_t status) { return ucs_status_string(status); }

namespace {

/// Before the end: time for who has just connected to have said so (see ~ucx_server).
constexpr std::chrono::milliseconds quiet{10};

tl::unexpected<error> refused(const char* what, ucs_status_t status) {
  return fail(errc::provider, fmt::format("ucx: {}: {}", what, ucx_text(status)));
}

/// Two things that a context's configuration can't say; nothing is changed where the environment does. At
/// load, when there are no other threads yet as a rule.
[[maybe_unused]] const bool prepared_at_load = [] {
  // UCX takes over SIGSEGV and its like as it is loaded, which is the host's to decide: given back before
  // anybody can have met UCX's handlers.
  if (std::getenv("UCX_ERROR_SIGNALS") == nullptr)
    for (const int taken : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(taken);
  // Else a restarted process could not listen on its port for as long as old connections are remembered.
  return ::setenv("UCX_CM_REUSEADDR", "y", 0) == 0;
}();

result<ucp_context_h> make_context(const ucx_options& o) {
  ucp_config_t* config = nullptr;
  if (const auto s = ucp_config_read(nullptr, nullptr, &config); s != UCS_OK)
    return refused("reading UCX's configuration", s);
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> release{config, ucp_config_release};
  const auto segment = std::to_string(o.segment_bytes);
  const std::pair<const char*, const char*> settings[] = {{"TLS", o.tls.c_str()},
                                                          {"NET_DEVICES", o.net_device.c_str()},
                                                          {"TX_SEG_SIZE", segment.c_str()},
                                                          {"RX_SEG_SIZE", segment.c_str()}};
  for (const auto& [key, value] : settings)
    if (const auto s = ucp_config_modify(config, key, value); s != UCS_OK)
      return refused(fmt::format("setting {}={}", key, value).c_str(), s);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "kvlease";
  ucp_context_h context = nullptr;
  if (const auto s = ucp_init(&params, config, &context); s != UCS_OK)
    return refused(fmt::format("no context with tls={}, net_device={}", o.tls, o.net_device).c_str(), s);
  return context;
}

}  // namespace

// ---- A worker --------------------------------------------------------------------------------------------

result<std::unique_ptr<ucx_worker>> ucx_worker::make(ucp_context_h context) {
  std::unique_ptr<ucx_worker> made{new ucx_worker};
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SINGLE;
  if (const auto s = ucp_worker_create(context, &params, &made->worker_); s != UCS_OK)
    return refused("no worker", s);
  if (const auto s = ucp_worker_get_efd(made->worker_, &made->descriptor_); s != UCS_OK)
    return refused("a worker without event descriptor", s);
  ucp_worker_attr_t attributes{};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER;
  if (const auto s = ucp_worker_query(made->worker_, &attributes); s != UCS_OK)
    return refused("a worker that can't be asked", s);
  made->max_header_ = attributes.max_am_header;
  return made;
}

ucx_worker::~ucx_worker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
}

ucs_status_t ucx_worker::receive(unsigned id, ucp_am_recv_callback_t take, void* argument) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                       UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = id;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  handler.cb = take;
  handler.arg = argument;
  return ucp_worker_set_am_recv_handler(worker_, &handler);
}

bool ucx_worker::progress() {
  bool any = false;
  while (ucp_worker_progress(worker_) != 0) any = true;
  std::erase_if(closing_, [](void* request) {
    if (ucp_request_check_status(request) == UCS_INPROGRESS) return false;
    ucp_request_free(request);
    return true;
  });
  return any;
}

void ucx_worker::close_endpoint(ucp_ep_h endpoint) {
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  auto* request = ucp_ep_close_nbx(endpoint, &params);
  if (UCS_PTR_IS_PTR(request)) closing_.push_back(request);
}

// ---- The thread ------------------------------------------------------------------------------------------

result<std::unique_ptr<ucx_loop>> ucx_loop::make(const ucx_options& options) {
  std::unique_ptr<ucx_loop> made{new ucx_loop};
  made->spin_ = std::chrono::microseconds{options.spin_us};
  made->posted_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (made->posted_ < 0) return fail(errc::provider, fmt::format("ucx: eventfd: {}", std::strerror(errno)));
  auto context = make_context(options);
  if (!context) return tl::unexpected{context.error()};
  made->context_ = *context;
  for (auto* into : {&made->serving_, &made->fetching_}) {
    auto worker = ucx_worker::make(made->context_);
    if (!worker) return tl::unexpected{worker.error()};
    *into = *std::move(worker);
  }
  return made;
}

ucx_loop::~ucx_loop() {
  serving_.reset();
  fetching_.reset();
  if (context_ != nullptr) ucp_cleanup(context_);
  if (posted_ >= 0) ::close(posted_);
}

void ucx_loop::start(hooks h) {
  hooks_ = std::move(h);
  thread_ = std::thread{[this] {
    ::pthread_setname_np(::pthread_self(), "kvl-ucx");
    run();
  }};
}

bool ucx_loop::post(std::function<void()> task) {
  {
    const std::lock_guard lock{mutex_};
    if (stopping_) return false;
    tasks_.push_back(std::move(task));
  }
  wake();
  return true;
}

void ucx_loop::wake() const {
  constexpr std::uint64_t one = 1;
  static_cast<void>(!::write(posted_, &one, sizeof one));  // full: it is readable anyway
}

bool ucx_loop::stop(std::function<void()> last, std::chrono::milliseconds bound) {
  post(std::move(last));
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
    give_up_ = std::chrono::steady_clock::now() + bound;
  }
  wake();
  thread_.join();
  if (clean_) return true;
  static_cast<void>(serving_.release());
  static_cast<void>(fetching_.release());
  context_ = nullptr;
  return false;
}

bool ucx_loop::run_tasks() {
  std::vector<std::function<void()>> now;
  {
    const std::lock_guard lock{mutex_};
    now.swap(tasks_);
  }
  for (auto& task : now) task();
  return !now.empty();
}

void ucx_loop::run() {
  using clock = std::chrono::steady_clock;
  auto last = clock::now();
  for (;;) {
    bool any = run_tasks();
    any = serving_->progress() || any;
    any = fetching_->progress() || any;
    hooks_.after_progress();
    bool stopping = false;
    {
      const std::lock_guard lock{mutex_};
      stopping = stopping_;
      if (!tasks_.empty()) continue;
    }
    const auto now = clock::now();
    if (any) last = now;
    if (stopping) {
      const bool over = serving_->all_closed() && fetching_->all_closed() && hooks_.idle();
      if ((!over || now - last < quiet) && now < give_up_) {
        std::this_thread::sleep_for(std::chrono::microseconds{200});
        continue;
      }
      clean_ = over;
      return;
    }
    if (now - last < spin_) continue;
    sleep();
  }
}

void ucx_loop::sleep() {
  if (!serving_->arm() || !fetching_->arm()) return;
  std::array<pollfd, 3> on{
      {{serving_->descriptor(), POLLIN, 0}, {fetching_->descriptor(), POLLIN, 0}, {posted_, POLLIN, 0}}};
  // Bounded, as UCX's keepalive is sent from progress.
  ::poll(on.data(), on.size(), 1000);
  std::uint64_t ignored = 0;
  if ((on[2].revents & POLLIN) != 0) static_cast<void>(!::read(posted_, &ignored, sizeof ignored));
}

}  // namespace kvlease

// UCX itself, for tests that speak to it without the provider. Only in builds that have UCX.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <ucp/api/ucp.h>

#include <chrono>
#include <cstdint>

namespace kvlease::test {

struct raw_worker {
  raw_worker() {
    ucp_config_t* config = nullptr;
    REQUIRE(ucp_config_read(nullptr, nullptr, &config) == UCS_OK);
    ucp_config_modify(config, "TLS", "tcp");
    ucp_config_modify(config, "NET_DEVICES", "lo");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM;
    const auto made = ucp_init(&params, config, &context);
    ucp_config_release(config);
    REQUIRE(made == UCS_OK);
    ucp_worker_params_t how{};
    how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    how.thread_mode = UCS_THREAD_MODE_SINGLE;
    REQUIRE(ucp_worker_create(context, &how, &worker) == UCS_OK);
  }
  ~raw_worker() {
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
  }
  void progress() const {
    while (ucp_worker_progress(worker) != 0) continue;
  }
  void progress_for(std::chrono::milliseconds time) const {
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;)
      progress();
  }
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
};

inline sockaddr_in loopback(int port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  return at;
}

inline void ignore_error(void*, ucp_ep_h, ucs_status_t) {}

}  // namespace kvlease::test

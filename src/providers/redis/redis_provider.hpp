// The provider over Redis: one server or a cluster, over TCP, a unix socket or TLS (docs/providers.md).
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "kvlease/provider_uri.hpp"
#include "src/providers/redis/routes.hpp"
#include "src/providers/unit_transfer.hpp"

namespace kvlease {

/// Every capability, every attempt cancellable. A unit is one value; it moves straight between the socket and
/// the leased memory.
///
/// The end of access is proven by the connection's own thread (src/providers/redis/link.hpp), never by the
/// server: a cancel ends access at once, also when the server has stopped.
///
/// Threads: any call on any thread; but for probe(), quiesce() and settle() none waits for a server.
/// Destroying it waits for its own threads, which wait for nothing.
class redis_provider final : public transfer_provider {
 public:
  /// `tls` may be null. Connects when it is first used. Throws std::invalid_argument without resolver.
  redis_provider(redis::options o, std::shared_ptr<const redis::tls_context> tls, provider_context context);
  ~redis_provider() override;

  std::string describe() const override;
  /// Throws submission_rejected when not connected, or past the queue's bound (option queue).
  std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along = nullptr) override;
  std::shared_ptr<attempt> publish(const cache_extent& extent) override;
  /// Which keys exist. Waits for the server, as long as the options allow; throws std::runtime_error when it
  /// has not answered.
  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override;

 private:
  std::shared_ptr<attempt> submit(direction way, const cache_extent& extent);
  const std::shared_ptr<redis::routes> routes_;
};

/// What follows "redis:", "rediss:" and "redis+unix:". Errors: invalid, or io for a file that it names.
result<provider_factory> open_redis(std::string_view after_colon);
result<provider_factory> open_rediss(std::string_view after_colon);
result<provider_factory> open_redis_unix(std::string_view after_colon);

}  // namespace kvlease

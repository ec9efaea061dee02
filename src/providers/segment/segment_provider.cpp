#include "src/providers/segment/segment_provider.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "src/providers/segment/transfer.hpp"

namespace kvlease {

namespace {

constexpr const char* who = "segment provider";

/// A registered span, and the engine's hint of it.
class pool_registration final : public registration {
 public:
  pool_registration(std::unique_ptr<registration> span, std::weak_ptr<segment_store> store,
                    std::span<std::byte> memory)
      : span_{std::move(span)}, store_{std::move(store)}, memory_{memory} {
    if (const auto s = store_.lock()) s->engine().add_buffer(memory_);
  }
  ~pool_registration() override { forget(); }
  void close() override {
    span_->close();
    forget();
  }

 private:
  void forget() {
    if (closed_.exchange(true)) return;
    if (const auto s = store_.lock()) s->engine().remove_buffer(memory_);
  }

  const std::unique_ptr<registration> span_;
  const std::weak_ptr<segment_store> store_;
  const std::span<std::byte> memory_;
  std::atomic<bool> closed_{false};
};

}  // namespace

segment_provider::segment_provider(std::shared_ptr<segment_store> store, provider_context context)
    : transfer_provider{who, std::move(context)}, store_{std::move(store)} {
  if (!store_) throw std::invalid_argument{"segment provider: no store"};
}

segment_provider::~segment_provider() { closing_->store(true, std::memory_order_relaxed); }

std::shared_ptr<attempt> segment_provider::fetch(const cache_extent& extent, route* along) {
  if (along) throw submission_rejected{"segment provider: foreign route: it opens none"};
  return submit(direction::fetch, extent);
}

std::shared_ptr<attempt> segment_provider::publish(const cache_extent& extent) {
  return submit(direction::publish, extent);
}

std::shared_ptr<attempt> segment_provider::submit(direction way, const cache_extent& extent) {
  auto made = std::make_shared<segment_transfer>(book(), way, extent, closing_);
  if (auto why = made->prepare()) {
    made->finish_and_end(failed{std::move(*why)});
    return made;
  }
  if (extent.units().empty()) {
    made->finish_and_end(delivered{{}});
    return made;
  }
  const auto ticket = store_->admit(extent.units().size());
  if (!ticket)
    throw submission_rejected{fmt::format("{}: its queue has no room for {} units: {} are in it", who,
                                          extent.units().size(), store_->look().queued)};
  store_->engine().submit(operations_of(store_, made, ticket));
  return made;
}

std::optional<std::set<bytes>> segment_provider::probe(const bytes& extent, const std::set<bytes>& names) {
  std::set<bytes> hits;
  for (const bytes& name : names)
    if (store_->find({extent, name})) hits.insert(hits.end(), name);
  return hits;
}

std::unique_ptr<registration> segment_provider::register_pool(std::uintptr_t address, std::size_t size) {
  auto span = transfer_provider::register_pool(address, size);
  return std::make_unique<pool_registration>(std::move(span), store_,
                                             std::span{reinterpret_cast<std::byte*>(address), size});
}

}  // namespace kvlease

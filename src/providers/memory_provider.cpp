#include "src/providers/memory_provider.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>

namespace kvlease {

namespace {

constexpr const char* who = "memory provider";
/// Units a job moves before it lets other jobs of the executor run.
constexpr std::size_t units_per_job = 4;

}  // namespace

/// What the provider and its jobs share.
struct memory_provider::shared {
  shared(std::shared_ptr<memory_store> s, memory_options o) : store{std::move(s)}, options{o} {}
  const std::shared_ptr<memory_store> store;
  const memory_options options;
  std::atomic<bool> closing{false};
};

/// One submission: the attempt and the job that moves its bytes.
class memory_provider::transfer final : public unit_transfer {
 public:
  transfer(std::shared_ptr<shared> of, std::shared_ptr<transfer_book> in, direction which,
           const cache_extent& what)
      : unit_transfer{std::move(in), which, what}, shared_{std::move(of)} {}

  /// Moves bytes to the end, or a few units and posts the rest.
  void run(bool to_end) {
    try {
      for (std::size_t moved = 0; next_ < places().size(); ++next_, ++moved) {
        if (cancel_asked() || shared_->closing.load(std::memory_order_relaxed))
          return finish_and_end(cancelled{cancelled_by::local});
        if (!to_end && moved == units_per_job) return post();
        if (auto why = way() == direction::fetch ? fetch_unit() : publish_unit())
          return finish_and_end(failed{*why});
      }
      finish_and_end(delivered{std::move(served_)});
    } catch (const std::exception& e) {
      finish_and_end(failed{fmt::format("{}: {}", who, e.what())});
    }
  }

  /// If it throws, no job of this transfer exists.
  void post() {
    const auto self = std::static_pointer_cast<transfer>(shared_from_this());
    book().context.exec->post([self] { self->run(false); });
  }

 private:
  std::optional<std::string> fetch_unit() {
    const unit& u = unit_at(next_);
    const auto memory = places()[next_].memory;
    const auto blob = shared_->store->get(extent().name(), u.name());
    if (!blob) return std::nullopt;
    if (blob->size() != memory.size()) return size_text(u, blob->size());
    touch(next_, touch_kind::write);
    std::memcpy(memory.data(), blob->data(), blob->size());
    served_.insert(u.name());
    return std::nullopt;
  }

  std::optional<std::string> publish_unit() {
    const unit& u = unit_at(next_);
    const auto memory = places()[next_].memory;
    auto& store = *shared_->store;
    const auto held = store.find(extent().name(), u.name());
    if (held && *held != memory.size()) return size_text(u, *held);
    if (!held) touch(next_, touch_kind::read);
    switch (store.put(extent().name(), u.name(), memory)) {
      case memory_store::put_result::other_size:
        return unit_text(u) + " was published with another size";
      case memory_store::put_result::full:
        return fmt::format("store is full: {} of {} bytes, capacity {}, held {}", unit_text(u), memory.size(),
                           store.capacity(), store.bytes());
      case memory_store::put_result::added:
      case memory_store::put_result::kept:
        break;
    }
    served_.insert(u.name());
    return std::nullopt;
  }

  std::string size_text(const unit& u, std::size_t stored) const {
    return fmt::format("{} has {} bytes in the store, its slot {}", unit_text(u), stored,
                       places()[next_].memory.size());
  }

  const std::shared_ptr<shared> shared_;
  std::size_t next_ = 0;  ///< this and what follows: of the one running job alone
  std::set<bytes> served_;
};

memory_provider::memory_provider(std::shared_ptr<memory_store> store, provider_context context,
                                 memory_options options)
    : transfer_provider{who, std::move(context)},
      shared_{std::make_shared<shared>(std::move(store), options)} {
  if (!shared_->store) throw std::invalid_argument{"memory provider: no store"};
  if (options.background && !book()->context.exec)
    throw std::invalid_argument{"memory provider: no executor"};
}

memory_provider::~memory_provider() { shared_->closing.store(true, std::memory_order_relaxed); }

std::string memory_provider::describe() const {
  return fmt::format("memory ({}, capacity {} bytes)", shared_->options.background ? "background" : "inline",
                     shared_->store->capacity());
}

std::shared_ptr<attempt> memory_provider::fetch(const cache_extent& extent, route* along) {
  if (along) throw submission_rejected{"memory provider: foreign route: it opens none"};
  return submit(direction::fetch, extent);
}

std::shared_ptr<attempt> memory_provider::publish(const cache_extent& extent) {
  return submit(direction::publish, extent);
}

std::shared_ptr<attempt> memory_provider::submit(direction way, const cache_extent& extent) {
  auto made = std::make_shared<transfer>(shared_, book(), way, extent);
  if (auto why = made->prepare()) {
    made->finish_and_end(failed{std::move(*why)});
  } else if (!shared_->options.background) {
    made->run(true);
  } else {
    try {
      made->post();
    } catch (const std::exception& e) {
      throw submission_rejected{fmt::format("{}: the executor took no job: {}", who, e.what())};
    }
  }
  return made;
}

std::optional<std::set<bytes>> memory_provider::probe(const bytes& extent, const std::set<bytes>& names) {
  std::set<bytes> hits;
  for (const bytes& name : names)
    if (shared_->store->find(extent, name)) hits.insert(hits.end(), name);
  return hits;
}

}  // namespace kvlease

// For tests on real threads: a gate that holds whoever comes by, and a provider, a device and a manager port
// that stop at it. The test opens the gate at its end, so that no thread is left behind in it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cuda/host_device.hpp"
#include "src/include/kvlease/manager_port.hpp"
#include "src/include/kvlease/provider.hpp"

namespace kvlease::test {

using namespace std::chrono_literals;

class gate {
 public:
  /// Blocks until open().
  void pass() {
    std::unique_lock lock{mutex_};
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --inside_;
    changed_.notify_all();
  }
  void open() {
    const std::lock_guard lock{mutex_};
    open_ = true;
    changed_.notify_all();
  }
  /// Somebody is held. False after five seconds without.
  bool holds() {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, 5s, [this] { return inside_ > 0; });
  }
  /// Nobody is any more. False after five seconds.
  bool is_left() {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, 5s, [this] { return inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int inside_ = 0;
};

enum class call : std::uint8_t {
  none,
  submit,
  poll,
  poll_access,
  quiesce,
  cancel,
  register_pool,
  deregister
};

/// Delivers everything at once and has ended then, but for the one call that stops at the gate. Stuck in
/// `poll`, `poll_access`, `quiesce` or `cancel` an attempt has no outcome.
class stuck_provider final : public provider, public fetches, public registers_pools, public pollable {
 public:
  stuck_provider(std::shared_ptr<gate> g, call where) : gate_{std::move(g)}, where_{where} {}

  std::string describe() const override { return "stuck"; }
  unit_counters counters() const override { return {}; }
  fetches* as_fetches() override { return this; }
  kvlease::registers_pools* as_registers_pools() override { return this; }
  kvlease::pollable* as_pollable() override { return where_ == call::quiesce ? nullptr : this; }

  std::shared_ptr<attempt> fetch(const cache_extent& e, route*) override {
    at(call::submit);
    return std::make_shared<job>(*this, e);
  }
  std::optional<std::set<bytes>> probe(const bytes&, const std::set<bytes>&) override { return std::nullopt; }
  result<std::unique_ptr<route>> open_route(const std::string&) override {
    return fail(errc::unsupported, "stuck");
  }
  bool quiesce(attempt_list) override {
    at(call::quiesce);
    return true;
  }
  void settle(attempt_list) override {}
  access_answer poll_access(attempt&) override {
    at(call::poll_access);
    return {where_ == call::cancel ? access_state::running : access_state::ended,
            proof_source::terminal_status};
  }
  std::unique_ptr<registration> register_pool(std::uintptr_t, std::size_t) override {
    at(call::register_pool);
    struct handle final : registration {
      handle(std::shared_ptr<gate> g, bool stops) : gate_{std::move(g)}, stops_{stops} {}
      void close() override {
        if (stops_) gate_->pass();
      }
      std::shared_ptr<gate> gate_;
      bool stops_;
    };
    return std::make_unique<handle>(gate_, where_ == call::deregister);
  }

 private:
  struct job final : attempt, cancellable_attempt {
    job(stuck_provider& o, cache_extent e) : of{o}, extent{std::move(e)} {}
    std::optional<outcome> poll() override {
      of.at(call::poll);
      if (of.where_ == call::poll_access || of.where_ == call::quiesce || of.where_ == call::cancel)
        return std::nullopt;
      std::set<bytes> all;
      for (const auto& u : extent.units()) all.insert(u.name());
      return delivered{std::move(all)};
    }
    cancel_disposition request_cancel() override {
      of.at(call::cancel);
      return cancel_disposition::requested;
    }
    stuck_provider& of;
    cache_extent extent;
  };
  void at(call here) {
    if (here == where_) gate_->pass();
  }
  std::shared_ptr<gate> gate_;
  call where_;
};

/// A host device that counts the staging blocks that are mapped, and may stop in enqueue.
class watched_device final : public device_port {
 public:
  watched_device(std::shared_ptr<gate> g, bool stops) : gate_{std::move(g)}, stops_{stops} {}

  std::shared_ptr<std::atomic<int>> mapped = std::make_shared<std::atomic<int>>(0);

  std::string describe() const override { return inner_.describe(); }
  result<std::shared_ptr<memory_block>> allocate_device(std::size_t n) override {
    return inner_.allocate_device(n);
  }
  result<std::shared_ptr<memory_block>> allocate_staging(std::size_t n) override {
    struct block final : memory_block {
      block(std::shared_ptr<memory_block> m, std::shared_ptr<std::atomic<int>> c)
          : of{std::move(m)}, count{std::move(c)} {
        ++*count;
      }
      ~block() override { --*count; }
      std::uintptr_t address() const noexcept override { return of->address(); }
      std::size_t size() const noexcept override { return of->size(); }
      std::shared_ptr<memory_block> of;
      std::shared_ptr<std::atomic<int>> count;
    };
    return inner_.allocate_staging(n).map([this](auto m) -> std::shared_ptr<memory_block> {
      return std::make_shared<block>(std::move(m), mapped);
    });
  }
  result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t at, std::size_t n) override {
    return inner_.register_staging(at, n);
  }
  bool reaches(std::uintptr_t at, std::size_t n) const override { return inner_.reaches(at, n); }
  result<void> bind_thread() override { return inner_.bind_thread(); }
  result<std::size_t> enqueue(std::shared_ptr<const copy_batch> batch) override {
    if (stops_) gate_->pass();
    return inner_.enqueue(std::move(batch));
  }
  result<device_event> record(copy_kind kind) override { return inner_.record(kind); }
  result<event_state> query(device_event e) override { return inner_.query(e); }
  void recycle(device_event e) override { inner_.recycle(e); }
  std::optional<error> lost() const override { return inner_.lost(); }

 private:
  host_device inner_;
  std::shared_ptr<gate> gate_;
  bool stops_;
};

/// A host's manager port that may stop in commit.
class stuck_manager final : public manager_port {
 public:
  stuck_manager(std::shared_ptr<manager_port> of, std::shared_ptr<gate> g, bool stops)
      : of_{std::move(of)}, gate_{std::move(g)}, stops_{stops} {}

  const manager_layout& layout() const override { return of_->layout(); }
  result<request_info> admit(request_id id, request_spec spec) override {
    return of_->admit(id, std::move(spec));
  }
  result<request_info> describe(request_id id) const override { return of_->describe(id); }
  result<request_info> grow(request_id id, std::int64_t end) override { return of_->grow(id, end); }
  result<std::vector<page_row>> rows(request_id id, token_range r) const override { return of_->rows(id, r); }
  result<std::vector<digest>> block_keys(request_id id, token_range r) override {
    return of_->block_keys(id, r);
  }
  result<request_info> commit(request_id id, std::int64_t end) override {
    if (stops_) gate_->pass();
    return of_->commit(id, end);
  }
  result<void> free(request_id id) override { return of_->free(id); }
  std::vector<std::size_t> pin(pin_id p, request_id id, std::span<const page_row> w) override {
    return of_->pin(p, id, w);
  }
  bool unpin(pin_id p) override { return of_->unpin(p); }
  page_counts counts() const override { return of_->counts(); }

 private:
  std::shared_ptr<manager_port> of_;
  std::shared_ptr<gate> gate_;
  bool stops_;
};

}  // namespace kvlease::test

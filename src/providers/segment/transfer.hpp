// One submission to a segment store, and its units on their way: unit_transfer with a state for each unit, so
// that a cancel drops what no kernel knows of yet and waits for the rest.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "src/providers/segment/engine.hpp"
#include "src/providers/segment/store.hpp"
#include "src/providers/unit_transfer.hpp"

namespace kvlease {

/// Access ends when each unit is dropped, or its last transfer has ended. The outcome comes with the last
/// verdict, or at once with the first failure or a cancel (semantics 1.1): these prove nothing.
class segment_transfer final : public unit_transfer {
 public:
  /// `closing`: of its provider; then nothing more begins.
  segment_transfer(std::shared_ptr<transfer_book> book, direction way, const cache_extent& extent,
                   std::shared_ptr<const std::atomic<bool>> closing);

  cancel_disposition request_cancel() override;

  /// Nothing more begins.
  bool stopped();
  /// Right before its memory is touched. False: it was dropped, and must not be.
  bool begins(std::size_t unit);
  /// Its memory is touched no more, or never will be.
  void access_ended(std::size_t unit);
  /// Once a unit.
  void decided(std::size_t unit, bool served);
  void fails(const std::string& why);

 private:
  enum class state : std::uint8_t { waiting, touched, ended };
  void stop(outcome o);

  const std::shared_ptr<const std::atomic<bool>> closing_;
  std::mutex mutex_;  ///< guards what follows
  std::vector<state> units_;
  std::size_t not_ended_, undecided_;
  std::set<bytes> served_;
  bool stopped_ = false;
};

/// The operations of the units of `transfer`, which has been prepared. Each holds `ticket` to its end.
disk_operations operations_of(const std::shared_ptr<segment_store>& store,
                              const std::shared_ptr<segment_transfer>& transfer,
                              const std::shared_ptr<void>& ticket);

}  // namespace kvlease

// The thread that makes written units of a segment store visible, in groups: journal, and in durable mode the
// disk's caches, once for all that has come meanwhile. It also finds places for units that had to wait for
// one. It sleeps while there is nothing to do.
#pragma once

#include <memory>
#include <thread>

#include "src/providers/segment/engine.hpp"
#include "src/providers/segment/index.hpp"

namespace kvlease {

class segment_store;

/// A unit on its way into the store.
class incoming_unit : public disk_operation {
 public:
  virtual std::shared_ptr<segment_store> store() const noexcept = 0;
  virtual const unit_key& key() const noexcept = 0;
  virtual std::uint64_t length() const noexcept = 0;
  /// After it was written.
  virtual stored_unit written() const noexcept = 0;
  /// A place was found; the unit is submitted to the engine next.
  virtual void placed(const segment_index::reservation& at) = 0;
  /// It is visible, or was by the same name before; or why not: there is no place, or the journal failed. Its
  /// place is not its own any more. Called before tell().
  virtual void settled(const result<segment_index::inserted>& how) = 0;
  /// Says so to whoever waits, and holds nothing of the store any more then: they may open it again.
  virtual void tell() = 0;
};

class segment_committer {
 public:
  segment_committer();
  /// Whoever waits holds the store, so nobody does. While its thread is telling somebody, or is the caller,
  /// it ends by itself.
  ~segment_committer();
  segment_committer(const segment_committer&) = delete;
  segment_committer& operator=(const segment_committer&) = delete;

  void add_written(std::shared_ptr<incoming_unit> unit);
  void add_waiting(std::shared_ptr<incoming_unit> unit);
  /// A place may have become free.
  void look_again();

 private:
  struct shared;
  static void work(const std::shared_ptr<shared>& s);
  const std::shared_ptr<shared> shared_;
  std::thread thread_;
};

}  // namespace kvlease

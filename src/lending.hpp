// Leases of staging slots: opening, strict first-come granting, marking, copies, return (semantics 6.2-6.7,
// scenarios 5.5). Pure: the lender actor turns messages into these calls and the effects into messages.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "messages/contract.hpp"
#include "messages/ids.hpp"
#include "messages/staging.hpp"
#include "src/include/kvlease/device_port.hpp"
#include "src/include/kvlease/manager_port.hpp"
#include "src/names.hpp"
#include "src/readiness.hpp"
#include "src/slots.hpp"

namespace kvlease {

/// Call errors of a fetch range (scenarios 5.5, write steps 4 and 9), errc::invalid; all before any change.
result<void> check_fetch_range(const request_info& info, std::int64_t tokens_per_block, token_range range);
/// Call errors of a publish range (scenarios 5.5, read).
result<void> check_publish_range(const request_info& info, token_range range);

/// What an instance with this layout and scope calls its blocks. Errors: as identity::make.
result<identity> names_of(const manager_layout& layout, const bytes& scope);

/// Slots of one part.
struct part_run {
  std::size_t part = 0;
  slot_run slots;
};

namespace lend_effect {
struct ask_pages {  ///< → manager
  lease_id lease;
  request_id request;
  token_range range;
  direction way = direction::fetch;
  bool grow = true;  ///< false: check the range only
};
struct opened {  ///< → caller of the lend
  lease_id lease;
};
struct refused {  ///< → caller of the lend: a call error, no lease
  lease_id lease;
  error why;
};
struct granted {  ///< detectors: these slots are the lease's now
  lease_id lease;
  direction way = direction::fetch;
  std::vector<part_run> slots;
};
struct freed {  ///< detectors: these slots are nobody's now
  std::vector<part_run> slots;
  lease_id lease;
};
struct quarantined {  ///< detectors: these slots are the lease's for good
  lease_id lease;
  std::vector<part_run> slots;
};
struct ready {  ///< root the lease; → holder
  lease_id lease;
  direction way = direction::fetch;
  request_id request;
  std::shared_ptr<const region_view> view;
};
struct lease_failed {  ///< → holder
  lease_id lease;
  error why;
};
struct pin {  ///< → manager
  lease_id lease;
  request_id request;
  std::vector<page_row> rows;
};
struct unpin {  ///< → manager
  pin_id pin;
  lease_id lease;
};
struct copy {  ///< → cuda
  copy_id copy;
  std::shared_ptr<const copy_batch> batch;
  lease_id lease;
};
struct copies_ended {  ///< → adapter
  lease_id lease;
};
struct copies_unproven {  ///< → adapter
  lease_id lease;
  std::string reason;
};
}  // namespace lend_effect

using lending_effect =
    std::variant<lend_effect::ask_pages, lend_effect::opened, lend_effect::refused, lend_effect::granted,
                 lend_effect::freed, lend_effect::quarantined, lend_effect::ready, lend_effect::lease_failed,
                 lend_effect::pin, lend_effect::unpin, lend_effect::copy, lend_effect::copies_ended,
                 lend_effect::copies_unproven>;

enum class lease_phase : std::uint8_t {
  asking,   ///< the manager has not answered
  waiting,  ///< for slots
  pinning,  ///< a read: its pages are being pinned
  copying,  ///< a read: device to host
  ready,
  marking,   ///< a write: marked pages are being pinned, then copied
  guarded,   ///< copies complete; a read guard is left
  finished,  ///< no local access any more
  unproven,  ///< a copy can never be proven complete: slots are quarantined
};

std::string_view to_string(lease_phase p) noexcept;

struct lending_config {
  incarnation runtime;
  manager_layout layout;
  std::vector<part> parts;         ///< one a pool group, in pool-group order
  bytes scope;                     ///< of the names (scenarios 6.2)
  std::size_t max_waiting = 1024;  ///< leases that wait (7.7)
};

class lending {
 public:
  static result<lending> make(lending_config config);

  /// The provider has registered the parts; before, nothing is lent.
  void on_registered() noexcept { registered_ = true; }

  /// Errors: state (a part is not registered), invalid (range), capacity (max_waiting), state (shut down).
  /// The lease is answered by `opened` or `refused` once the manager has spoken.
  result<lease_id> open(direction way, request_id request, token_range range);
  void on_pages(lease_id lease, result<lease_pages> pages);
  void on_pinned(lease_id lease, pin_id pin, const std::vector<std::size_t>& kept, event_handle written = 0);
  void on_copy_complete(copy_id copy);
  void on_copy_unproven(copy_id copy, const std::string& reason);

  /// The holder gives up a lease that no operation owns. Errors: unknown; state when it is in use.
  result<void> withdraw(lease_id lease, const std::string& why);
  /// Its time to wait has run out: fails unless it has got its slots.
  void overdue(lease_id lease);
  /// The outcome of its operation is known; the slots wait for evidence.
  void awaiting_proof(lease_id lease);
  /// Access has ended: copies the marked rows of a write that the request still holds, then waits for copies
  /// and guards. Once a lease: `masks` empty for a read.
  void finish(lease_id lease, const row_masks& masks, std::size_t guards);
  void guards_gone(lease_id lease);
  /// The operation is settled: the slots return. Errors: unknown; state before copies and guards have ended.
  result<void> release(lease_id lease);

  void on_request_freed(request_id request);
  void on_manager_down();
  void on_cuda_down();
  /// Nothing is lent any more; what waits fails.
  void shut_down();

  /// Empty while a fetch is unsettled.
  std::optional<readiness> ready_from(const request_info& info) const;

  slot_counts counts() const;
  std::size_t open_leases() const noexcept { return leases_.size(); }
  std::uint64_t rejected() const noexcept { return rejected_; }
  std::vector<lending_effect> take_effects();

  struct lease_view {
    lease_id lease;
    direction way;
    request_id request;
    lease_phase phase;
    bool awaiting_proof;
    std::int64_t slots;
    std::size_t guards = 0;
    std::optional<copy_id> copying = {};
  };
  std::vector<lease_view> leases() const;
  /// Empty for a lease that is not open here.
  std::optional<lease_view> view(lease_id lease) const;
  std::vector<part_run> runs(lease_id lease) const;
  /// At most `most` leases behind `after`, by id.
  std::vector<lease_view> leases(lease_id after, std::size_t most) const;
  /// The lease that the copy is of; none for one that is not under way.
  lease_id lease_of(copy_id copy) const;

 private:
  struct lease_state {
    direction way = direction::fetch;
    request_id request;
    token_range range;
    lease_phase phase = lease_phase::asking;
    std::string doom;  ///< why the lease fails once it can; empty: it does not
    bool outcome_known = false;
    std::vector<page_row> rows;
    std::vector<block_key> keys;
    std::optional<ticket> line;
    std::vector<slot_run> runs;             ///< one a pool group, once granted
    std::vector<std::uintptr_t> addresses;  ///< slot of each row, once granted
    std::shared_ptr<const region_view> view;
    std::vector<std::size_t> pinned_rows;  ///< rows that the pin in flight asks for
    std::optional<pin_id> pin;
    std::optional<copy_id> copying;
    std::size_t guards = 0;
    request_info info;
  };

  lending(lending_config config, identity names);

  std::vector<std::int64_t> slots_needed(const std::vector<page_row>& rows) const;
  lease_state* find(lease_id lease);
  fetch_records& records(request_id request);
  void serve();
  /// Takes those of `ids` that wait out of the line, and only then serves it: none of them is granted
  /// meanwhile.
  void fail_waiting(const std::vector<lease_id>& ids, const std::string& why);
  /// Fails the waiting leases that quarantine has made impossible.
  void fail_impossible();
  void grant(lease_id id, lease_state& l, std::vector<slot_run> runs);
  void place(lease_state& l);
  void start_copy(lease_id id, lease_state& l, const std::vector<std::size_t>& rows, event_handle after);
  void end_copies(lease_id id, lease_state& l);
  /// Ends a lease that holds no slots.
  void fail_lease(lease_id id, error why);
  /// Ends a lease whose slots nothing touches any more.
  void close_lease(lease_id id);
  void lose_copy(lease_id id, lease_state& l, const std::string& reason);
  std::vector<part_run> part_runs(const lease_state& l) const;
  static lease_view view_of(lease_id id, const lease_state& l);
  std::vector<lease_id> sorted() const;
  std::vector<lease_id> of_request(request_id request) const;

  lending_config config_;
  identity names_;
  slot_pool pool_;
  id_source<lease_id> leases_drawn_;
  id_source<copy_id> copies_drawn_;
  std::map<lease_id, lease_state> leases_;  ///< in order, so that slices of it can be shown
  std::unordered_map<copy_id, lease_id> copies_;
  std::map<ticket, lease_id> line_;
  std::unordered_map<request_id, fetch_records> records_;
  std::vector<std::int64_t> capacity_;  ///< slots a pool group
  std::size_t waiting_ = 0;             ///< asking or in line
  bool registered_ = false;
  bool shut_down_ = false;
  std::string down_;  ///< a peer that copies need has ended: nothing can be copied any more; empty: none has
  std::uint64_t rejected_ = 0;
  std::vector<lending_effect> effects_;
};

}  // namespace kvlease

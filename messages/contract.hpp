// The backend contract's value types (semantics 2, scenarios 1). Names are opaque: compared for equality
// only. Local coordinates are process-local and never travel to a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "messages/error.hpp"

namespace kvlease {

/// An opaque byte string; std::string is its storage, no encoding is meant.
using bytes = std::string;

/// A name as texts show it: lower-case hex in quotes.
std::string name_text(const bytes& name);

/// The indivisible grain of delivery: served whole or not at all (scenarios 1.1).
class unit {
 public:
  struct fields {
    bytes name;
    std::int64_t local_group;
    std::int64_t local;
  };
  /// Errors: invalid "negative local coordinate" (semantics 2.1).
  static result<unit> make(fields f);

  const bytes& name() const noexcept { return name_; }
  std::int64_t local_group() const noexcept { return local_group_; }
  std::int64_t local() const noexcept { return local_; }
  friend bool operator==(const unit&, const unit&) = default;

 private:
  explicit unit(fields f) : name_{std::move(f.name)}, local_group_{f.local_group}, local_{f.local} {}
  bytes name_;
  std::int64_t local_group_;
  std::int64_t local_;
};

/// Whether an extent ends its logical sequence. Only sequence-aware backends may look at it.
enum class end_of_sequence : bool { no, yes };

/// What one submission asks for: a content name and its units, unique by name (scenarios 1.2).
class cache_extent {
 public:
  /// Takes its own copy of `units`. Errors: invalid "share a name".
  static result<cache_extent> make(bytes name, std::vector<unit> units, end_of_sequence is_last);

  const bytes& name() const noexcept { return name_; }
  const std::vector<unit>& units() const noexcept { return units_; }
  bool is_last() const noexcept { return is_last_ == end_of_sequence::yes; }
  friend bool operator==(const cache_extent&, const cache_extent&) = default;

 private:
  cache_extent(bytes name, std::vector<unit> units, end_of_sequence is_last)
      : name_{std::move(name)}, units_{std::move(units)}, is_last_{is_last} {}
  bytes name_;
  std::vector<unit> units_;
  end_of_sequence is_last_;
};

/// The fully served units. An empty set is a miss, which is no error (scenarios 1.3).
class delivered {
 public:
  explicit delivered(std::set<bytes> served) : served_{std::move(served)} {}
  const std::set<bytes>& served() const noexcept { return served_; }
  friend bool operator==(const delivered&, const delivered&) = default;

 private:
  std::set<bytes> served_;
};

/// The destinations' contents are undefined until overwritten (scenarios 1.4).
class failed {
 public:
  explicit failed(std::string reason) : reason_{std::move(reason)} {}
  const std::string& reason() const noexcept { return reason_; }
  friend bool operator==(const failed&, const failed&) = default;

 private:
  std::string reason_;
};

/// Who cancelled: there is no default, so nobody cancels anonymously (scenarios 1.5).
enum class cancelled_by : bool { local, peer };

class cancelled {
 public:
  explicit cancelled(cancelled_by who) : by_{who} {}
  bool by_peer() const noexcept { return by_ == cancelled_by::peer; }
  friend bool operator==(const cancelled&, const cancelled&) = default;

 private:
  cancelled_by by_;
};

/// What the request gets. Proves nothing about memory (semantics 1).
using outcome = std::variant<delivered, failed, cancelled>;

/// "delivered(3)", "miss", "failed(reason)", "cancelled(local)": for logs and reports.
std::string to_string(const outcome& o);

/// Can the backend still touch the memory? (semantics 1, second question)
enum class access_state : std::uint8_t { running, ended, unproven };

/// How an end of access was proven (architecture, "Proof has a source").
enum class proof_source : std::uint8_t {
  terminal_status,
  flush,
  endpoint_closed,
  registration_revoked,
  peer_epoch_ended,
  process_exit,
};

std::string_view to_string(access_state s) noexcept;
std::string_view to_string(proof_source s) noexcept;

/// Answer to a cancel request; neither acknowledges anything about memory (semantics 2.12).
enum class cancel_disposition : std::uint8_t { unsupported, requested };

std::string_view to_string(cancel_disposition d) noexcept;

/// Which way the bytes go, seen from the lender: a fetch writes leased memory, a publish reads it.
enum class direction : std::uint8_t { fetch, publish };

std::string_view to_string(direction d) noexcept;

}  // namespace kvlease

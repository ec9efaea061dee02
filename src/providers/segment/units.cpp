// The two operations of a segment store: a unit that is fetched, and one that is published. Each gathers what
// it needs while it may still be dropped, then touches memory, then gives everything back.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "src/providers/segment/transfer.hpp"

namespace kvlease {

namespace {

class unit_operation : public buffer_waiter {
 public:
  unit_operation(std::shared_ptr<segment_store> store, std::shared_ptr<segment_transfer> transfer,
                 std::size_t unit, std::shared_ptr<void> ticket)
      : store_{std::move(store)},
        transfer_{std::move(transfer)},
        unit_{unit},
        memory_{transfer_->places()[unit].memory},
        key_{transfer_->extent().name(), transfer_->unit_at(unit).name()},
        ticket_{std::move(ticket)} {}

 protected:
  /// What O_DIRECT can move.
  bool aligned() const {
    return !store_->files().direct() || (reinterpret_cast<std::uintptr_t>(memory_.data()) % disk_block == 0 &&
                                         memory_.size() % disk_block == 0);
  }
  /// What it holds of the store.
  virtual void give_back() = 0;
  /// Before anybody hears of its end: who hears it may close the store, and open it again.
  void let_go() {
    give_back();
    buffer_ = {};
    ticket_.reset();
    store_.reset();
  }
  /// To its end, with a verdict.
  void over(bool served) {
    let_go();
    transfer_->decided(unit_, served);
    transfer_->access_ended(unit_);
  }
  void fails(const std::string& why) {
    let_go();
    transfer_->fails(fmt::format("segment: {}: {}", unit_text(transfer_->unit_at(unit_)), why));
    transfer_->access_ended(unit_);
  }

  std::shared_ptr<segment_store> store_;  // goes last: buffers and tickets are its own
  const std::shared_ptr<segment_transfer> transfer_;
  const std::size_t unit_;
  const std::span<std::byte> memory_;
  const unit_key key_;
  std::shared_ptr<void> ticket_;
  aligned_buffer buffer_;
};

/// Straight into the slot when both are aligned and the store has seen this writing of the unit to be whole;
/// then the checksum alone is left to check. Else, header and all, into a bounce buffer, and from there when
/// everything was found right: so what was torn or lost leaves the slot as it was (semantics 2.11).
class fetch_operation final : public disk_operation,
                              public unit_operation,
                              public std::enable_shared_from_this<fetch_operation> {
 public:
  using unit_operation::unit_operation;
  ~fetch_operation() override { give_back(); }

  std::optional<disk_transfer> begin() override {
    if (transfer_->stopped()) return std::nullopt;
    if (!found_) found_ = store_->begin_read(key_);
    if (!found_) return over(false), std::nullopt;
    if (found_->length != memory_.size())
      return fails(fmt::format("it has {} bytes in the store, its slot {}", found_->length, memory_.size())),
             std::nullopt;
    const bool straight = found_->verified && aligned();
    if (!straight && !buffer_) {
      auto taken =
          store_->buffers().take(disk_block + round_to_blocks(found_->length), this->shared_from_this());
      if (!taken) return std::nullopt;  // granted() comes
      buffer_ = std::move(taken);
    }
    if (!transfer_->begins(unit_)) return std::nullopt;
    const auto at = segment_geometry::offset(found_->place.slot, unit_bytes_for(found_->length));
    disk_transfer t{disk_transfer::way::read, store_->files().file(found_->place.segment), at, {}, 1};
    if (straight) {
      transfer_->touch(unit_, touch_kind::write);
      t.offset += disk_block;
      t.parts[0] = {memory_.data(), memory_.size()};
    } else {
      t.parts[0] = {buffer_.bytes().data(), disk_block + round_to_blocks(found_->length)};
    }
    return t;
  }

  void end(int problem) override {
    if (problem != 0) return fails(fmt::format("reading: {}", std::strerror(problem)));
    // It was being written until now.
    transfer_->touch(unit_, touch_kind::write);
    const auto unit = *found_;
    const bool straight = !buffer_;
    const bool right = straight ? checksum_of(memory_) == unit.checksum : bounced_right();
    if (right && !straight && !transfer_->stopped())
      std::memcpy(memory_.data(), buffer_.bytes().data() + disk_block, memory_.size());
    buffer_ = {};
    if (!right) store_->remove(key_, unit);
    end_read(right);
    if (!right && straight) return fails("its bytes on disk have changed since they were written");
    over(right);
  }

  void granted(aligned_buffer buffer) override {
    buffer_ = std::move(buffer);
    store_->engine().submit({this->shared_from_this()});
  }

 private:
  bool bounced_right() const {
    const auto header = decode_frame(buffer_.bytes().first(disk_block));
    const unit_frame expected{key_.extent, key_.name, found_->length, found_->generation, found_->checksum};
    return header && *header == expected &&
           checksum_of(buffer_.bytes().subspan(disk_block, memory_.size())) == expected.checksum;
  }
  void give_back() override { end_read(false); }
  void end_read(bool right) {
    if (const auto unit = std::exchange(found_, std::nullopt)) store_->end_read(*unit, right);
  }

  std::optional<stored_unit> found_;  ///< while the store knows that it is read
};

/// Header and payload are one vectored write, so that one completion covers both. Visible only after it.
class publish_operation final : public incoming_unit,
                                public unit_operation,
                                public std::enable_shared_from_this<publish_operation> {
 public:
  using unit_operation::unit_operation;
  ~publish_operation() override { give_back(); }

  std::optional<disk_transfer> begin() override {
    if (transfer_->stopped()) return std::nullopt;
    if (const auto there = store_->find(key_); there && there->verified)
      return there->length == memory_.size() ? over(true) : fails(other_size(there->length)), std::nullopt;
    const auto self = this->shared_from_this();
    if (!reserved_) {
      auto found = store_->place(self);
      if (!found) return fails(found.error().text), std::nullopt;
      if (!*found) return std::nullopt;  // placed() or settled() comes
      reserved_ = std::move(*found);
    }
    if (!buffer_) {
      auto taken =
          store_->buffers().take(disk_block + (aligned() ? 0 : round_to_blocks(memory_.size())), self);
      if (!taken) return std::nullopt;  // granted() comes
      buffer_ = std::move(taken);
    }
    if (!transfer_->begins(unit_)) return std::nullopt;
    transfer_->touch(unit_, touch_kind::read);
    const auto header = buffer_.bytes().first(disk_block);
    disk_transfer t{disk_transfer::way::write,
                    store_->files().file(reserved_->place.segment),
                    segment_geometry::offset(reserved_->place.slot, reserved_->unit_bytes),
                    {iovec{header.data(), disk_block}, iovec{memory_.data(), memory_.size()}},
                    2};
    auto payload = memory_;
    if (!aligned()) {
      const auto padded = buffer_.bytes().subspan(disk_block, round_to_blocks(memory_.size()));
      std::memcpy(padded.data(), memory_.data(), memory_.size());
      std::memset(padded.data() + memory_.size(), 0, padded.size() - memory_.size());
      payload = padded.first(memory_.size());
      t.parts[0].iov_len += padded.size();
      t.count = 1;
    }
    checksum_ = checksum_of(payload);
    const auto encoded =
        encode_frame({key_.extent, key_.name, memory_.size(), reserved_->generation, checksum_}, header);
    if (!encoded) return fails(encoded.error().text), std::nullopt;
    return t;
  }

  void end(int problem) override {
    if (problem == 0) transfer_->touch(unit_, touch_kind::read);  // it was being read until now
    buffer_ = {};
    if (problem != 0) return fails(fmt::format("writing: {}", std::strerror(problem)));
    transfer_->access_ended(unit_);
    store_->commit(this->shared_from_this());
  }

  std::shared_ptr<segment_store> store() const noexcept override { return store_; }
  const unit_key& key() const noexcept override { return key_; }
  std::uint64_t length() const noexcept override { return memory_.size(); }
  stored_unit written() const noexcept override {
    return {reserved_->place, reserved_->generation, memory_.size(), checksum_, true};
  }
  void placed(const segment_index::reservation& at) override { reserved_ = at; }
  void settled(const result<segment_index::inserted>& how) override {
    reserved_.reset();
    how_ = how;
  }
  void tell() override {
    if (!how_) return fails(how_.error().text);
    if (*how_ == segment_index::inserted::other_size) return fails("it was published with another size");
    over(true);
  }
  void granted(aligned_buffer buffer) override {
    buffer_ = std::move(buffer);
    store_->engine().submit({this->shared_from_this()});
  }

 private:
  void give_back() override {
    if (const auto place = std::exchange(reserved_, std::nullopt)) store_->cancel(place->place);
  }
  std::string other_size(std::uint64_t stored) const {
    return fmt::format("it has {} bytes in the store, its slot {}", stored, memory_.size());
  }

  std::optional<segment_index::reservation> reserved_;  ///< its own place, from placed() to settled()
  std::uint64_t checksum_ = 0;
  result<segment_index::inserted> how_ = segment_index::inserted::added;
};

}  // namespace

disk_operations operations_of(const std::shared_ptr<segment_store>& store,
                              const std::shared_ptr<segment_transfer>& transfer,
                              const std::shared_ptr<void>& ticket) {
  disk_operations all;
  all.reserve(transfer->places().size());
  for (std::size_t i = 0; i < transfer->places().size(); ++i)
    if (transfer->way() == direction::fetch)
      all.push_back(std::make_shared<fetch_operation>(store, transfer, i, ticket));
    else
      all.push_back(std::make_shared<publish_operation>(store, transfer, i, ticket));
  return all;
}

}  // namespace kvlease

#include "src/page_moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace kvlease {

void add_copies(copy_batch& batch, const page_row& row, std::uintptr_t host) {
  const auto add = [&](std::uintptr_t page, std::size_t nbytes) {
    batch.rows.push_back(batch.kind == copy_kind::host_to_device ? copy_row{page, host, nbytes}
                                                                 : copy_row{host, page, nbytes});
    host += nbytes;
  };
  if (row.pieces.empty()) return add(row.address, row.nbytes);
  for (const auto& piece : row.pieces) add(piece.address, piece.nbytes);
}

page_moves::page_moves(std::shared_ptr<device_port> device, std::shared_ptr<memory_block> through,
                       id_source<copy_id> copies)
    : device_{std::move(device)}, through_{std::move(through)}, copies_{std::move(copies)} {}

result<move_effects> page_moves::start(page_move move) {
  move_effects out;
  const auto at = reinterpret_cast<std::uintptr_t>(move.buffer->data());
  if (device_ == nullptr || device_->reaches(at, move.buffer->size())) {
    next_part({std::move(move), true}, out);
    return out;
  }
  const auto room = through_ == nullptr ? 0 : through_->size();
  for (const auto& row : move.rows)
    if (row.nbytes > room)
      return fail(
          errc::invalid,
          fmt::format("the device does not reach the buffer, and a row of {} bytes does not fit the {} "
                      "bytes that it could go through",
                      row.nbytes, room));
  if (!through_lost_.empty()) return fail(errc::device, "page access is unproven: " + through_lost_);
  waiting_.push_back(std::move(move));
  next_waiting(out);
  return out;
}

void page_moves::next_waiting(move_effects& out) {
  if (through_busy_ || waiting_.empty()) return;
  through_busy_ = true;
  auto move = std::move(waiting_.front());
  waiting_.pop_front();
  next_part({std::move(move), false}, out);
}

/// Copies the rows behind `p`, as many as fit at once.
void page_moves::next_part(part p, move_effects& out) {
  p.first_row += std::exchange(p.rows, 0);
  p.offset += std::exchange(p.nbytes, 0);
  auto batch = std::make_shared<copy_batch>();
  batch->kind = p.move.kind;
  const auto host = p.direct ? reinterpret_cast<std::uintptr_t>(p.move.buffer->data()) : through_->address();
  while (p.first_row + p.rows < p.move.rows.size()) {
    const auto& row = p.move.rows[p.first_row + p.rows];
    if (!p.direct && p.nbytes + row.nbytes > through_->size()) break;
    add_copies(*batch, row, host + p.nbytes);
    p.nbytes += row.nbytes;
    ++p.rows;
  }
  if (!p.direct && p.move.kind == copy_kind::host_to_device)
    std::memcpy(reinterpret_cast<void*>(host), p.move.buffer->data() + p.offset, p.nbytes);
  const auto copy = copies_.next();
  // The batch keeps what it copies from or into: the device keeps the batch until it has run.
  std::shared_ptr<const copy_batch> kept{
      batch.get(), [batch, buffer = p.move.buffer, through = through_](const copy_batch*) {}};
  out.emplace_back(move_effect::copy{copy, std::move(kept)});
  under_way_.emplace(copy, std::move(p));
}

move_effects page_moves::on_complete(copy_id copy) {
  move_effects out;
  const auto it = under_way_.find(copy);
  assert(it != under_way_.end());
  auto p = std::move(it->second);
  under_way_.erase(it);
  if (!p.direct && p.move.kind == copy_kind::device_to_host)
    std::memcpy(p.move.buffer->data() + p.offset, reinterpret_cast<const void*>(through_->address()),
                p.nbytes);
  if (p.first_row + p.rows < p.move.rows.size()) {
    next_part(std::move(p), out);
    return out;
  }
  out.emplace_back(move_effect::ended{p.move.pin, std::nullopt});
  if (!p.direct) {
    through_busy_ = false;
    next_waiting(out);
  }
  return out;
}

move_effects page_moves::on_lost(copy_id copy, const std::string& reason) {
  move_effects out;
  const auto it = under_way_.find(copy);
  assert(it != under_way_.end());
  const auto p = std::move(it->second);
  under_way_.erase(it);
  out.emplace_back(move_effect::ended{p.move.pin, reason});
  if (p.direct) return out;
  through_lost_ = reason;  // the copy may still run
  for (const auto& m : std::exchange(waiting_, {})) out.emplace_back(move_effect::ended{m.pin, reason});
  return out;
}

move_effects page_moves::lose_all(const std::string& reason) {
  move_effects out;
  for (const auto& [copy, p] : std::exchange(under_way_, {}))
    out.emplace_back(move_effect::ended{p.move.pin, reason});
  for (const auto& m : std::exchange(waiting_, {})) out.emplace_back(move_effect::ended{m.pin, reason});
  return out;
}

}  // namespace kvlease

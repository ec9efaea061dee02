// The engine's own access to its pages, move by move: which copies it takes and when it has ended.
// Where the device reaches the caller's buffer, a move is one copy, and moves run side by side. Where it does
// not (pageable memory beside a GPU), the bytes go part by part through one page-locked block, and such moves
// wait for each other.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "messages/copies.hpp"
#include "messages/ids.hpp"
#include "messages/pages.hpp"
#include "src/include/kvlease/device_port.hpp"

namespace kvlease {

/// Adds the copies between one page and the host's memory for it: one a piece of the page.
void add_copies(copy_batch& batch, const page_row& row, std::uintptr_t host);

struct page_move {
  pin_id pin;  ///< of its pages; names the move
  copy_kind kind = copy_kind::host_to_device;
  std::vector<page_row> rows;
  std::shared_ptr<std::vector<std::byte>> buffer;  ///< rows back to back
};

namespace move_effect {
struct copy {  ///< → CUDA actor
  copy_id copy;
  std::shared_ptr<const copy_batch> batch;
};
struct ended {
  pin_id pin;
  std::optional<std::string> lost;  ///< why the access is unproven
};
}  // namespace move_effect
using move_effects = std::vector<std::variant<move_effect::copy, move_effect::ended>>;

class page_moves {
 public:
  /// `copies` draws ids. `through`: page-locked, or absent where the device reaches all memory.
  page_moves(std::shared_ptr<device_port> device, std::shared_ptr<memory_block> through,
             id_source<copy_id> copies);

  /// Errors, where it would have to go through the block: invalid, when a row is larger; device, after an
  /// earlier copy through it was lost.
  result<move_effects> start(page_move move);
  move_effects on_complete(copy_id copy);
  move_effects on_lost(copy_id copy, const std::string& reason);
  /// Every move, waiting ones too.
  move_effects lose_all(const std::string& reason);
  bool knows(copy_id copy) const { return under_way_.contains(copy); }
  std::size_t open() const noexcept { return under_way_.size() + waiting_.size(); }

 private:
  struct part {
    page_move move;
    bool direct = true;
    std::size_t first_row = 0, rows = 0;  ///< of this part
    std::size_t offset = 0, nbytes = 0;   ///< in the buffer
  };
  void next_part(part p, move_effects& out);
  void next_waiting(move_effects& out);

  std::shared_ptr<device_port> device_;
  std::shared_ptr<memory_block> through_;
  id_source<copy_id> copies_;
  std::unordered_map<copy_id, part> under_way_;
  std::deque<page_move> waiting_;
  bool through_busy_ = false;
  std::string through_lost_;  ///< why nobody may use the block again
};

}  // namespace kvlease

// Requests and their device pages, as a manager tells of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/ids.hpp"

namespace kvlease {

/// SHA-256 of a block's tokens, chained (scenarios 6.8).
using block_key = std::array<std::byte, 32>;

/// Where a request stands, in tokens.
struct request_info {
  request_id request;
  std::int64_t prompt_tokens = 0;
  std::int64_t committed_tokens = 0;  ///< whole blocks whose content is final; reused blocks at admission
  std::int64_t history_tokens = 0;    ///< computed so far; never below committed_tokens
  std::int64_t capacity_tokens = 0;   ///< pages are held for these
  friend bool operator==(const request_info&, const request_info&) = default;
};

/// Part of a page in a memory pool of its own.
struct page_piece {
  std::uintptr_t address = 0;
  std::size_t nbytes = 0;
  friend bool operator==(const page_piece&, const page_piece&) = default;
};

/// One block of one layer group, and the page that it is in.
struct page_row {
  std::int64_t layer_group = 0;
  std::int64_t ordinal = 0;    ///< block; covers tokens [ordinal * tokens_per_block, +tokens_per_block)
  std::int64_t page = 0;       ///< index in its pool group
  std::uintptr_t address = 0;  ///< device address of the page, or of its first piece
  std::size_t nbytes = 0;      ///< of all pieces
  /// In the order in which they lie in a slot. Empty: the page is one piece.
  std::vector<page_piece> pieces;
  friend bool operator==(const page_row&, const page_row&) = default;
};

/// The manager's answer for one lease: the rows to lend, and the keys to name them by, one a block of the
/// range from its first.
struct lease_pages {
  request_info info;
  std::vector<page_row> rows;
  std::vector<block_key> keys;
};

}  // namespace kvlease

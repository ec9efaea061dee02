// The manager port: what an engine's own KV-cache manager implements (semantics 6, architecture "Embedding").
// It owns device pages, requests and reuse. The paged manager that comes with the library implements it too.
// Threads: all calls come from the manager actor, one at a time; a port that can block is given a thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messages/copies.hpp"
#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "messages/pages.hpp"
#include "messages/staging.hpp"
#include "src/names.hpp"

namespace kvlease {

/// Pages of one size. A page holds one block of one layer group.
struct pool_group_layout {
  std::int64_t page_bytes = 0;
  std::int64_t pages = 0;
  /// How a page is spread over several memory pools: its bytes in each, in the order in which they lie in a
  /// slot; their sum is page_bytes. Empty: one pool.
  std::vector<std::int64_t> pool_bytes;
};

/// Layers that are cached alike; full attention.
struct layer_group_layout {
  std::int64_t pool_group = 0;        ///< index into pool_groups
  std::vector<std::uint32_t> layers;  ///< global layer ids
  shard share{1, 0};                  ///< which share of the content this rank holds (scenarios 6.4)
};

struct manager_layout {
  std::int64_t tokens_per_block = 0;
  std::vector<pool_group_layout> pool_groups;
  std::vector<layer_group_layout> layer_groups;
  std::vector<std::byte> layout_id;  ///< scenarios 6.6
};

struct request_spec {
  token_list prompt;
  reuse_scope scope;
};

struct page_counts {
  std::int64_t total = 0;
  std::int64_t free = 0;
  std::int64_t held = 0;    ///< by requests
  std::int64_t cached = 0;  ///< reusable, referenced by nobody: may be evicted
  std::int64_t pinned = 0;  ///< freed by their request, but a copy may still touch them
  friend bool operator==(const page_counts&, const page_counts&) = default;
};

class manager_port {
 public:
  virtual ~manager_port() = default;
  virtual const manager_layout& layout() const = 0;

  /// Takes in a request under `id` and references the longest reusable prefix of whole blocks that ends
  /// before the last prompt token. Errors: invalid (empty prompt, bad token, id used before).
  virtual result<request_info> admit(request_id id, request_spec spec) = 0;
  virtual result<request_info> describe(request_id id) const = 0;

  /// Holds pages for tokens [0, end). All or nothing. Errors: unknown, invalid, no_memory "no free pages".
  virtual result<request_info> grow(request_id id, std::int64_t end) = 0;

  /// Rows of the whole blocks in `range`, layer group by layer group, in ordinal order within each.
  /// Errors: unknown; invalid when the range is not whole blocks or past the capacity.
  virtual result<std::vector<page_row>> rows(request_id id, token_range range) const = 0;

  /// Keys of the whole prompt blocks in `range`, one a block (scenarios 6.8); hashed once a request.
  virtual result<std::vector<digest>> block_keys(request_id id, token_range range) = 0;

  /// Declares [0, end) computed and final; whole blocks become reusable by content.
  /// Errors: unknown; invalid when not whole blocks, below the committed, past the prompt or the capacity.
  virtual result<request_info> commit(request_id id, std::int64_t end) = 0;

  /// The host's event behind which all that was committed so far is there to be read, recorded on the
  /// manager's stream; the host keeps it until the request has been freed and its leases have ended.
  virtual void written(request_id, event_handle) {}
  /// The event that copies out of the request's pages may start behind. 0: all of the manager's stream.
  virtual event_handle written(request_id) const { return 0; }

  /// Ends the request. Its pages are reused, except those that are pinned (semantics 6.4).
  virtual result<void> free(request_id id) = 0;

  /// Pins those of `wanted` whose page the request still holds, and answers with their indices into
  /// `wanted`, ascending. Never fails: an unknown request pins nothing.
  virtual std::vector<std::size_t> pin(pin_id pin, request_id id, std::span<const page_row> wanted) = 0;

  /// Ends a pin after its copy has completed. Unknown pins are ignored: answers whether it was known.
  virtual bool unpin(pin_id pin) = 0;

  virtual page_counts counts() const = 0;
};

}  // namespace kvlease

// The cache manager that comes with the library: pages of full-attention layers, reuse by content, pins.
// It implements the manager port (src/include/kvlease/manager_port.hpp) over device memory of one or several
// pools a pool group, without ever touching those bytes. Not thread-safe; no call blocks.
//
// Pages. A block of a request takes one page a layer group. A page counts once: held before pinned before
// cached before free (src/page_pool.hpp); free + held + cached + pinned == total, always. The capacity of a
// request is whole blocks, also where it was grown to the middle of one.
//
// Reuse. Whole committed prompt blocks are found by key. A request references the longest resident prefix
// that ends before its last prompt token. A block of which any page is pinned is passed over, and so ends
// the prefix: a pin does not say which way its copy goes, and a pinned page is given to nobody (6.4).
// Where a key is already resident, committing leaves the request its own pages, private and freed with it:
// there is no rebase onto the resident block yet. A block left private whose key has since gone becomes
// resident when a block behind it does, so that no resident block lacks its parent.
// When free pages are short, unreferenced cached blocks are evicted, whole, in the order in which they
// became unreferenced, children before parents (src/reuse_index.hpp). A block counted as cached cannot be
// evicted while another page of it is pinned or a block behind it is in use: "available" leaves it out.
//
// Pins. pin() takes the rows that equal what rows() says now. An answer of no rows leaves nothing to unpin.
// A pin never ended keeps its pages for good. A manager destroyed with a pin left keeps the memory of all its
// pools mapped until the process exits (6.7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "messages/error.hpp"
#include "messages/ids.hpp"
#include "src/include/kvlease/device_port.hpp"
#include "src/include/kvlease/manager_port.hpp"
#include "src/names.hpp"
#include "src/page_pool.hpp"
#include "src/paged_layout.hpp"
#include "src/reuse_index.hpp"

namespace kvlease {

class paged_manager final : public manager_port {
 public:
  /// `pools`: device memory, one block a pool, pool group by pool group. Errors: invalid, naming the field,
  /// its value and the rule.
  static result<std::unique_ptr<paged_manager>> make(paged_manager_options options,
                                                     std::vector<std::shared_ptr<memory_block>> pools);
  ~paged_manager() override;
  paged_manager(const paged_manager&) = delete;
  paged_manager& operator=(const paged_manager&) = delete;

  const manager_layout& layout() const override { return layout_; }
  result<request_info> admit(request_id id, request_spec spec) override;
  result<request_info> describe(request_id id) const override;
  result<request_info> grow(request_id id, std::int64_t end) override;
  result<std::vector<page_row>> rows(request_id id, token_range range) const override;
  result<std::vector<digest>> block_keys(request_id id, token_range range) override;
  result<request_info> commit(request_id id, std::int64_t end) override;
  void written(request_id id, event_handle e) override;
  event_handle written(request_id id) const override;
  result<void> free(request_id id) override;
  /// A pin id that is in use pins nothing. A row given twice is pinned twice, and unpin ends both.
  std::vector<std::size_t> pin(pin_id pin, request_id id, std::span<const page_row> wanted) override;
  bool unpin(pin_id pin) override;
  page_counts counts() const override;

  /// Recounts everything, O(all pages and blocks), for tests. Errors: state, naming what does not add up.
  result<void> check_invariants() const;

 private:
  struct request_state {
    token_list prompt;
    digest root{};
    std::vector<digest> keys;          ///< of the first whole prompt blocks, as far as they were needed
    std::int64_t committed = 0;        ///< blocks
    std::vector<std::int64_t> pages;   ///< block by block, in it one a layer group
    std::vector<cached_block> blocks;  ///< one a block: what it references in the index, or none
    event_handle written = 0;          ///< behind which the committed blocks are there to be read
  };
  struct pool_group {
    std::vector<std::shared_ptr<memory_block>> memory;  ///< one a pool
    page_pool pages;
    std::int64_t pages_per_block = 0;  ///< layer groups that live in it
  };
  struct pinned_page {
    std::size_t pool = 0;
    std::int64_t page = 0;
  };
  /// Every id that was ever admitted, as disjoint ranges: ids are drawn in order, so few.
  class used_ids {
   public:
    bool contains(request_id id) const;
    void add(request_id id);

   private:
    std::map<std::uint64_t, std::uint64_t> ranges_;  ///< first → last
  };

  paged_manager(manager_layout layout, bool reuse, std::optional<incarnation> runtime,
                std::vector<pool_group> pools);

  std::size_t groups() const noexcept { return layout_.layer_groups.size(); }
  std::size_t pool_of(std::size_t layer_group) const {
    return static_cast<std::size_t>(layout_.layer_groups[layer_group].pool_group);
  }
  std::int64_t whole_prompt_blocks(const request_state& r) const;
  request_info info(request_id id, const request_state& r) const;
  page_row row(const request_state& r, std::size_t layer_group, std::int64_t ordinal) const;
  result<void> check_id(request_id id) const;
  /// Hashes the keys of the first `blocks` blocks, unless they are. Precondition: whole prompt blocks.
  void extend_keys(request_state& r, std::int64_t blocks) const;
  void reuse_prefix(request_state& r);
  /// Evicts until `blocks` blocks can be taken. Errors: no_memory, with nothing evicted.
  result<void> make_room(request_id id, std::int64_t blocks);
  void evict_oldest();
  void append_block(request_state& r);
  void make_resident(request_state& r, std::int64_t ordinal);
  result<void> check_pages() const;
  result<void> check_blocks() const;

  manager_layout layout_;
  bool reuse_;
  std::optional<incarnation> runtime_;
  std::vector<pool_group> pools_;
  reuse_index index_;
  std::unordered_map<request_id, request_state> requests_;
  std::unordered_map<pin_id, std::vector<pinned_page>> pins_;
  used_ids used_;
};

}  // namespace kvlease

// One fetch over UCX: which peer is asked for what, what has landed, and what that proves.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/providers/ucx/node.hpp"
#include "src/providers/ucx/source_walk.hpp"
#include "src/providers/unit_transfer.hpp"

namespace kvlease {

/// The peer of a route. `peer` is of the node's thread.
struct ucx_target {
  std::shared_ptr<ucx_client::peer> peer;
};

/// Its outcome may come long before its end of access: that comes only when every landing has had its own
/// callback and none can begin any more.
class ucx_fetch final : public unit_transfer, public ucx_asker {
 public:
  /// `target`: null asks the node's peers, in their order. The node outlives what runs on its thread.
  ucx_fetch(const std::shared_ptr<ucx_node>& node, std::shared_ptr<transfer_book> book,
            const cache_extent& extent, std::shared_ptr<ucx_target> target);

  /// Asks to stop: on the node's thread, soon.
  cancel_disposition request_cancel() override;

  // Once prepared, before begin(); of the submitting thread:
  /// Copies what the own pool has. Errors: a unit of another size. True: nothing is left to ask for.
  result<bool> serve_from(export_pool& pool);
  void deliver();

  // Of the node's thread:
  void begin();
  void cancel();

  std::optional<std::span<std::byte>> land(std::size_t unit) override;
  void landed(std::size_t unit, const unit_frame& frame, const std::string& why, bool by_force) override;
  void absent(std::size_t unit) override;
  void other_size(std::size_t unit, std::uint64_t size) override;
  void lost(std::size_t unit, const std::string& why) override;
  void probed(const std::vector<bool>&) override {}
  void taken_down(const std::string& why) override;

 private:
  std::shared_ptr<ucx_fetch> self() { return std::static_pointer_cast<ucx_fetch>(shared_from_this()); }
  void advance();
  void ask(const source_walk::question& q);
  void decide(outcome o);
  void end_if_over();
  std::string size_text(std::size_t unit, std::uint64_t size) const;

  const std::weak_ptr<ucx_node> node_;  ///< of other threads than the node's
  ucx_node* const on_;                  ///< of the node's own
  const std::shared_ptr<ucx_target> target_;
  source_walk walk_;
  std::size_t landing_ = 0;  ///< units that are being written
  bool over_ = false;        ///< there is an outcome, and nothing begins to land any more
  bool advancing_ = false;
  bool by_force_ = false;
};

}  // namespace kvlease

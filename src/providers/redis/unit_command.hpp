// The commands that move one unit, and those about keys beside them.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "src/providers/redis/routes.hpp"
#include "src/providers/redis/transfer.hpp"

namespace kvlease::redis {

/// GET into the unit's memory, or SET out of it.
std::shared_ptr<command> make_unit_command(std::shared_ptr<routes> by, std::shared_ptr<transfer> of,
                                           std::size_t i);

/// What the commands of one probe find, and who waits for it.
class probe_answers {
 public:
  /// Waits for that many, then answers the hits. Throws std::runtime_error when one had no answer.
  std::set<bytes> wait_for(std::size_t commands);
  void found(const bytes& name, bool is_there);
  void failed(std::string why);

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::size_t answered_ = 0;
  std::set<bytes> hits_;
  std::optional<std::string> problem_;
};

std::shared_ptr<command> make_probe_command(std::shared_ptr<routes> by, std::shared_ptr<probe_answers> to,
                                            const bytes& extent, const bytes& name);

}  // namespace kvlease::redis

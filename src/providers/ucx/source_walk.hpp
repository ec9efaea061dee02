// Which source is asked for which unit, and what a fetch has come to: a pure value. Units go from source to
// source, in order, until one has them; a source that can't be asked is no miss (semantics 1.5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace kvlease {

class source_walk {
 public:
  struct question {
    std::size_t source;
    std::vector<std::size_t> units;  ///< by index, rising
  };

  source_walk(std::size_t units, std::size_t sources) : units_(units), sources_{sources} {}

  /// What to ask now. Each unit of it then needs exactly one of served(), absent() and lost(). A source is
  /// asked once no unit is open at an earlier one, so that its units come in one question.
  std::vector<question> take_questions();
  void served(std::size_t unit);
  void absent(std::size_t unit);
  /// The source could not answer, or broke off. Say it only when it will not write to the unit any more.
  void lost(std::size_t unit, const std::string& why);

  bool done() const noexcept { return settled_ == units_.size(); }
  bool is_served(std::size_t unit) const { return units_[unit].now == stand::served; }
  /// Of a unit that no source had while some source could not be asked: then the fetch has failed. Else
  /// empty.
  const std::string& failure() const noexcept { return failure_; }

 private:
  enum class stand : std::uint8_t { waiting, asked, served, missed };
  struct unit_state {
    stand now = stand::waiting;
    std::size_t source = 0;  ///< asked, or to be asked next
    std::string trouble;     ///< of the last source that was lost on the way
  };
  void next_source(unit_state& u);

  std::vector<unit_state> units_;
  std::size_t sources_;
  std::size_t settled_ = 0;
  std::string failure_;
};

}  // namespace kvlease

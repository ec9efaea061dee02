// Reads tests/model/transitions.txt, the listing of an operation's transitions that the formal model is made
// of, and takes its steps (the file's head tells the rules). Only tests include this.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace kvlease::listing {

struct variable {
  std::string name;
  std::vector<std::string> values;  ///< the first is the initial one
};

/// One line: what must hold, what is assigned, what is done.
struct rule {
  std::vector<std::string> when, then, todo;
};

/// A variable's name to its value's.
using state = std::map<std::string, std::string>;

struct step {
  std::vector<std::string> effects;  ///< in order; without reject
  int rejected = 0;
};

class transitions {
 public:
  /// Throws std::runtime_error, naming the line, where the file is not as its head says.
  explicit transitions(const std::string& path);

  state initial() const;
  const std::vector<std::string>& events() const noexcept { return events_; }
  /// Of all that is written as removed:GUARD or guard:GUARD.
  const std::set<std::string>& guards() const noexcept { return guards_; }
  /// Takes `event` from `s`. `removed`: the guard that is off; empty: none.
  step take(state& s, const std::string& event, const std::string& removed) const;

 private:
  void read_line(const std::string& line);
  void check_condition(const std::string& text);
  void check_assignment(const std::string& text) const;
  bool holds(const state& s, const std::string& condition, const std::string& removed) const;
  void run(const std::vector<rule>& rules, state& s, step& done, const std::string& removed) const;

  std::vector<variable> variables_;
  std::vector<std::string> events_;
  std::map<std::string, std::vector<rule>> on_, subs_;
  std::set<std::string> guards_;
};

}  // namespace kvlease::listing

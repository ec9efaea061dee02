#include "tests/model/listing.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace kvlease::listing {

namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream in{text};
  std::vector<std::string> all;
  for (std::string w; in >> w;) all.push_back(w);
  return all;
}

/// Splits "name=value" and "name!=value".
struct comparison {
  explicit comparison(const std::string& text) {
    const auto at = text.find('=');
    if (at == std::string::npos || at == 0) throw std::runtime_error{"no comparison: " + text};
    equal = text[at - 1] != '!';
    name = text.substr(0, equal ? at : at - 1);
    value = text.substr(at + 1);
  }
  std::string name, value;
  bool equal = true;
};

const std::string removed_prefix = "removed:", guard_prefix = "guard:";

}  // namespace

transitions::transitions(const std::string& path) {
  std::ifstream in{path};
  if (!in) throw std::runtime_error{"cannot read " + path};
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    try {
      read_line(line.substr(0, line.find('#')));
    } catch (const std::exception& e) {
      throw std::runtime_error{path + ":" + std::to_string(number) + ": " + e.what()};
    }
  }
  for (const auto* of : {&on_, &subs_})
    for (const auto& [name, rules] : *of)
      for (const auto& r : rules)
        for (const auto& d : r.todo)
          if (on_.contains(d)) throw std::runtime_error{path + ": " + name + " does an event: " + d};
}

void transitions::read_line(const std::string& line) {
  const auto head = words(line.substr(0, line.find('|')));
  if (head.empty()) return;
  if (head[0] == "var" && head.size() > 2) {
    variables_.push_back({head[1], {head.begin() + 2, head.end()}});
    return;
  }
  if ((head[0] != "on" && head[0] != "sub") || head.size() != 2)
    throw std::runtime_error{"neither var, on nor sub: " + line};
  std::vector<std::string> fields;
  std::istringstream in{line.substr(line.find('|') + 1)};
  for (std::string f; std::getline(in, f, '|');) fields.push_back(f);
  if (line.ends_with('|')) fields.emplace_back();
  if (fields.size() != 3) throw std::runtime_error{"not three fields behind the name: " + line};
  const rule r{words(fields[0]), words(fields[1]), words(fields[2])};
  for (const auto& c : r.when) check_condition(c);
  for (const auto& a : r.then) check_assignment(a);
  if (head[0] == "on" && !on_.contains(head[1])) events_.push_back(head[1]);
  (head[0] == "on" ? on_ : subs_)[head[1]].push_back(r);
}

void transitions::check_condition(const std::string& text) {
  for (const auto& prefix : {removed_prefix, guard_prefix})
    if (text.starts_with(prefix)) {
      guards_.insert(text.substr(prefix.size()));
      return;
    }
  check_assignment(text);
}

void transitions::check_assignment(const std::string& text) const {
  const comparison c{text};
  const auto known = [&](const variable& v) {
    return v.name == c.name && std::ranges::find(v.values, c.value) != v.values.end();
  };
  if (std::ranges::none_of(variables_, known)) throw std::runtime_error{"no such variable or value: " + text};
}

state transitions::initial() const {
  state s;
  for (const auto& v : variables_) s[v.name] = v.values.front();
  return s;
}

bool transitions::holds(const state& s, const std::string& condition, const std::string& removed) const {
  if (condition.starts_with(removed_prefix)) return condition.substr(removed_prefix.size()) == removed;
  if (condition.starts_with(guard_prefix)) return condition.substr(guard_prefix.size()) != removed;
  const comparison c{condition};
  return (s.at(c.name) == c.value) == c.equal;
}

void transitions::run(const std::vector<rule>& rules, state& s, step& done,
                      const std::string& removed) const {
  const auto taken = std::ranges::find_if(rules, [&](const rule& r) {
    return std::ranges::all_of(r.when, [&](const auto& c) { return holds(s, c, removed); });
  });
  if (taken == rules.end()) return;
  for (const auto& a : taken->then) {
    const comparison c{a};
    s[c.name] = c.value;
  }
  for (const auto& d : taken->todo) {
    if (const auto sub = subs_.find(d); sub != subs_.end())
      run(sub->second, s, done, removed);
    else if (d == "reject")
      ++done.rejected;
    else
      done.effects.push_back(d);
  }
}

step transitions::take(state& s, const std::string& event, const std::string& removed) const {
  step done;
  run(on_.at(event), s, done, removed);
  return done;
}

}  // namespace kvlease::listing

// Checks a journal against what must hold (semantics.md), offline. A model reads the records in order and
// says which is the first that breaks a rule. Pure. docs/journal.md lists which rules a journal shows.
//
// A journal that begins late, or has lost records, can't be held to what came before: then only what the
// model has seen from its beginning is checked, and `whole` is false.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "src/journal.hpp"

namespace kvlease {

struct broken_rule {
  std::uint64_t sequence = 0;  ///< of the record that breaks it
  std::string rule;  ///< its number in semantics.md, "4.7"; "form" where it is no record that there is
  std::string what;  ///< one line: the record, and what it contradicts
};

struct journal_model;

class journal_checker {
 public:
  explicit journal_checker(incarnation of);
  ~journal_checker();
  journal_checker(const journal_checker&) = delete;
  journal_checker& operator=(const journal_checker&) = delete;

  /// The next record. False once a rule is broken; what follows is not looked at.
  bool read(const journal_record& r);
  const std::optional<broken_rule>& broken() const noexcept;
  bool whole() const noexcept;
  std::uint64_t records() const noexcept;
  /// Operations and leases that are open at the end.
  std::size_t operations_open() const noexcept;
  std::size_t leases_open() const noexcept;

 private:
  std::unique_ptr<journal_model> model_;
};

struct journal_verdict {
  std::optional<broken_rule> broken;
  bool whole = true;
  std::uint64_t records = 0;
  std::size_t operations_open = 0, leases_open = 0;
};
journal_verdict check_journal(incarnation of, std::span<const journal_record> records);

}  // namespace kvlease

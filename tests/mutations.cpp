#include "tests/mutations.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "actors/guard.hpp"

namespace kvlease {

namespace {

/// One named mutation, and how to switch it on.
struct mutant {
  std::string name;
  void (*apply)();
  bool covered = false;
};

#define KVLEASE_CORE_MUTANT(name) mutant{#name, [] { mutate(mutation::name); }},
#define KVLEASE_ACTOR_MUTANT(name) mutant{#name, [] { mutate(actor_mutation::name); }},
std::vector<mutant>& core_mutants() {
  static std::vector<mutant> all{KVLEASE_FOR_EACH_MUTATION(KVLEASE_CORE_MUTANT)};
  return all;
}
/// Empty where the actors have none: neither a name nor a switch of theirs is in this program then.
std::vector<mutant>& actor_mutants() {
#ifdef KVLEASE_MUTABLE_ACTORS
  static std::vector<mutant> all{KVLEASE_FOR_EACH_ACTOR_MUTATION(KVLEASE_ACTOR_MUTANT)};
#else
  static std::vector<mutant> all;
#endif
  return all;
}
#undef KVLEASE_CORE_MUTANT
#undef KVLEASE_ACTOR_MUTANT

struct registered {
  mutant* what;
  std::string pattern;
};
std::vector<registered>& registry() {
  static std::vector<registered> all;
  return all;
}

template <class M>
void add(std::vector<mutant>& of, M m, const char* pattern) {
  if (of.empty()) return;
  auto& found = of.at(static_cast<std::size_t>(m) - 1);  // the first is none
  found.covered = true;
  registry().push_back({&found, pattern});
}

/// Exit codes of a run in its child process.
constexpr int passed = 0, asserted = 1, ran_nothing = 2;

[[noreturn]] void run_cases(const mutant* m, const std::string& pattern) {
  alarm(60);  // a mutated run that hangs has not failed by an assertion
  if (m != nullptr) m->apply();
  std::ostringstream output;
  doctest::Context context;
  context.addFilter("test-case", pattern.c_str());
  context.setOption("no-breaks", true);
  context.setOption("abort-after", 1);
  context.setCout(&output);
  const int code = context.run();
  const auto text = output.str();
  const bool crashed = text.find("CRASHED") != std::string::npos;
  const bool empty = text.find("test cases: 0 ") != std::string::npos;
  _exit(crashed ? 3 : empty ? ran_nothing : code == 0 ? passed : asserted);
}

/// How a run ended: an exit code of above, 3 for a crash, 100 + signal for a death.
int in_child(const mutant* m, const std::string& pattern) {
  std::fflush(nullptr);
  const auto child = fork();
  if (child == 0) run_cases(m, pattern);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

}  // namespace

broken_by::broken_by(mutation m, const char* pattern) { add(core_mutants(), m, pattern); }
broken_by::broken_by(actor_mutation m, const char* pattern) { add(actor_mutants(), m, pattern); }

int check_mutations(std::string_view only) {
  int problems = 0, checked = 0;
  for (const auto& [what, pattern] : registry()) {
    if (!what->name.starts_with(only)) continue;
    ++checked;
    const int plain = in_child(nullptr, pattern);
    const int broken = plain == passed ? in_child(what, pattern) : plain;
    const bool good = plain == passed && broken == asserted;
    problems += good ? 0 : 1;
    std::printf("%s %-28s %s%s\n", good ? "caught " : "MISSED ", what->name.c_str(), pattern.c_str(),
                good                   ? ""
                : plain == ran_nothing ? ": no such test case"
                : plain != passed      ? ": fails without the mutation"
                : broken == passed     ? ": passes with the guard removed"
                                       : ": did not end by an assertion");
  }
  for (const auto* of : {&core_mutants(), &actor_mutants()})
    for (const auto& m : *of)
      if (!m.covered && m.name.starts_with(only)) {
        ++problems;
        std::printf("MISSED  %-28s no test case is registered for it\n", m.name.c_str());
      }
  std::printf("%zu mutations of the core, %zu of the actors; %d registrations, %d problems\n",
              core_mutants().size(), actor_mutants().size(), checked, problems);
  return problems == 0 ? 0 : 1;
}

}  // namespace kvlease

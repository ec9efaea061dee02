#include "tests/mutations.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace kvlease {

namespace {

#define KVLEASE_MUTATION_TEXT(name) #name,
constexpr auto mutation_names =
    std::to_array<const char*>({"none", KVLEASE_FOR_EACH_MUTATION(KVLEASE_MUTATION_TEXT)});
#undef KVLEASE_MUTATION_TEXT

std::vector<std::pair<mutation, std::string>>& registry() {
  static std::vector<std::pair<mutation, std::string>> all;
  return all;
}

/// Exit codes of a run in its child process.
constexpr int passed = 0, asserted = 1, ran_nothing = 2;

[[noreturn]] void run_cases(mutation m, const std::string& pattern) {
  alarm(60);  // a mutated run that hangs has not failed by an assertion
  mutate(m);
  std::ostringstream output;
  doctest::Context context;
  context.addFilter("test-case", pattern.c_str());
  context.setOption("no-breaks", true);
  context.setCout(&output);
  const int code = context.run();
  const auto text = output.str();
  const bool crashed = text.find("CRASHED") != std::string::npos;
  const bool empty = text.find("test cases: 0 ") != std::string::npos;
  _exit(crashed ? 3 : empty ? ran_nothing : code == 0 ? passed : asserted);
}

/// How a run ended: an exit code of above, 3 for a crash, 100 + signal for a death.
int in_child(mutation m, const std::string& pattern) {
  std::fflush(nullptr);
  const auto child = fork();
  if (child == 0) run_cases(m, pattern);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

}  // namespace

broken_by::broken_by(mutation m, const char* pattern) { registry().emplace_back(m, pattern); }

int check_mutations() {
  int problems = 0;
  std::vector<bool> covered(mutation_names.size());
  for (const auto& [m, pattern] : registry()) {
    const auto* name = mutation_names.at(static_cast<std::size_t>(m));
    covered[static_cast<std::size_t>(m)] = true;
    const int plain = in_child(mutation::none, pattern);
    const int broken = plain == passed ? in_child(m, pattern) : plain;
    const bool good = plain == passed && broken == asserted;
    problems += good ? 0 : 1;
    std::printf("%s %-28s %s%s\n", good ? "caught " : "MISSED ", name, pattern.c_str(),
                good                   ? ""
                : plain == ran_nothing ? ": no such test case"
                : plain != passed      ? ": fails without the mutation"
                : broken == passed     ? ": passes with the guard removed"
                                       : ": did not end by an assertion");
  }
  for (std::size_t i = 1; i < covered.size(); ++i)
    if (!covered[i]) {
      ++problems;
      std::printf("MISSED  %-28s no test case is registered for it\n", mutation_names[i]);
    }
  std::printf("%zu mutations, %d problems\n", registry().size(), problems);
  return problems == 0 ? 0 : 1;
}

}  // namespace kvlease

// 4.8 on class containment itself: threads are what the rule is about. Every wait is bounded.
#include "src/containment.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <future>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/mutations.hpp"

using namespace kvlease;
using namespace std::chrono_literals;

namespace {

const broken_by guards[] = {
    {mutation::contain_thread_late, "4.8 containment: the thread is made at start"},
    {mutation::contain_inline, "4.8 containment: a blocked callback *"},
    {mutation::contain_repeats, "4.8 containment: only the first *"},
};

fatal_record record(std::string reason) {
  return {owner_id{1}, request_id{2}, direction::fetch, std::move(reason), {}, {}, {}};
}

/// This process's threads. Others may end meanwhile, left behind by earlier tests; none begins.
std::set<std::string> threads() {
  std::set<std::string> ids;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"})
    ids.insert(task.path().filename());
  return ids;
}
std::set<std::string> threads_since(const std::set<std::string>& before) {
  std::set<std::string> fresh;
  for (const auto& id : threads())
    if (!before.contains(id)) fresh.insert(id);
  return fresh;
}

/// Does `holds` become true within the time?
template <class F>
bool soon(F holds, int milliseconds = 2000) {
  for (int i = 0; i < milliseconds && !holds(); ++i) std::this_thread::sleep_for(1ms);
  return holds();
}

}  // namespace

TEST_CASE("4.8 containment: the thread is made at start") {
  const auto before = threads();
  std::promise<std::string> called;
  containment c{[&](const fatal_record&) { called.set_value(std::to_string(gettid())); }};
  const auto made = threads_since(before);
  CHECK(made.size() == 1);
  c.trigger(record("x"));
  auto id = called.get_future();
  REQUIRE(id.wait_for(5s) == std::future_status::ready);
  CHECK(made.contains(id.get()));
  CHECK(soon([&] { return threads_since(before).empty(); }));
}

TEST_CASE("4.8 containment: only the first trigger calls, with its record") {
  std::atomic<int> calls{0};
  std::promise<fatal_record> got;
  containment c{[&](const fatal_record& f) {
    if (calls++ == 0) got.set_value(f);
  }};
  c.trigger(record("first"));
  c.trigger(record("second"));
  auto f = got.get_future();
  REQUIRE(f.wait_for(5s) == std::future_status::ready);
  c.trigger(record("third"));
  CHECK(f.get() == record("first"));
  CHECK_FALSE(soon([&] { return calls > 1; }, 50));
}

TEST_CASE("4.8 containment: a blocked callback delays neither trigger nor destruction") {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto entered = std::make_shared<std::promise<void>>();
  const auto left = std::make_shared<std::promise<void>>();
  auto done = left->get_future();
  {
    containment c{[open = gate->get_future().share(), entered, left](const fatal_record&) {
      entered->set_value();
      static_cast<void>(open.wait_for(10s));
      left->set_value();
    }};
    c.trigger(record("x"));
    REQUIRE(entered->get_future().wait_for(5s) == std::future_status::ready);
    c.trigger(record("y"));
    CHECK_FALSE(c.failed());
  }
  CHECK(done.wait_for(0s) == std::future_status::timeout);  // it blocks still, and all of that has passed
  gate->set_value();
  CHECK(done.wait_for(5s) == std::future_status::ready);
}

TEST_CASE("4.8 containment: a callback that throws is noted, and not called again") {
  std::atomic<int> calls{0};
  containment c{[&](const fatal_record&) {
    ++calls;
    throw std::runtime_error{"broke"};
  }};
  CHECK_FALSE(c.failed());
  c.trigger(record("x"));
  CHECK(soon([&] { return c.failed(); }));
  c.trigger(record("x"));
  CHECK(calls == 1);
}

TEST_CASE("4.8 containment: without a fatal nothing is called, and the thread ends") {
  const auto before = threads();
  std::atomic<int> calls{0};
  {
    containment c{[&](const fatal_record&) { ++calls; }};
    CHECK(threads_since(before).size() == 1);
  }
  CHECK(soon([&] { return threads_since(before).empty(); }));
  CHECK(calls == 0);
}

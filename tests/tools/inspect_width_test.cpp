// Nothing that `kvlease inspect` prints for people is wider than its terminal, and what matters most stays.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/fake_inspection.hpp"
#include "tools/inspect/render_json.hpp"
#include "tools/inspect/table.hpp"
#include "tools/inspect/text_width.hpp"
#include "tools/inspect/top_model.hpp"
#include "tools/inspect/views.hpp"

namespace {

using namespace kvlease;
using namespace kvlease::inspect;
using nlohmann::json;

constexpr std::size_t widths[] = {40, 60, 80, 100, 160};

/// Long ids, long reasons, wide characters.
json crowded() {
  auto s = test::some_snapshot();
  s.operations[0].id = test::id_of<operation_id>(1'234'567);
  s.operations[0].outcome =
      "failed(the provider said something that takes a hundred columns and more, as providers do)";
  s.operations[0].reasons = {held_reason::backend_access_running, held_reason::consumer_reading,
                             held_reason::shutdown_drain};
  s.leases[0].id = test::id_of<lease_id>(1'234'568);
  s.leases[0].reasons = s.operations[0].reasons;
  s.registrations[0].reason =
      "deregistration failed: 登録を解除できません, and the handle is kept to be tried again";
  s.owners[0].drain_reason = "backend access end unproven: the provider can't tell what becomes of it";
  s.providers[0].uri = "memory:?bytes=2147483648&latency=10us&bandwidth=1000000000";
  s.providers[0].proofs = {"terminal_status", "flush", "endpoint_closed", "registration_revoked"};
  s.devices[0].lost = "an illegal memory access was encountered on the manager's stream";
  s.holds = {
      "hold 1.1 of a manager with a name that is longer than any terminal is wide, by far and for ever"};
  s.draining = true;
  return json::parse(
      snapshot_json(s, health::held, {.drain = drain_note{"requests", 3, std::chrono::seconds{12}}}));
}

json long_answer() {
  auto e = test::some_explanation({subject_kind::lease, "1.1234568"});
  e.holders[0].evidence = "none can come: the submission of operation 1.1234567 escaped without an attempt";
  e.holders[0].last_evidence = "submission: " + std::string(90, 'x') + " and " + std::string(30, 'y');
  return json::parse(why_json(e));
}

bool any_has(const std::vector<std::string>& lines, std::string_view text) {
  return std::ranges::any_of(lines, [text](const auto& l) { return l.find(text) != std::string::npos; });
}

void check_fits(const std::vector<std::string>& lines, std::size_t width) {
  for (const auto& l : lines) {
    CAPTURE(l);
    CHECK(width_without_escapes(l) <= width);
    CHECK(l.find('\n') == std::string::npos);
  }
}

TEST_CASE("inspect width: every list fits, and shows which it is and why it is held") {
  const auto s = crowded();
  for (const auto width : widths)
    for (const bool colour : {false, true}) {
      CAPTURE(width);
      for (const auto what : listable) {
        CAPTURE(std::string{what});
        const auto lines = lay_out(list_table(s, what), {width, colour});
        CHECK(lines.size() == 1 + s[std::string{what}].size());  // never a second line for one thing
        check_fits(lines, width);
      }
      const auto operations = lay_out(list_table(s, "operations"), {width, colour});
      CHECK(any_has(operations, "1.1234567"));
      CHECK(any_has(operations, "backend_access_running"));
      const auto leases = lay_out(list_table(s, "leases"), {width, colour});
      CHECK(any_has(leases, "1.1234568"));
      CHECK(any_has(leases, "backend_access_running"));
      CHECK(any_has(leases, "lent_not_submitted"));
      CHECK(any_has(lay_out(list_table(s, "actors"), {width, colour}), "stuck"));
      CHECK(any_has(lay_out(list_table(s, "pools"), {width, colour}), "QUARANTINED"));
      CHECK(any_has(lay_out(list_table(s, "registrations"), {width, colour}), "registered"));
    }
}

TEST_CASE("inspect width: without a terminal nothing is cut, and there is no colour") {
  const auto s = crowded();
  for (const auto what : listable)
    for (const auto& line : lay_out(list_table(s, what), {})) {
      CHECK(line.find('\x1b') == std::string::npos);
      CHECK(line.find("…") == std::string::npos);
    }
  const auto operations = lay_out(list_table(s, "operations"), {});
  CHECK(any_has(operations, "backend_access_running, consumer_reading, shutdown_drain"));
  CHECK(any_has(operations, "as providers do)"));
  for (const auto* head : {"OPERATION", "REQUEST", "LEASE", "PROOF", "FATAL IN"})
    CHECK(any_has(operations, head));
}

TEST_CASE("inspect width: the least valuable columns go first") {
  const auto s = json::parse(snapshot_json(test::some_snapshot(), health::held));
  const auto heads = [&](std::size_t width) {
    return lay_out(list_table(s, "operations"), {width, false})[0];
  };
  CHECK(heads(160).find("LEASE") != std::string::npos);
  CHECK(heads(80).find("PROOF") == std::string::npos);
  CHECK(heads(80).find("AGE") != std::string::npos);
  CHECK(heads(60).find("FATAL IN") != std::string::npos);
  CHECK(heads(40).find("FATAL IN") == std::string::npos);
}

TEST_CASE("inspect width: why and health fold at words, and lose nothing") {
  const auto w = long_answer();
  for (const auto width : widths) {
    CAPTURE(width);
    const auto lines = why_lines(w, {width, true});
    check_fits(lines, width);
    std::string all;
    for (const auto& l : why_lines(w, {width, false}))
      for (const char c : l)
        if (c != ' ') all += c;
    CHECK(all.find("nonecancome:thesubmissionofoperation1.1234567escapedwithoutanattempt") !=
          std::string::npos);
    CHECK(all.find(std::string(90, 'x') + "and" + std::string(30, 'y')) != std::string::npos);
    check_fits(summary_lines(crowded(), {width, true}), width);
    check_fits({event_line(json{{"what", "operation_released"},
                                {"from", "deadline_arbiter"},
                                {"operation", "1.1234567"},
                                {"lease", "1.1234568"},
                                {"request", "1.99"}},
                           {width, true}),
                event_line(json{{"lost", 12345678}}, {width, true})},
               width);
  }
}

TEST_CASE("inspect width: every picture of top fits, in each view") {
  const auto press = [](top_model& m, char c) { m.press({key_kind::character, c}); };
  for (const auto width : {std::size_t{2}, std::size_t{10}, std::size_t{40}, std::size_t{60}, std::size_t{80},
                           std::size_t{100}, std::size_t{160}})
    for (const bool colour : {false, true}) {
      CAPTURE(width);
      top_model m;
      m.show(crowded());
      const auto fits = [&] { check_fits(m.draw({width, 24}, colour), width); };
      fits();
      if (width >= 40) {
        CHECK(any_has(m.draw({width, 24}, colour), "1.1234567"));
        CHECK(any_has(m.draw({width, 24}, colour), "backend_access_running"));
      }
      m.press({key_kind::enter, 0});
      m.show_why(json::parse(why_json(test::some_explanation({subject_kind::operation, "1.1234567"}))));
      fits();
      m.press({key_kind::escape, 0});
      press(m, '?');
      fits();
      press(m, '?');
      m.press({key_kind::tab, 0});
      fits();
      for (const char c : std::string{"/something that is long and is not there at all, really not"})
        press(m, c);
      fits();
      m.trouble(std::string(300, 't'));
      fits();
    }
}

TEST_CASE("inspect width: a long answer in top is read page by page") {
  top_model m;
  m.show(crowded());
  m.press({key_kind::enter, 0});
  auto e = test::some_explanation({subject_kind::operation, "1.1234567"});
  for (int i = 0; i < 40; ++i) e.facts.emplace_back("fact " + std::to_string(i), "x");
  m.show_why(json::parse(why_json(e)));
  CHECK(any_has(m.draw({80, 24}, false), "operation 1.1234567: held"));
  CHECK_FALSE(any_has(m.draw({80, 24}, false), "fact 9 "));
  for (int i = 0; i < 20; ++i) m.press({key_kind::page_down, 0});
  CHECK(any_has(m.draw({80, 24}, false), "fact 9 "));
  for (int i = 0; i < 20; ++i) m.press({key_kind::page_up, 0});
  CHECK(any_has(m.draw({80, 24}, false), "operation 1.1234567: held"));
}

TEST_CASE("inspect width: columns of a terminal, not bytes") {
  CHECK(width_of("hällo") == 5);
  CHECK(width_of("登録") == 4);
  CHECK(width_of("e\xcc\x81") == 1);  // a combining accent
  CHECK(cut("hällo", 3) == "hä…");
  CHECK(cut("登録を", 4) == "登…");
  CHECK(width_of(cut("登録を", 4)) <= 4);
  CHECK(cut("abc", 3) == "abc");
  CHECK(cut("abc", 0).empty());
  CHECK(cut("a\x1b[31mb", 20) == "a?[31mb");  // a name can't paint the terminal
  CHECK(cut("a\xc2\x9b"
            "31mb",
            20) == "a?31mb");  // nor with the control characters of eight bits
  CHECK(cut("a\xff\xc3", 20) == "a??");
  CHECK(clip_line("\x1b[31mabcdef\x1b[0m", 4) == "\x1b[31mabc…\x1b[0m");
  CHECK(clip_line("\x1b[31mabc\x1b[0m", 4) == "\x1b[31mabc\x1b[0m");
}

}  // namespace

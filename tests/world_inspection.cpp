// The world's inspection: asked as the port asks, on virtual time.
#include <doctest/doctest.h>

#include <future>

#include "src/assemble.hpp"
#include "src/explain.hpp"
#include "tests/inject.hpp"
#include "tests/world.hpp"

namespace kvlease::test {

namespace {

template <class Question>
gathered_facts gather(world& w, Question q) {
  q.answer = std::make_shared<std::promise<gathered_facts>>();
  auto told = q.answer->get_future();
  caf::anon_send(w.in().parts.actors->inspector, std::move(q));
  w.run();
  if (told.wait_for(0s) != std::future_status::ready) w.advance(200ms);
  REQUIRE(told.wait_for(0s) == std::future_status::ready);
  return told.get();
}

}  // namespace

explanation world::why(subject_kind kind, const std::string& id) {
  const subject what{kind, id};
  const auto told = gather(*this, gather_about{what, nullptr});
  auto e = explain(what, told, in().parts.watch->parts());
  if (in().log != nullptr) explain_past(e, records(), in().log->start(), now());
  return e;
}

inspection_snapshot world::inspect(std::size_t limit) {
  return assemble(gather(*this, gather_all{limit, nullptr}), *in().parts.watch, in().started, limit);
}

inspection_metrics world::metrics() const { return inside_->parts.watch->metrics(); }
health world::state(std::chrono::nanoseconds budget) const {
  return inside_->parts.watch->state(now(), budget);
}

std::vector<journal_record> world::records() const {
  std::uint64_t lost = 0;
  if (inside_->log == nullptr) return {};
  return inside_->log->read(0, inside_->log->capacity(), lost);
}

void world::skip_journal_check() { inside_->options.check_journal = false; }

journal_verdict world::verdict() const { return check_journal(inside_->runtime, records()); }

}  // namespace kvlease::test

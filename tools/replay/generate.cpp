#include "tools/replay/generate.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <string>
#include <utility>
#include <vector>

namespace kvlease::replay {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t max_requests = 10'000'000;
constexpr std::uint32_t max_block_tokens = 65'536;
constexpr std::uint32_t max_context = 100'000;  // tokens of a prompt
constexpr std::uint64_t decode_millis = 25;     // an output token

/// splitmix64. The slight bias of `%` does not matter here; being the same everywhere does.
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_{seed} {}

  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  bool one_in(std::uint64_t n) { return below(n) == 0; }

  /// From `low` to `high`, each doubling equally likely: how lengths of texts and pauses are spread.
  std::uint32_t log_uniform(std::uint32_t low, std::uint32_t high) {
    std::uint64_t doublings = 1;
    while ((std::uint64_t{low} << doublings) <= high) ++doublings;
    while (true) {
      const std::uint64_t base = std::uint64_t{low} << below(doublings);
      const std::uint64_t value = base + below(base);
      if (value <= high) return static_cast<std::uint32_t>(value);
    }
  }
  milliseconds pause(std::uint32_t low, std::uint32_t high) { return milliseconds{log_uniform(low, high)}; }

  /// An index below n, where index k is drawn about 1/(k+1) as often as index 0.
  std::size_t popular(std::size_t n) {
    std::uint64_t total = 0;
    for (std::size_t k = 0; k < n; ++k) total += popularity(k);
    std::uint64_t drawn = below(total);
    std::size_t k = 0;
    while (drawn >= popularity(k)) drawn -= popularity(k++);
    return k;
  }

 private:
  static std::uint64_t popularity(std::size_t k) { return (std::uint64_t{1} << 20) / (k + 1); }

  std::uint64_t state_;
};

/// Gives out block ids in order of first use.
class id_counter {
 public:
  std::uint64_t fresh() { return next_++; }

 private:
  std::uint64_t next_ = 0;
};

/// A text by its length and the ids of its whole blocks. A copy is a branch: what either gains later is its
/// own, also within the block that was partial at the branch.
class text {
 public:
  text(id_counter& ids, std::uint32_t tokens_per_block) : ids_{&ids}, per_block_{tokens_per_block} {}

  void grow(std::uint32_t tokens) {
    tokens_ += tokens;
    while (blocks_.size() < tokens_ / per_block_) blocks_.push_back(ids_->fresh());
  }
  std::uint32_t tokens() const { return tokens_; }

  /// The ids of a prompt that is this text. Its end is no other prompt's, so a partial block is new each
  /// time.
  std::vector<std::uint64_t> prompt() const {
    std::vector<std::uint64_t> ids;
    ids.reserve(blocks_.size() + 1);
    ids = blocks_;
    if (tokens_ % per_block_ != 0) ids.push_back(ids_->fresh());
    return ids;
  }
  void clear() { *this = text{*ids_, per_block_}; }

 private:
  id_counter* ids_;
  std::uint32_t per_block_;
  std::uint32_t tokens_ = 0;
  std::vector<std::uint64_t> blocks_;
};

constexpr std::size_t new_session = std::numeric_limits<std::size_t>::max();

/// What happens next: a session's next request, or a new session. Ties go to the one planned first.
class timeline {
 public:
  struct event {
    milliseconds at;
    std::uint64_t order;
    std::size_t session;
  };

  void plan(milliseconds at, std::size_t session) { events_.push(event{at, planned_++, session}); }
  event next() {
    const event first = events_.top();
    events_.pop();
    return first;
  }

 private:
  struct later {
    bool operator()(const event& a, const event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::priority_queue<event, std::vector<event>, later> events_;
  std::uint64_t planned_ = 0;
};

/// What both workloads are made of.
class workload_base {
 protected:
  workload_base(std::uint32_t tokens_per_block, std::uint64_t seed)
      : random_{seed}, tokens_per_block_{tokens_per_block} {}

  text empty_text() { return text{ids_, tokens_per_block_}; }

  /// The request whose prompt is `context`, which then holds the answer too. Returns when the answer is
  /// complete.
  milliseconds ask(milliseconds at, text& context, std::uint32_t output) {
    requests_.push_back(trace_request{at, context.tokens(), output, context.prompt()});
    context.grow(output);
    return at + milliseconds{output * decode_millis};
  }

  random_source random_;
  id_counter ids_;
  timeline timeline_;
  std::uint32_t tokens_per_block_;
  std::vector<trace_request> requests_;
};

class conversations : workload_base {
 public:
  conversations(std::uint32_t tokens_per_block, std::uint64_t seed) : workload_base{tokens_per_block, seed} {
    for (std::size_t a = 0; a < application_count; ++a) {
      application made{empty_text(), {}};
      made.system_prompt.grow(random_.log_uniform(150, 2'500));
      for (std::size_t d = 0; d < document_count; ++d) {
        made.documents.push_back(made.system_prompt);
        made.documents.back().grow(random_.log_uniform(500, 48'000));
      }
      applications_.push_back(std::move(made));
    }
  }

  std::vector<trace_request> run(std::size_t count) {
    timeline_.plan(milliseconds{0}, new_session);
    while (requests_.size() < count) {
      const auto now = timeline_.next();
      if (now.session == new_session) {
        begin(now.at);
      } else {
        turn(now.at, now.session);
      }
    }
    return std::move(requests_);
  }

 private:
  static constexpr std::size_t application_count = 12;
  static constexpr std::size_t document_count = 32;
  static constexpr std::uint64_t arrival_millis = 3'000;  // at most; half of it on average

  struct application {
    text system_prompt;
    std::vector<text> documents;  // each after the system prompt
  };
  struct session {
    text context;
    std::uint64_t turns_left;
  };

  void begin(milliseconds at) {
    const application& used = applications_[random_.popular(applications_.size())];
    const bool reads = random_.one_in(2);
    const text& start = reads ? used.documents[random_.popular(used.documents.size())] : used.system_prompt;
    std::uint64_t turns = 1;
    while (turns < 40 && !random_.one_in(5)) ++turns;
    sessions_.push_back(session{start, turns});
    turn(at, sessions_.size() - 1);
    timeline_.plan(at + milliseconds{random_.below(arrival_millis)}, new_session);
  }

  void turn(milliseconds at, std::size_t which) {
    session& s = sessions_[which];
    const std::uint32_t said = random_.one_in(12) ? random_.log_uniform(1'000, 12'000)  // pasted
                                                  : random_.log_uniform(16, 1'000);
    if (s.context.tokens() + said > max_context) return s.context.clear();
    s.context.grow(said);
    const milliseconds answered = ask(at, s.context, random_.log_uniform(16, 1'200));
    if (--s.turns_left == 0) return s.context.clear();
    timeline_.plan(answered + random_.pause(3'000, 120'000), which);
  }

  std::vector<application> applications_;
  std::vector<session> sessions_;
};

class agents : workload_base {
 public:
  agents(std::uint32_t tokens_per_block, std::uint64_t seed) : workload_base{tokens_per_block, seed} {
    for (std::size_t p = 0; p < product_count; ++p) {
      tools_prompts_.push_back(empty_text());
      tools_prompts_.back().grow(random_.log_uniform(2'000, 12'000));
    }
  }

  std::vector<trace_request> run(std::size_t count) {
    timeline_.plan(milliseconds{0}, new_session);
    while (requests_.size() < count) {
      const auto now = timeline_.next();
      if (now.session == new_session) {
        begin(now.at);
      } else {
        step(now.at, now.session);
      }
    }
    return std::move(requests_);
  }

 private:
  static constexpr std::size_t product_count = 4;
  static constexpr std::uint64_t arrival_millis = 20'000;
  static constexpr std::size_t nobody = new_session;

  struct session {
    text context;
    std::size_t product;
    std::size_t parent;
    std::uint64_t steps_left;
    std::uint64_t children = 0;  // still at work; the session waits for all of them
    std::uint32_t unread = 0;    // tokens that they reported
  };

  void begin(milliseconds at) {
    const std::size_t product = random_.popular(tools_prompts_.size());
    const bool is_long = random_.one_in(10);
    const std::uint64_t steps = is_long ? 50 + random_.below(80) : 4 + random_.below(20);
    sessions_.push_back(session{tools_prompts_[product], product, nobody, steps});
    sessions_.back().context.grow(random_.log_uniform(50, 2'000));
    step(at, sessions_.size() - 1);
    timeline_.plan(at + milliseconds{random_.below(arrival_millis)}, new_session);
  }

  void step(milliseconds at, std::size_t which) {
    session& s = sessions_[which];
    make_room(s);
    const milliseconds answered = ask(at, s.context, random_.log_uniform(30, 900));
    if (--s.steps_left == 0) return end(answered, which);
    if (s.parent == nobody && random_.one_in(10)) return delegate(answered, which);
    s.context.grow(random_.log_uniform(30, 5'000));  // a tool's output
    timeline_.plan(answered + random_.pause(50, 20'000), which);
  }

  /// A context near the limit starts again from the tools prompt and a summary.
  void make_room(session& s) {
    if (s.context.tokens() <= max_context) return;
    s.context = tools_prompts_[s.product];
    s.context.grow(random_.log_uniform(1'000, 4'000));
  }

  void delegate(milliseconds at, std::size_t which) {
    const std::uint64_t children = 1 + random_.below(4);
    sessions_[which].children = children;
    const bool fork = random_.one_in(4);  // all of the context, not only the tools prompt
    for (std::uint64_t c = 0; c < children; ++c) {
      const session& parent = sessions_[which];
      session child{fork ? parent.context : tools_prompts_[parent.product], parent.product, which,
                    2 + random_.below(10)};
      child.context.grow(random_.log_uniform(100, 1'500));  // what it is to do
      sessions_.push_back(std::move(child));
      timeline_.plan(at + milliseconds{random_.below(500)}, sessions_.size() - 1);
    }
  }

  void end(milliseconds at, std::size_t which) {
    session& s = sessions_[which];
    s.context.clear();
    if (s.parent == nobody) return;
    session& parent = sessions_[s.parent];
    parent.unread += random_.log_uniform(100, 2'000);
    if (--parent.children > 0) return;
    parent.context.grow(std::exchange(parent.unread, 0));
    timeline_.plan(at, s.parent);
  }

  std::vector<text> tools_prompts_;
  std::vector<session> sessions_;
};

}  // namespace

result<trace> generate(std::string_view workload, std::size_t requests, std::uint32_t tokens_per_block,
                       std::uint64_t seed) {
  const std::string name{workload};
  if (workload != "conversation" && workload != "agents") {
    return fail(errc::invalid, "workload is \"" + name + "\", must be conversation or agents");
  }
  if (requests == 0 || requests > max_requests) {
    return fail(errc::invalid, "workload " + name + ": requests is " + std::to_string(requests) +
                                   ", must be 1 to " + std::to_string(max_requests));
  }
  if (tokens_per_block == 0 || tokens_per_block > max_block_tokens) {
    return fail(errc::invalid, "workload " + name + ": tokens_per_block is " +
                                   std::to_string(tokens_per_block) + ", must be 1 to " +
                                   std::to_string(max_block_tokens));
  }
  trace out{"generated", name + " (seed " + std::to_string(seed) + ")", tokens_per_block, {}};
  out.requests = workload == "agents" ? agents{tokens_per_block, seed}.run(requests)
                                      : conversations{tokens_per_block, seed}.run(requests);
  return out;
}

}  // namespace kvlease::replay

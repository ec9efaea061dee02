#include "src/providers/redis/unit_command.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace kvlease::redis {

namespace {

/// A slot that moves while we ask has one redirect; a cluster that has more for us is not in order.
constexpr int most_redirects = 8;
/// A key that is there and gone again, in turn with our questions.
constexpr int most_rounds = 4;

std::string server_said(const std::string& text) {
  // The server ran out of the memory that it may use, and its policy evicts nothing.
  if (text.starts_with("OOM ")) return "redis: the server's capacity is reached: " + text;
  return "redis: the server said: " + text;
}

/// A command about one key: goes where the cluster sends it.
class key_command : public command, public std::enable_shared_from_this<key_command> {
 public:
  key_command(std::shared_ptr<routes> by, std::string key)
      : routes_{std::move(by)}, key_{std::move(key)}, slot_{redis::key_slot(key_)} {}
  std::uint16_t key_slot() const noexcept final { return slot_; }

 protected:
  /// Answers why not, or that it is on its way again.
  std::optional<std::string> redirected(const std::string& text, const link& on) {
    const auto r = parse_redirect(text, on.to());
    if (!r || !routes_->settings().cluster) {
      if (text.starts_with("CLUSTERDOWN") || text.starts_with("READONLY")) routes_->refresh();
      return server_said(text);
    }
    if (++redirects_ > most_redirects)
      return fmt::format("redis: {} redirects in a row: {}", redirects_, text);
    asking_ = r->ask;
    return problem_of(routes_->follow(shared_from_this(), *r));
  }
  std::optional<std::string> again() { return problem_of(routes_->again(shared_from_this())); }

  /// `arguments` of a command, behind ASKING when the server asked for that.
  outgoing begin(std::size_t arguments) {
    outgoing o;
    if (std::exchange(asking_, false)) {
      o.head = encode_command({"ASKING"});
      o.preludes = 1;
    }
    append_count(o.head, arguments);
    return o;
  }

  const std::shared_ptr<routes> routes_;
  const std::string key_;

 private:
  static std::optional<std::string> problem_of(const result<void>& r) {
    if (r) return std::nullopt;
    return "redis: " + r.error().text;
  }
  const std::uint16_t slot_;
  int redirects_ = 0;
  bool asking_ = false;
};

/// Removes a value that is damaged, so that it is a miss from now on. Nobody waits for it.
class remove_command final : public key_command {
 public:
  using key_command::key_command;
  bool wanted() const noexcept override { return true; }
  outgoing encode() override {
    auto o = begin(2);
    append_argument(o.head, "UNLINK");
    append_argument(o.head, key_);
    return o;
  }
  expectation expects() const override { return value_limits{}; }
  void replied(reply, link&) override {}
  void dropped(const std::string&) override {}
};

class unit_command : public key_command {
 public:
  unit_command(std::shared_ptr<routes> by, std::string key, std::shared_ptr<transfer> of, std::size_t i)
      : key_command{std::move(by), std::move(key)}, transfer_{std::move(of)}, index_{i} {}
  bool wanted() const noexcept final { return transfer_->wanted(); }
  void dropped(const std::string& why) final {
    if (wanted()) return fail_unit("redis: " + why);
    finish(unit_verdict::kind::withdrawn);
  }

 protected:
  std::span<std::byte> memory() const { return transfer_->places()[index_].memory; }
  std::string text() const { return unit_text(transfer_->unit_at(index_)); }
  expected_unit expected() const {
    return {transfer_->extent().name(), transfer_->unit_at(index_).name(), memory().size()};
  }
  void touch(touch_kind kind) const { transfer_->touch(index_, kind); }
  void finish(unit_verdict::kind k) { transfer_->finish_unit(index_, {k}); }
  void fail_unit(std::string why) {
    transfer_->finish_unit(index_, {unit_verdict::kind::failed, std::move(why)});
  }
  std::string other_size(std::uint64_t stored) const {
    return fmt::format("redis: {} has {} bytes in the store, its slot {}", text(), stored, memory().size());
  }

 private:
  const std::shared_ptr<transfer> transfer_;
  const std::size_t index_;
};

class fetch_command final : public unit_command {
 public:
  using unit_command::unit_command;
  outgoing encode() override {
    auto o = begin(2);
    append_argument(o.head, "GET");
    append_argument(o.head, key_);
    return o;
  }
  expectation expects() const override { return expected(); }
  std::span<std::byte> slot() override {
    touch(touch_kind::write);
    return memory();
  }
  void replied(reply r, link& on) override {
    const auto& a = std::get<unit_answer>(r);
    switch (a.what) {
      case unit_answer::kind::served:
        return finish(unit_verdict::kind::served);
      case unit_answer::kind::absent:
      case unit_answer::kind::foreign:
        return finish(unit_verdict::kind::missed);
      case unit_answer::kind::unwanted:
        return finish(unit_verdict::kind::withdrawn);
      case unit_answer::kind::other_size:
        return fail_unit(other_size(a.length));
      case unit_answer::kind::damaged:
        static_cast<void>(routes_->again(std::make_shared<remove_command>(routes_, key_)));
        return fail_unit(fmt::format("redis: {} is damaged in the store: {}", text(), a.text));
      case unit_answer::kind::error:
        if (a.text.starts_with("WRONGTYPE")) return finish(unit_verdict::kind::missed);  // foreign, too
        if (auto why = redirected(a.text, on)) fail_unit(std::move(*why));
        return;
    }
  }
};

/// The first content of a name stays: SET NX; where something is there already, its frame says whether that
/// is the unit. If it is none, it is replaced.
class publish_command final : public unit_command {
 public:
  using unit_command::unit_command;
  outgoing encode() override { return step_ == step::look ? encode_look() : encode_set(); }
  expectation expects() const override { return value_limits{}; }
  void replied(reply r, link& on) override {
    const auto& v = std::get<value>(r);
    if (v.what == value::kind::error) return refused(v.text, on);
    if (step_ == step::look) return looked(v);
    if (v.what == value::kind::simple) return finish(unit_verdict::kind::served);
    if (v.what == value::kind::nil && step_ == step::set) return once_more(step::look);
    fail_unit("redis: the server's reply to SET is none");
  }

 private:
  enum class step : std::uint8_t { set, look, replace };

  outgoing encode_set() {
    const auto e = expected();
    touch(touch_kind::read);
    const unit_frame frame{e.extent, e.name, e.length, 0, checksum_of(memory())};
    auto o = begin(step_ == step::set ? 4 : 3);
    append_argument(o.head, "SET");
    append_argument(o.head, key_);
    append_size(o.head, e.frame() + e.length);
    const auto at = o.head.size();
    o.head.resize(at + e.frame());
    // Can't fail: oversize() has looked at the names.
    static_cast<void>(encode_frame(frame, std::as_writable_bytes(std::span{o.head}.subspan(at))));
    o.payload = memory();
    o.tail = "\r\n";
    if (step_ == step::set) append_argument(o.tail, "NX");
    return o;
  }
  outgoing encode_look() {
    auto o = begin(4);
    append_argument(o.head, "GETRANGE");
    append_argument(o.head, key_);
    append_argument(o.head, "0");
    append_argument(o.head, std::to_string(expected().frame() - 1));
    return o;
  }
  void looked(const value& v) {
    if (v.what != value::kind::bulk) return fail_unit("redis: the server's reply to GETRANGE is none");
    if (v.text.empty()) return once_more(step::set);  // gone in between
    const auto frame = check_frame(std::as_bytes(std::span{v.text}), expected());
    if (!frame) return once_more(step::replace);
    if (frame->length != memory().size()) return fail_unit(other_size(frame->length));
    finish(unit_verdict::kind::served);
  }
  void refused(const std::string& why, link& on) {
    if (step_ == step::look && why.starts_with("WRONGTYPE")) return once_more(step::replace);
    if (auto problem = redirected(why, on)) fail_unit(std::move(*problem));
  }
  void once_more(step s) {
    step_ = s;
    if (++rounds_ > most_rounds)
      return fail_unit(fmt::format("redis: {} comes and goes in the store", text()));
    if (auto why = again()) fail_unit(std::move(*why));
  }

  step step_ = step::set;
  int rounds_ = 0;
};

class probe_command final : public key_command {
 public:
  probe_command(std::shared_ptr<routes> by, std::string key, std::shared_ptr<probe_answers> to, bytes name)
      : key_command{std::move(by), std::move(key)}, answers_{std::move(to)}, name_{std::move(name)} {}
  bool wanted() const noexcept override { return true; }
  outgoing encode() override {
    auto o = begin(2);
    append_argument(o.head, "EXISTS");
    append_argument(o.head, key_);
    return o;
  }
  expectation expects() const override { return value_limits{}; }
  void replied(reply r, link& on) override {
    const auto& v = std::get<value>(r);
    if (v.what == value::kind::integer) return answers_->found(name_, v.number > 0);
    if (v.what != value::kind::error) return answers_->failed("redis: the server's reply to EXISTS is none");
    if (auto why = redirected(v.text, on)) answers_->failed(std::move(*why));
  }
  void dropped(const std::string& why) override { answers_->failed("redis: " + why); }

 private:
  const std::shared_ptr<probe_answers> answers_;
  const bytes name_;
};

}  // namespace

std::shared_ptr<command> make_unit_command(std::shared_ptr<routes> by, std::shared_ptr<transfer> of,
                                           std::size_t i) {
  auto key = unit_key(by->settings().prefix, of->extent().name(), of->unit_at(i).name());
  if (of->way() == direction::fetch)
    return std::make_shared<fetch_command>(std::move(by), std::move(key), std::move(of), i);
  return std::make_shared<publish_command>(std::move(by), std::move(key), std::move(of), i);
}

std::shared_ptr<command> make_probe_command(std::shared_ptr<routes> by, std::shared_ptr<probe_answers> to,
                                            const bytes& extent, const bytes& name) {
  auto key = unit_key(by->settings().prefix, extent, name);
  return std::make_shared<probe_command>(std::move(by), std::move(key), std::move(to), name);
}

std::set<bytes> probe_answers::wait_for(std::size_t commands) {
  std::unique_lock lock{mutex_};
  more_.wait(lock, [&] { return answered_ >= commands; });
  if (problem_) throw std::runtime_error{*problem_};
  return std::move(hits_);
}

void probe_answers::found(const bytes& name, bool is_there) {
  const std::lock_guard lock{mutex_};
  ++answered_;
  if (is_there) hits_.insert(name);
  more_.notify_all();
}

void probe_answers::failed(std::string why) {
  const std::lock_guard lock{mutex_};
  ++answered_;
  if (!problem_) problem_ = std::move(why);
  more_.notify_all();
}

}  // namespace kvlease::redis

#include "src/providers/ucx/ucx_provider.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "src/providers/ucx/fetch.hpp"
#include "src/providers/ucx/node.hpp"

namespace kvlease {

namespace {

constexpr const char* who = "ucx provider";

/// How long climb() waits for the node's thread, which never blocks.
constexpr std::chrono::seconds climb_bound{1};

class ucx_route final : public route {
 public:
  ucx_route(const std::shared_ptr<ucx_node>& node, std::shared_ptr<ucx_target> target)
      : node_{node}, target_{std::move(target)} {}
  ~ucx_route() override { ucx_route::close(); }

  void close() override {
    if (closed_.exchange(true)) return;
    if (const auto node = node_.lock())
      node->post([on = node.get(), target = target_] {
        target->peer.reset();
        on->client().drop_unused();
      });
  }
  bool is_of(const ucx_node& node) const { return node_.lock().get() == &node; }
  bool closed() const noexcept { return closed_; }
  const std::shared_ptr<ucx_target>& target() const noexcept { return target_; }

 private:
  const std::weak_ptr<ucx_node> node_;
  const std::shared_ptr<ucx_target> target_;
  std::atomic<bool> closed_{false};
};

/// A probe's answers, gathered for one thread that waits.
class probe_call final : public ucx_asker {
 public:
  probe_call(std::size_t names, std::size_t peers) : here_(names), left_{peers} {}
  std::future<std::vector<bool>> answer() { return promise_.get_future(); }

  std::optional<std::span<std::byte>> land(std::size_t) override { return std::nullopt; }
  void landed(std::size_t, const unit_frame&, const std::string&, bool) override {}
  void absent(std::size_t) override {}
  void other_size(std::size_t, std::uint64_t) override {}
  void taken_down(const std::string&) override {}  // it gets lost() as well
  void lost(std::size_t, const std::string& why) override {
    if (std::exchange(over_, true)) return;
    promise_.set_exception(
        std::make_exception_ptr(std::runtime_error{fmt::format("{}: probe: {}", who, why)}));
  }
  void probed(const std::vector<bool>& here) override {
    for (std::size_t i = 0; i < here_.size(); ++i) here_[i] = here_[i] || here[i];
    if (--left_ == 0 && !std::exchange(over_, true)) promise_.set_value(here_);
  }

 private:
  std::vector<bool> here_;
  std::size_t left_;
  bool over_ = false;
  std::promise<std::vector<bool>> promise_;
};

class ucx_provider final : public transfer_provider, public proof_rungs {
 public:
  ucx_provider(std::shared_ptr<ucx_node> node, provider_context context)
      : transfer_provider{who, std::move(context)}, node_{std::move(node)} {}

  std::string describe() const override {
    const auto& o = node_->options();
    return fmt::format("ucx ({} over {}, {} peers, pool {} bytes{})", to_string(node_->listening()), o.tls,
                       node_->peers().size(), o.pool_bytes, o.force_close ? ", force_close" : "");
  }

  std::shared_ptr<attempt> fetch(const cache_extent& extent, route* along) override {
    std::shared_ptr<ucx_target> target;
    if (along != nullptr) {
      const auto* mine = dynamic_cast<ucx_route*>(along);
      if (mine == nullptr || !mine->is_of(*node_)) throw submission_rejected{"ucx provider: foreign route"};
      if (mine->closed()) throw submission_rejected{"ucx provider: the route is closed"};
      target = mine->target();
    }
    auto made = std::make_shared<ucx_fetch>(node_, book(), extent, target);
    if (auto why = made->prepare()) {
      made->finish_and_end(failed{std::move(*why)});
      return made;
    }
    if (!target && !node_->options().ask_self) {
      const auto all = made->serve_from(node_->pool());
      if (!all) {
        made->finish_and_end(failed{all.error().text});
        return made;
      }
      if (*all || node_->peers().empty()) {
        made->deliver();
        return made;
      }
    }
    if (!node_->post([made] { made->begin(); })) made->finish_and_end(failed{"ucx provider: it is closing"});
    return made;
  }

  std::shared_ptr<attempt> publish(const cache_extent& extent) override {
    auto made = std::make_shared<unit_transfer>(book(), direction::publish, extent);
    if (auto why = made->prepare()) {
      made->finish_and_end(failed{std::move(*why)});
      return made;
    }
    std::set<bytes> accepted;
    for (std::size_t i = 0; i < made->places().size(); ++i) {
      if (auto why = offer(*made, i)) {
        made->finish_and_end(failed{std::move(*why)});
        return made;
      }
      accepted.insert(made->unit_at(i).name());
    }
    made->finish_and_end(delivered{std::move(accepted)});
    return made;
  }

  std::optional<std::set<bytes>> probe(const bytes& extent, const std::set<bytes>& names) override {
    std::set<bytes> hits;
    std::vector<ucx_wanted> open;
    for (const auto& name : names)
      if (!node_->options().ask_self && node_->pool().find(extent, name))
        hits.insert(name);
      else
        open.push_back({name, 0});
    if (open.empty() || node_->peers().empty()) return hits;
    std::size_t room = ucx_question_head(extent);
    for (const auto& u : open) room += ucx_question_room(u.name);
    if (open.size() > ucx_question_units || room > ucx_question_bytes) return std::nullopt;  // no cheap one
    const auto here = ask_all(extent, open);
    for (std::size_t i = 0; i < open.size(); ++i)
      if (here[i]) hits.insert(open[i].name);
    return hits;
  }

  result<std::unique_ptr<route>> open_route(const std::string& hint) override {
    const auto at = parse_host_port(hint, "ucx: route");
    if (!at) return tl::unexpected{at.error()};
    const auto address = resolve(*at);
    if (!address) return tl::unexpected{address.error()};
    auto target = std::make_shared<ucx_target>();
    node_->post([node = node_.get(), target, at = *at, address = *address] {
      target->peer = node->client().peer_at(at, address);
      node->client().connect(*target->peer);
    });
    return std::make_unique<ucx_route>(node_, std::move(target));
  }

  proof_rungs* as_proof_rungs() override { return node_->options().force_close ? this : nullptr; }
  std::vector<proof_source> rungs() const override { return {proof_source::endpoint_closed}; }
  std::vector<std::shared_ptr<attempt>> climb(attempt& a, proof_source rung) override {
    const auto of = std::dynamic_pointer_cast<ucx_fetch>(mine(a));
    if (!of || rung != proof_source::endpoint_closed || !node_->options().force_close) return {};
    auto others = std::make_shared<std::promise<std::vector<std::shared_ptr<attempt>>>>();
    auto answer = others->get_future();
    const bool posted = node_->post([node = node_.get(), of, others] {
      std::vector<std::shared_ptr<attempt>> down;
      of->cancel();  // what has not begun to land never will
      for (const auto& by : node->client().close_by_force(*of))
        if (auto fetch = std::dynamic_pointer_cast<ucx_fetch>(by)) down.push_back(std::move(fetch));
      others->set_value(std::move(down));
    });
    if (!posted || answer.wait_for(climb_bound) != std::future_status::ready) return {};
    return answer.get();
  }

 private:
  /// Why the pool does not take the unit, or empty.
  std::optional<std::string> offer(unit_transfer& of, std::size_t i) {
    const unit& u = of.unit_at(i);
    const auto memory = of.places()[i].memory;
    auto& pool = node_->pool();
    const auto held = pool.find(of.extent().name(), u.name());
    if (!held) of.touch(i, touch_kind::read);
    if (of.extent().name().size() + u.name().size() > frame_names)
      return fmt::format("{}: its name and its extent's have more than {} bytes", unit_text(u), frame_names);
    switch (pool.put(of.extent().name(), u.name(), memory)) {
      case export_pool::put_result::other_size:
        return unit_text(u) + " was published with another size";
      case export_pool::put_result::full:
        return fmt::format("export pool is full: {} of {} bytes, capacity {}, held {}", unit_text(u),
                           memory.size(), pool.capacity(), pool.bytes());
      case export_pool::put_result::added:
      case export_pool::put_result::kept:
        break;
    }
    return std::nullopt;
  }

  /// By unit, whether some peer has it. Throws when one can't tell in time.
  std::vector<bool> ask_all(const bytes& extent, const std::vector<ucx_wanted>& wanted) {
    const auto call = std::make_shared<probe_call>(wanted.size(), node_->peers().size());
    auto answer = call->answer();
    node_->post([node = node_.get(), call, extent, wanted] {
      for (const auto& p : node->peers())
        node->client().ask(*p, call, ucx_ask::probe, extent, std::vector<std::size_t>(wanted.size()), wanted);
    });
    const std::chrono::milliseconds patience{node_->options().probe_timeout_ms};
    if (answer.wait_for(patience) == std::future_status::ready) return answer.get();
    node_->post([node = node_.get(), call] { node->client().withdraw(*call); });
    throw std::runtime_error{fmt::format("{}: probe: no answer within {} ms", who, patience.count())};
  }

  const std::shared_ptr<ucx_node> node_;
};

/// The one node of a factory: made when it is first needed, gone with the last provider.
struct shared_node {
  std::mutex mutex;
  std::weak_ptr<ucx_node> node;

  std::shared_ptr<ucx_node> get(const ucx_options& options) {
    const std::lock_guard lock{mutex};
    if (auto running = node.lock()) return running;
    auto made = ucx_node::start(options);
    if (!made) throw std::runtime_error{made.error().text};
    node = *made;
    return *std::move(made);
  }
};

}  // namespace

bool ucx_built() noexcept { return true; }

result<provider_factory> open_ucx(std::string_view after_colon) {
  auto options = parse_ucx_options(after_colon);
  if (!options) return tl::unexpected{options.error()};
  return provider_factory{
      [shared = std::make_shared<shared_node>(), options = *std::move(options)](const provider_context& c) {
        return std::make_shared<ucx_provider>(shared->get(options), c);
      }};
}

}  // namespace kvlease

// 5.6 where the device itself is in trouble: no copy is begun, or waited for, that nobody could prove.
#include <doctest/doctest.h>

#include "actors/guard.hpp"
#include "cuda/cuda_actor.hpp"
#include "tests/inject.hpp"
#include "tests/mutations.hpp"

namespace kvlease::test {
namespace {

/// Says what the test tells it to, and copies nothing. Every event is pending until the device breaks; then
/// the first fails, and the others stay pending for ever.
class troubled_device final : public device_port {
 public:
  std::string describe() const override { return "troubled"; }
  result<std::shared_ptr<memory_block>> allocate_device(std::size_t n) override {
    return inner_.allocate_device(n);
  }
  result<std::shared_ptr<memory_block>> allocate_staging(std::size_t n) override {
    return inner_.allocate_staging(n);
  }
  result<std::shared_ptr<memory_block>> register_staging(std::uintptr_t at, std::size_t n) override {
    return inner_.register_staging(at, n);
  }
  bool reaches(std::uintptr_t at, std::size_t n) const override { return inner_.reaches(at, n); }
  result<void> bind_thread() override {
    if (!binds) return fail(errc::device, "no such device");
    return {};
  }
  result<std::size_t> enqueue(std::shared_ptr<const copy_batch>) override {
    ++batches;
    return std::size_t{1};
  }
  result<device_event> record(copy_kind) override { return device_event{++events_}; }
  result<event_state> query(device_event e) override {
    if (broken && e.value == 1) return fail(errc::device, "fallen off the bus");
    return event_state::pending;
  }
  void recycle(device_event) override {}
  std::optional<error> lost() const override {
    if (!broken) return std::nullopt;
    return error{errc::device, "the device is lost"};
  }

  bool binds = true, broken = false;
  int batches = 0;

 private:
  host_device inner_{host_stream::inline_};
  std::uint64_t events_ = 0;
};

/// A CUDA actor over it, and what its client has heard.
struct copying {
  copying(world& w, bool binds) : in{w.in()} {
    device->binds = binds;
    actor = spawn_cuda(*in.system, {.device = device});
    in.send(actor, wired{in.parts.actors});
    client = in.system->spawn([said = said](copy_client::pointer) -> copy_client::behavior_type {
      return {[said](const copy_complete&) { said->push_back("complete"); },
              [said](const copy_unproven& m) { said->push_back(m.reason); }};
    });
  }
  ~copying() {
    in.send(actor, quit_now{});
    caf::anon_send_exit(client, caf::exit_reason::kill);
    in.run();
  }
  copying(const copying&) = delete;
  copying& operator=(const copying&) = delete;

  void copy(copy_kind kind) {
    auto batch = std::make_shared<copy_batch>();
    batch->kind = kind;
    batch->rows.push_back({1, 2, 3});  // nobody touches them
    in.send(actor, copy_rows{copy_id{++copies}, std::move(batch), client});
  }

  world::inside& in;
  std::shared_ptr<troubled_device> device = std::make_shared<troubled_device>();
  std::shared_ptr<std::vector<std::string>> said = std::make_shared<std::vector<std::string>>();
  cuda_actor actor;
  copy_client client;
  std::uint64_t copies = 0;
};

using strings = std::vector<std::string>;

const broken_by unbound{actor_mutation::device_used_unbound, "5.6 a device that can*"};
TEST_CASE("5.6 a device that can't be bound to its thread is given no copy: each is unproven at once") {
  world w;
  copying c{w, false};
  c.copy(copy_kind::host_to_device);
  c.copy(copy_kind::device_to_host);
  w.advance(1s);
  CHECK(*c.said == strings{"no such device", "no such device"});
  CHECK(c.device->batches == 0);
}

const broken_by others_spared{actor_mutation::lost_device_spares_others, "5.6 a device that breaks*"};
TEST_CASE("5.6 a device that breaks takes every copy with it, also those that it still calls pending") {
  world w;
  copying c{w, true};
  c.copy(copy_kind::host_to_device);
  c.copy(copy_kind::host_to_device);
  c.copy(copy_kind::device_to_host);
  w.advance(1s);
  CHECK(c.said->empty());
  c.device->broken = true;
  w.advance(1s);
  CHECK(*c.said == strings{"fallen off the bus", "the device is lost", "the device is lost"});
  c.copy(copy_kind::host_to_device);
  CHECK(c.said->back() == "the device is lost");
  CHECK(c.said->size() == 4);
  CHECK(c.device->batches == 3);
}

}  // namespace
}  // namespace kvlease::test

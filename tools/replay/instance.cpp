#include "tools/replay/instance.hpp"

#include <string_view>

#include "src/lending.hpp"
#include "src/paged_manager.hpp"

namespace kvlease::replay {

namespace {
/// Instances that share content share the scope (scenarios 6.2).
constexpr std::string_view scope = "kvlease-replay";
}  // namespace

result<std::unique_ptr<instance>> make_instance(const replay_plan& plan, std::size_t number,
                                                std::function<void(const fatal_record&)> on_fatal) {
  auto made = std::make_unique<instance>();
  auto device = open_device(plan.device);
  if (!device) return tl::unexpected{device.error()};
  if (plan.decorate_device) device = plan.decorate_device(*std::move(device));
  auto pages = (*device)->allocate_device(plan.pool_blocks * plan.block_bytes);
  if (!pages) return tl::unexpected{pages.error()};
  paged_manager_options m;
  m.tokens_per_block = plan.tokens_per_block;
  m.pool_groups = {
      {static_cast<std::int64_t>(plan.block_bytes), static_cast<std::int64_t>(plan.pool_blocks)}};
  m.layer_groups = {{.pool_group = 0, .layers = {0}}};
  m.reuse = plan.local_reuse;
  auto manager = paged_manager::make(std::move(m), {*pages});
  if (!manager) return tl::unexpected{manager.error()};

  const auto& layout = (*manager)->layout();
  auto names = names_of(layout, bytes{scope});
  if (!names) return tl::unexpected{names.error()};
  made->names = std::make_unique<identity>(*std::move(names));
  made->device = (*device)->describe();
  made->budget = std::make_unique<page_budget>(plan.pool_blocks);

  runtime_options o;
  o.profile = supported_profile("kvlease-memory-" KVLEASE_VERSION);
  o.device = *device;
  o.manager = *std::move(manager);
  o.staging_slots = {static_cast<std::int64_t>(plan.staging_slots)};
  o.scope = bytes{scope};
  o.max_waiting_leases = o.max_operations = o.max_queued_submissions = plan.concurrency * 4 + 1024;
  o.on_fatal = std::move(on_fatal);
  o.journal = plan.journal;
  o.shutdown_grace = plan.shutdown_grace;
  o.unproven_budget = plan.unproven_budget;
  o.meters = plan.meters;
  if (!plan.journal_path.empty()) o.journal_file = plan.journal_path + "." + std::to_string(number);
  o.open_provider = [&, raw = made.get()](const provider_context& context) {
    auto faults = plan.faults;
    faults.seed += number;  // instances are struck differently
    raw->faults = std::make_shared<fault_provider>(plan.provider(context), faults, context);
    return gate(raw->faults, raw->gates);
  };
  auto lender = runtime::start(std::move(o));
  if (!lender) return tl::unexpected{lender.error()};
  made->lender = *std::move(lender);
  if (plan.on_instance) plan.on_instance(*made->lender);
  return made;
}

}  // namespace kvlease::replay

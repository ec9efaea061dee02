#include "actors/spawn.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/adapter.hpp"
#include "actors/backend.hpp"
#include "actors/deadline_arbiter.hpp"
#include "actors/inspector.hpp"
#include "actors/lender.hpp"
#include "actors/manager.hpp"
#include "actors/proof_collector.hpp"
#include "actors/supervisor.hpp"
#include "actors/thrown.hpp"
#include "cuda/cuda_actor.hpp"
#include "src/lending.hpp"

namespace kvlease {

namespace {

/// The host's own span, or memory of the device's.
result<std::shared_ptr<memory_block>> staging_of(const runtime_setup& s, std::size_t group,
                                                 std::size_t nbytes) {
  if (s.staging_memory.empty()) return s.device->allocate_staging(nbytes);
  const auto& span = s.staging_memory[group];
  if (span.nbytes < nbytes)
    return fail(errc::invalid, fmt::format("staging_memory of pool group {} has {} bytes, its slots need {}",
                                           group, span.nbytes, nbytes));
  return s.device->register_staging(span.address, nbytes);
}

/// Page-locked memory for the engine's own page access: as asked for, but at least one page; none where the
/// device reaches any memory.
result<std::shared_ptr<memory_block>> page_access_of(const runtime_setup& s, const manager_layout& layout) {
  const bool reaches_all = s.device->reaches(reinterpret_cast<std::uintptr_t>(&s), sizeof s);
  if (s.page_access_bytes == 0 || reaches_all) return nullptr;
  auto nbytes = s.page_access_bytes;
  for (const auto& g : layout.pool_groups) nbytes = std::max(nbytes, static_cast<std::size_t>(g.page_bytes));
  return s.device->allocate_staging(nbytes);
}

/// One part a pool group, each its own staging block, rooted in the ledger.
result<std::vector<part>> allocate_parts(const runtime_setup& s, const manager_layout& layout,
                                         ledger& roots) {
  if (s.staging_slots.size() != layout.pool_groups.size())
    return fail(errc::invalid, fmt::format("staging_slots has {} counts for {} pool groups, must be one each",
                                           s.staging_slots.size(), layout.pool_groups.size()));
  const auto names = names_of(layout, s.scope);
  if (!names) return tl::unexpected{names.error()};
  if (!s.staging_memory.empty() && s.staging_memory.size() != layout.pool_groups.size())
    return fail(errc::invalid,
                fmt::format("staging_memory has {} spans for {} pool groups, must be none or one each",
                            s.staging_memory.size(), layout.pool_groups.size()));
  std::vector<part> parts;
  for (std::size_t p = 0; p < layout.pool_groups.size(); ++p) {
    const auto page = layout.pool_groups[p].page_bytes;
    const auto slots = s.staging_slots[p];
    if (slots < 1 || slots > INT64_MAX / page)
      return fail(errc::invalid,
                  fmt::format("staging_slots of pool group {} is {}, must be at least 1 and fit in memory", p,
                              slots));
    auto block = staging_of(s, p, static_cast<std::size_t>(slots * page));
    if (!block) return tl::unexpected{block.error()};
    std::vector<std::int64_t> served;
    for (std::size_t g = 0; g < layout.layer_groups.size(); ++g)
      if (layout.layer_groups[g].pool_group == static_cast<std::int64_t>(p))
        served.push_back(static_cast<std::int64_t>(g));
    const auto name = names->part_name(served);
    if (!name) return tl::unexpected{name.error()};
    parts.push_back({*name, (*block)->address(), slots * page, page, slots});
    roots.root_memory(*std::move(block));
  }
  return parts;
}

}  // namespace

result<runtime_parts> spawn_runtime(caf::actor_system& system, runtime_setup s) {
  if (const auto supported = validate(s.profile); !supported) return tl::unexpected{supported.error()};
  for (const auto& [name, missing] : {std::pair{"device", s.device == nullptr},
                                      {"manager", s.manager == nullptr},
                                      {"open_provider", !s.open_provider},
                                      {"submit_workers", s.submit_workers == nullptr},
                                      {"proof_workers", s.proof_workers == nullptr}})
    if (missing) return fail(errc::invalid, fmt::format("runtime_setup.{} is missing", name));
  const auto& layout = s.manager->layout();
  auto roots = std::make_shared<ledger>();
  auto parts = allocate_parts(s, layout, *roots);
  if (!parts) return tl::unexpected{parts.error()};

  auto page_access = page_access_of(s, layout);
  if (!page_access) return tl::unexpected{page_access.error()};

  std::vector<std::size_t> part_of_group;
  for (const auto& g : layout.layer_groups) part_of_group.push_back(static_cast<std::size_t>(g.pool_group));
  runtime_parts made;
  made.roots = roots;
  made.parts = *parts;
  made.watch = std::make_shared<observation>(s.log, *parts);
  const auto watch = s.metered ? made.watch : nullptr;  // else it is asked, but nobody writes there
  made.touches = std::make_shared<touch_table>(*parts);
  made.paint_exposure = std::make_shared<std::atomic<std::uint64_t>>(0);
  try {
    made.service = s.open_provider(provider_context{
        std::make_shared<const local_resolver>(*parts, part_of_group), s.provider_workers, made.touches});
  } catch (...) {
    return fail(errc::provider, "the provider can't be opened: " + what_was_thrown());
  }
  if (made.service == nullptr) return fail(errc::provider, "the provider can't be opened: there is none");
  // Should the memory have to stay, so must whoever may still touch it.
  roots->root_keepalive(made.service);
  roots->root_keepalive(s.device);
  roots->root_keepalive(s.manager);
  roots->root_keepalive(*page_access);  // freed behind the actors, on no thread of theirs

  auto w = std::make_shared<wiring>();
  w->runtime = s.runtime;
  w->manager = spawn_manager(
      system, {s.runtime, s.manager, s.manager_blocks, s.device, *std::move(page_access), watch});
  lending_config lending{s.runtime, layout, *parts, s.scope, s.max_waiting_leases};
  w->lender = spawn_lender(system, {std::move(lending), roots, made.touches, s.paint, made.paint_exposure,
                                    std::chrono::seconds{10}, watch});
  w->adapter = spawn_adapter(
      system, {s.runtime, roots, *parts, s.registration_timeout, made.service->as_fetches() != nullptr,
               made.service->as_publishes() != nullptr, s.max_operations, s.max_queued_submissions, watch});
  w->backend = spawn_backend(
      system, {s.runtime, made.service, s.submit_workers, roots, s.polling, made.service->describe(), watch});
  w->proof_collector =
      spawn_proof_collector(system, {made.service, s.proof_workers, roots, s.polling, watch, s.ladder});
  w->deadline_arbiter = spawn_deadline_arbiter(system, {s.runtime, s.contain, watch});
  w->cuda = spawn_cuda(system,
                       {.device = s.device, .spin = s.cuda_spin, .keep_awake = s.keep_awake, .watch = watch});
  w->supervisor = spawn_supervisor(system, {.roots = roots, .contain = s.contain, .watch = watch});
  w->inspector = spawn_inspector(system, {.watch = made.watch});
  const wired hello{w};
  const auto greet = [&hello](const auto&... actors) { (caf::anon_send(actors, hello), ...); };
  greet(w->manager, w->lender, w->adapter, w->backend, w->proof_collector, w->deadline_arbiter, w->cuda,
        w->supervisor, w->inspector);
  made.actors = std::move(w);
  return made;
}

}  // namespace kvlease

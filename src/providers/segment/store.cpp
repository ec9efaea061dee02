#include "src/providers/segment/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/providers/segment/journal.hpp"

namespace kvlease {

namespace {

/// Generations of one opening follow those of every one before it.
constexpr unsigned epoch_shift = 40;
constexpr std::uint64_t least_journal_bound = std::uint64_t{4} << 20;

}  // namespace

result<std::shared_ptr<segment_store>> segment_store::open(const segment_options& options,
                                                           std::unique_ptr<disk_engine> engine) {
  auto files = segment_files::open(options.directory, options.bytes, options.segment, options.direct);
  if (!files) return tl::unexpected{files.error()};
  std::shared_ptr<segment_store> store{new segment_store{options, *std::move(files)}};
  if (const auto ok = store->recover(); !ok) return tl::unexpected{ok.error()};
  if (!engine && options.engine != engine_choice::threads) {
    auto ring = open_ring_engine(options.depth);
    if (!ring && options.engine == engine_choice::uring)
      return fail(ring.error().code, "segment: engine is 'uring': " + ring.error().text);
    if (ring)
      engine = *std::move(ring);
    else
      store->engine_because_ = ring.error().text;
  }
  store->engine_ = engine ? std::move(engine) : open_thread_engine(options.depth);
  return store;
}

segment_store::segment_store(segment_options options, std::unique_ptr<segment_files> files)
    : options_{std::move(options)},
      files_{std::move(files)},
      index_{files_->geometry(), options_.policy},
      buffers_{options_.bounce} {}

std::string segment_store::describe() const {
  static constexpr const char* policies[] = {"slru", "s3fifo", "lru"};
  const auto& g = files_->geometry();
  const auto pinned = engine_->buffers();
  return fmt::format(
      "segment {} ({} segments of {} bytes, {}, {}{}{}, {} of {} buffers registered, eviction {})",
      options_.directory, g.segments, g.segment_bytes, engine_->describe(),
      files_->direct() ? std::string{"O_DIRECT"} : "buffered: " + files_->buffered_because(),
      options_.durable ? ", durable" : "", engine_because_.empty() ? engine_because_ : ", " + engine_because_,
      pinned.accepted, pinned.told, policies[static_cast<std::size_t>(options_.policy)]);
}

std::shared_ptr<void> segment_store::admit(std::size_t units) {
  auto queued = queued_.load();
  do {
    if (units > options_.queue - std::min(options_.queue, queued)) return nullptr;
  } while (!queued_.compare_exchange_weak(queued, queued + units));
  // Whoever has a ticket has the store too, and gives the ticket back first.
  return {this, [units](segment_store* s) { s->queued_ -= units; }};
}

// ---- The index -------------------------------------------------------------------------------------------

std::optional<stored_unit> segment_store::find(const unit_key& key) const {
  const std::lock_guard lock{mutex_};
  return index_.find(key);
}

std::optional<stored_unit> segment_store::begin_read(const unit_key& key) {
  const std::lock_guard lock{mutex_};
  return index_.begin_read(key);
}

void segment_store::end_read(const stored_unit& unit, bool found_right) {
  {
    const std::lock_guard lock{mutex_};
    index_.end_read(unit, found_right);
  }
  committer_.look_again();
}

void segment_store::remove(const unit_key& key, const stored_unit& unit) {
  const std::lock_guard lock{mutex_};
  index_.remove(key, unit.generation);
}

void segment_store::cancel(disk_place place) {
  {
    const std::lock_guard lock{mutex_};
    index_.cancel(place);
  }
  committer_.look_again();
}

tl::expected<segment_index::reservation, error> segment_store::reserve_locked(std::uint64_t length,
                                                                              bool may_evict, bool& later) {
  later = false;
  if (broken_) return tl::unexpected{*broken_};
  auto r = index_.reserve(length, may_evict);
  if (!r) {
    later = r.error() != segment_index::refusal::too_large;
    return fail(errc::capacity, fmt::format("segment: a unit of {} bytes does not fit a segment of {} bytes",
                                            length, files_->geometry().segment_bytes));
  }
  if (!r->head) return *std::move(r);
  // Rare, and nothing may lie in the segment before its head does: so with the lock held.
  std::array<std::byte, disk_block> block{};
  encode_head(*r->head, block);
  auto ok = files_->write_block(r->head->segment, 0, block);
  if (ok && options_.durable) ok = files_->sync(r->head->segment);
  if (ok) return *std::move(r);
  broken_ = ok.error();
  index_.cancel(r->place);
  return tl::unexpected{*broken_};
}

result<std::optional<segment_index::reservation>> segment_store::place(
    const std::shared_ptr<incoming_unit>& unit) {
  bool later = false;
  std::unique_lock lock{mutex_};
  // In durable mode what goes must be in the journal before its place is overwritten: the committer's work.
  auto r = reserve_locked(unit->length(), !options_.durable, later);
  lock.unlock();
  if (r) return std::optional{*std::move(r)};
  if (!later) return tl::unexpected{r.error()};
  committer_.add_waiting(unit);
  return std::optional<segment_index::reservation>{};
}

// ---- Making visible --------------------------------------------------------------------------------------

segment_store::unit_list segment_store::round(unit_list& written, unit_list& waiting) {
  // Of two writings of one name, the second comes again in the next round; a name that is there stays.
  unit_list fresh, kept, again, settled;
  {
    const std::lock_guard lock{mutex_};
    for (auto& unit : written) {
      const auto& key = unit->key();
      const auto there = index_.find(key);
      const bool twice = std::ranges::any_of(fresh, [&](const auto& other) {
        return other->key().name == key.name && other->key().extent == key.extent;
      });
      (there && there->verified ? kept : twice ? again : fresh).push_back(std::move(unit));
    }
  }
  written = std::move(again);
  const auto placed = find_places(waiting, settled);
  const auto ok = fresh.empty() && placed.empty() ? result<void>{} : persist(fresh, placed);
  for (auto* group : {&kept, &fresh})
    for (auto& unit : *group) {
      const std::lock_guard lock{mutex_};
      if (ok || group == &kept) {
        unit->settled(index_.insert(unit->key(), unit->written()));
      } else {
        index_.cancel(unit->written().place);
        unit->settled(tl::unexpected{ok.error()});
      }
      settled.push_back(std::move(unit));
    }
  disk_operations ready;
  for (const auto& p : placed) {
    if (ok) {
      p.unit->placed(p.at);
      ready.push_back(p.unit);
    } else {
      cancel(p.at.place);
      p.unit->settled(tl::unexpected{ok.error()});
      settled.push_back(p.unit);
    }
  }
  if (!ready.empty()) engine_->submit(std::move(ready));
  if (files_->journal_bytes() > journal_bound_)
    if (const auto rewritten = rewrite_journal(); !rewritten) {
      const std::lock_guard lock{mutex_};
      broken_ = rewritten.error();
    }
  return settled;
}

std::vector<segment_store::placing> segment_store::find_places(unit_list& waiting, unit_list& settled) {
  std::vector<placing> placed;
  unit_list still;
  const std::lock_guard lock{mutex_};
  for (auto& unit : waiting) {
    bool later = false;
    if (auto r = reserve_locked(unit->length(), true, later)) {
      placed.push_back({std::move(unit), *std::move(r)});
    } else if (later) {
      still.push_back(std::move(unit));
    } else {
      unit->settled(tl::unexpected{r.error()});
      settled.push_back(std::move(unit));
    }
  }
  waiting = std::move(still);
  return placed;
}

result<void> segment_store::persist(const unit_list& written, const std::vector<placing>& placed) {
  std::vector<std::byte> records;
  std::vector<std::uint32_t> segments;
  for (const auto& unit : written) {
    const auto u = unit->written();
    append_segment_record(
        {true, u.place, u.generation, u.length, u.checksum, unit->key().extent, unit->key().name}, records);
    if (std::ranges::find(segments, u.place.segment) == segments.end()) segments.push_back(u.place.segment);
  }
  if (!options_.durable) return files_->append_journal(records);
  for (const auto& p : placed)
    for (const auto& [place, generation] : p.at.evicted)
      append_segment_record({false, place, generation, 0, 0, {}, {}}, records);
  const auto broken = [this](const error& e) {
    // What a failed fdatasync has lost is not known: nothing more is promised.
    const std::lock_guard lock{mutex_};
    broken_ = e;
    return tl::unexpected{e};
  };
  for (const auto n : segments)
    if (const auto ok = files_->sync(n); !ok) return broken(ok.error());
  if (const auto ok = files_->append_journal(records); !ok) return ok;
  if (const auto ok = files_->sync_journal(); !ok) return broken(ok.error());
  return {};
}

result<void> segment_store::rewrite_journal() {
  std::vector<std::byte> all;
  begin_segment_journal(epoch_, all);
  {
    const std::lock_guard lock{mutex_};
    index_.each([&](const unit_key& key, const stored_unit& u) {
      append_segment_record({true, u.place, u.generation, u.length, u.checksum, key.extent, key.name}, all);
    });
  }
  journal_bound_ = std::max<std::uint64_t>(least_journal_bound, 2 * all.size());
  return files_->replace_journal(all);
}

// ---- After a restart -------------------------------------------------------------------------------------

result<void> segment_store::recover() {
  std::vector<segment_head> heads;
  std::array<std::byte, disk_block> block{};
  for (std::uint32_t n = 0; n < files_->geometry().segments; ++n) {
    if (const auto ok = files_->read_block(n, 0, block); !ok) return ok;
    const auto head = decode_head(block, n, files_->geometry());
    if (!head) continue;
    heads.push_back(*head);
    index_.adopt(*head);
  }
  const auto journal = files_->read_journal();
  if (!journal) return tl::unexpected{journal.error()};
  const auto reading = read_segment_journal(*journal, [&](const segment_record& r) {
    if (r.added)
      index_.restore({r.extent, r.name}, {r.place, r.generation, r.length, r.checksum, false});
    else
      index_.drop(r.place, r.generation);
  });
  scanned_ = !heads.empty() && (!reading || !reading->whole);
  if (scanned_)
    for (const auto& head : heads) scan(head);
  epoch_ = std::max(reading ? reading->epoch : 0, index_.last_generation() >> epoch_shift) + 1;
  index_.recovered(epoch_ << epoch_shift);
  return rewrite_journal();
}

/// Slots that can't be read are without a unit.
void segment_store::scan(const segment_head& head) {
  std::array<std::byte, disk_block> block{};
  for (std::uint32_t slot = 0; slot < files_->geometry().slots(head.unit_bytes); ++slot) {
    const auto offset = segment_geometry::offset(slot, head.unit_bytes);
    if (!files_->read_block(head.segment, offset, block)) continue;
    if (const auto f = unit_in(block, head))
      index_.restore({f->extent, f->name},
                     {{head.segment, slot}, f->generation, f->length, f->checksum, false});
  }
}

// ---- Looking ---------------------------------------------------------------------------------------------

segment_store::figures segment_store::look() const {
  const std::lock_guard lock{mutex_};
  return {index_.units(), index_.unit_bytes(), index_.evictions(), files_->journal_bytes(), scanned_,
          queued_};
}

std::string segment_store::check() const {
  const std::lock_guard lock{mutex_};
  return index_.check();
}

}  // namespace kvlease

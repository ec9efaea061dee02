#include "tools/bench/copy_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>

#include "tools/bench/parallel.hpp"

namespace kvlease::bench {

namespace {

constexpr std::byte poison{0xa5};
constexpr std::size_t worth_a_thread = std::size_t{4} << 20;

std::byte* host(std::uintptr_t at) { return reinterpret_cast<std::byte*>(at); }

std::uint64_t mixed(std::uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

void fill_random(std::byte* at, std::size_t nbytes, std::uint64_t seed) {
  in_parallel(nbytes / 8, worth_a_thread / 8, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      const std::uint64_t word = mixed((seed << 48) + i);
      std::memcpy(at + i * 8, &word, 8);
    }
  });
}

void fill_poison(std::byte* at, std::size_t nbytes) {
  in_parallel(nbytes, worth_a_thread, [&](std::size_t first, std::size_t last) {
    std::memset(at + first, std::to_integer<int>(poison), last - first);
  });
}

bool all_poison(const std::byte* at, std::size_t nbytes) {
  // The first is, and each equals its neighbour.
  return nbytes == 0 || (at[0] == poison && std::memcmp(at, at + 1, nbytes - 1) == 0);
}

/// Counts what is wrong over many threads, and keeps the lowest index.
class tally {
 public:
  void add(std::size_t index) {
    ++count_;
    const std::lock_guard lock{mutex_};
    first_ = std::min(first_, index);
  }
  std::size_t count() const { return count_; }
  std::size_t first() const { return first_; }

 private:
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::size_t first_ = SIZE_MAX;
};

}  // namespace

std::vector<std::uint32_t> scatter(std::size_t slots, std::size_t pages, std::uint64_t seed) {
  assert(pages >= 2 * slots && pages <= UINT32_MAX);
  std::vector<std::uint32_t> order(pages);
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937_64 random{seed};
  const auto swap_in = [&](std::size_t at) { std::swap(order[at], order[at + random() % (pages - at)]); };
  for (std::size_t i = 0; i < slots; ++i) {
    swap_in(i);
    // At most one page of the many that are left is wrong here.
    while (i > 0 && order[i] == order[i - 1] + 1) swap_in(i);
  }
  order.resize(slots);
  return order;
}

copy_arena::copy_arena(target& on, copy_kind kind, const limits& most) : on_{on}, kind_{kind}, most_{most} {}

result<std::unique_ptr<copy_arena>> copy_arena::make(target& on, const std::vector<device_port*>& devices,
                                                     copy_kind kind, const limits& most) {
  assert(!devices.empty());
  std::unique_ptr<copy_arena> made{new copy_arena{on, kind, most}};
  made->most_window_ = std::max(most.window_bytes, most.most_total);
  made->part_bytes_ = 2 * made->most_window_;
  const bool in = kind == copy_kind::host_to_device;
  auto pool = devices.front()->allocate_device(made->part_bytes_ * (in ? devices.size() : 1));
  if (!pool) return tl::unexpected{pool.error()};
  made->pool_ = *std::move(pool);
  auto mirror = devices.front()->allocate_staging(made->part_bytes_);
  if (!mirror) return tl::unexpected{mirror.error()};
  made->mirror_ = *std::move(mirror);
  for (auto* device : devices) {
    auto staging = device->allocate_staging(made->most_window_);
    if (!staging) return tl::unexpected{staging.error()};
    if (in) fill_random(host((*staging)->address()), made->most_window_, 1);
    made->staging_.push_back(*std::move(staging));
  }
  if (in) return made;
  fill_random(host(made->mirror_->address()), made->part_bytes_, 2);
  const auto sent = on.upload(made->pool_->address(), host(made->mirror_->address()), made->part_bytes_);
  if (!sent) return tl::unexpected{sent.error()};
  return made;
}

std::size_t copy_arena::window_of(const copy_shape& shape) const noexcept {
  const std::size_t batches = std::max<std::size_t>(most_.window_bytes / shape.total_bytes, 1);
  return batches * shape.total_bytes;
}

std::uintptr_t copy_arena::page_at(std::size_t t, std::size_t page) const noexcept {
  const std::size_t part = kind_ == copy_kind::host_to_device ? t * part_bytes_ : 0;
  return pool_->address() + part + page * shape_.row_bytes;
}

std::uintptr_t copy_arena::slot_at(std::size_t t, std::size_t slot) const noexcept {
  return staging_[t]->address() + slot * shape_.row_bytes;
}

result<void> copy_arena::begin(const copy_shape& shape, std::uint64_t seed) {
  assert(shape.kind == kind_ && shape.total_bytes <= most_.most_total &&
         shape.total_bytes % shape.row_bytes == 0);
  shape_ = shape;
  window_ = window_of(shape);
  page_of_slot_ = scatter(window_ / shape.row_bytes, 2 * window_ / shape.row_bytes, seed);
  for (std::size_t t = 0; t < staging_.size(); ++t) {
    if (kind_ == copy_kind::device_to_host) {
      fill_poison(host(slot_at(t, 0)), window_);
    } else if (auto filled = on_.fill(page_at(t, 0), poison, 2 * window_); !filled) {
      return filled;
    }
  }
  return {};
}

std::vector<std::shared_ptr<const copy_batch>> copy_arena::batches(std::size_t t, event_handle after) const {
  std::vector<std::shared_ptr<const copy_batch>> all;
  for (std::size_t slot = 0; slot < page_of_slot_.size();) {
    auto batch = std::make_shared<copy_batch>();
    batch->kind = kind_;
    batch->after = after;
    batch->rows.reserve(shape_.rows());
    for (std::size_t r = 0; r < shape_.rows(); ++r, ++slot) {
      const auto page = page_at(t, page_of_slot_[slot]);
      const auto staged = slot_at(t, slot);
      batch->rows.push_back(kind_ == copy_kind::host_to_device ? copy_row{page, staged, shape_.row_bytes}
                                                               : copy_row{staged, page, shape_.row_bytes});
    }
    all.push_back(std::move(batch));
  }
  return all;
}

std::vector<copy_row> copy_arena::contiguous(std::size_t t) const {
  std::vector<copy_row> all;
  for (std::size_t slot = 0; slot < page_of_slot_.size(); slot += shape_.rows()) {
    const auto page = page_at(t, slot);
    const auto staged = slot_at(t, slot);
    all.push_back(kind_ == copy_kind::host_to_device ? copy_row{page, staged, shape_.total_bytes}
                                                     : copy_row{staged, page, shape_.total_bytes});
  }
  return all;
}

result<std::optional<std::string>> copy_arena::wrong(std::size_t t, bool scattered) {
  if (kind_ == copy_kind::device_to_host) return compare_slots(t, scattered);
  const auto got = on_.download(host(mirror_->address()), page_at(t, 0), 2 * window_);
  if (!got) return tl::unexpected{got.error()};
  return compare_pages(t, scattered);
}

std::optional<std::string> copy_arena::compare_pages(std::size_t t, bool scattered) {
  const std::size_t row = shape_.row_bytes;
  const std::size_t pages = 2 * window_ / row;
  constexpr std::size_t nobody = SIZE_MAX;
  std::vector<std::size_t> slot_of_page(pages, nobody);
  for (std::size_t slot = 0; slot < page_of_slot_.size(); ++slot)
    slot_of_page[scattered ? page_of_slot_[slot] : slot] = slot;
  tally missing, stray;
  in_parallel(pages, worth_a_thread / row, [&](std::size_t first, std::size_t last) {
    for (std::size_t p = first; p < last; ++p) {
      const auto* found = host(mirror_->address()) + p * row;
      if (slot_of_page[p] == nobody) {
        if (!all_poison(found, row)) stray.add(p);
      } else if (std::memcmp(found, host(slot_at(t, slot_of_page[p])), row) != 0) {
        missing.add(p);
      }
    }
  });
  if (missing.count() + stray.count() == 0) return std::nullopt;
  return fmt::format(
      "{} of {} pages are not what their slots hold, and {} others were touched; first page {}",
      missing.count(), page_of_slot_.size(), stray.count(), std::min(missing.first(), stray.first()));
}

std::optional<std::string> copy_arena::compare_slots(std::size_t t, bool scattered) const {
  const std::size_t row = shape_.row_bytes;
  tally missing;
  in_parallel(page_of_slot_.size(), worth_a_thread / row, [&](std::size_t first, std::size_t last) {
    for (std::size_t slot = first; slot < last; ++slot) {
      const std::size_t page = scattered ? page_of_slot_[slot] : slot;
      if (std::memcmp(host(slot_at(t, slot)), host(mirror_->address()) + page * row, row) != 0)
        missing.add(slot);
    }
  });
  if (missing.count() == 0) return std::nullopt;
  return fmt::format("{} of {} slots are not what their pages hold; first slot {}", missing.count(),
                     page_of_slot_.size(), missing.first());
}

}  // namespace kvlease::bench

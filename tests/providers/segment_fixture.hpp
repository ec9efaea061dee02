// A segment store in a directory of its own, over real, aligned staging memory whose bytes tell which unit
// they are of; and a disk that moves bytes when the test says so.
#pragma once

#include <doctest/doctest.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/mix.hpp"
#include "src/providers/segment/journal.hpp"
#include "src/providers/segment/segment_provider.hpp"
#include "tests/providers/provider_fixture.hpp"
#include "tests/temporary_directory.hpp"

namespace kvlease::test {

/// The bytes of the unit of this name: different for any two, at every 8 bytes.
inline void write_content(const std::string& name, std::span<std::byte> out) {
  const auto seed = checksum_of(std::as_bytes(std::span{name}));
  for (std::size_t i = 0; i < out.size(); i += 8) {
    const auto word = mix64(seed + i);
    std::memcpy(out.data() + i, &word, std::min<std::size_t>(8, out.size() - i));
  }
}
inline bool has_content(const std::string& name, std::span<const std::byte> in) {
  std::vector<std::byte> expected(in.size());
  write_content(name, expected);
  return std::ranges::equal(expected, in);
}

/// 16 slots of `slot_bytes` in group 0, aligned to 4 KiB but for `shift` bytes.
class staging {
 public:
  explicit staging(std::size_t slot_bytes, std::size_t shift = 0)
      : memory_{static_cast<std::byte*>(std::aligned_alloc(4096, round_to_blocks(16 * slot_bytes + shift)))} {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.get()) + shift;
    std::vector<part> parts{{.name = "p",
                             .address = address,
                             .nbytes = static_cast<std::int64_t>(16 * slot_bytes),
                             .slot_bytes = static_cast<std::int64_t>(slot_bytes),
                             .slots = 16}};
    touches = std::make_shared<touch_table>(parts);
    for (int s = 0; s < 16; ++s) touches->grant(0, s, lease_id{1}, true);
    context = {std::make_shared<local_resolver>(parts, std::vector<std::size_t>{0}), nullptr, touches};
    clear();
  }
  std::span<std::byte> slot(std::int64_t i) const { return *context.resolver->resolve(0, i); }
  std::span<std::byte> all() const { return {slot(0).data(), 16 * slot(0).size()}; }
  void clear() const { std::ranges::fill(all(), untouched); }
  bool untouched_at(std::int64_t i) const {
    return std::ranges::all_of(slot(i), [](std::byte b) { return b == untouched; });
  }

  std::shared_ptr<touch_table> touches;
  provider_context context;

 private:
  struct release {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, release> memory_;
};

enum class found { right, wrong, miss, other };

/// Opened over `staging`, its memory registered.
class opened {
 public:
  opened(const segment_options& o, const staging& s, std::unique_ptr<disk_engine> engine = {}) : staging_{s} {
    auto store_made = segment_store::open(o, std::move(engine));
    REQUIRE_MESSAGE(store_made.has_value(), (store_made ? "" : store_made.error().text));
    store = *store_made;
    subject = std::make_unique<segment_provider>(store, s.context);
    pool = subject->register_pool(reinterpret_cast<std::uintptr_t>(s.all().data()), s.all().size());
  }
  std::optional<outcome> finish(const std::shared_ptr<attempt>& a) {
    subject->settle({&a, 1});
    REQUIRE(subject->quiesce({&a, 1}));
    return a->poll();
  }
  bool publish(const std::string& name, std::int64_t slot = 0) {
    write_content(name, staging_.slot(slot));
    return served_of(finish(subject->publish(extent_of({at(name.c_str(), 0, slot)})))).contains(name);
  }
  /// Into a slot that is untouched before; what is not served must leave it so.
  found fetch(const std::string& name, std::int64_t slot = 1) {
    std::ranges::fill(staging_.slot(slot), untouched);
    const auto o = finish(subject->fetch(extent_of({at(name.c_str(), 0, slot)})));
    const auto* d = o ? std::get_if<delivered>(&*o) : nullptr;
    if (d == nullptr) return found::other;
    if (d->served().empty()) return staging_.untouched_at(slot) ? found::miss : found::wrong;
    return has_content(name, staging_.slot(slot)) ? found::right : found::wrong;
  }

  std::shared_ptr<segment_store> store;
  std::unique_ptr<segment_provider> subject;
  std::unique_ptr<registration> pool;

 private:
  const staging& staging_;
};

inline segment_options small_store(const temporary_directory& d) {
  segment_options o;
  o.directory = d.path().string();
  o.bytes = std::uint64_t{1} << 20;
  o.engine = engine_choice::threads;
  o.depth = 4;
  return o;
}

inline std::vector<std::byte> file_bytes(const std::filesystem::path& path) {
  std::ifstream in{path, std::ios::binary};
  std::vector<char> raw{std::istreambuf_iterator<char>{in}, {}};
  const auto all = std::as_bytes(std::span{raw});
  return {all.begin(), all.end()};
}
inline void overwrite(const std::filesystem::path& path, std::size_t offset,
                      std::span<const std::byte> with) {
  std::fstream out{path, std::ios::binary | std::ios::in | std::ios::out};
  out.seekp(static_cast<std::streamoff>(offset));
  out.write(reinterpret_cast<const char*>(with.data()), static_cast<std::streamsize>(with.size()));
  REQUIRE(out.good());
}
inline void replace_file(const std::filesystem::path& path, std::span<const std::byte> with) {
  std::ofstream out{path, std::ios::binary | std::ios::trunc};
  out.write(reinterpret_cast<const char*>(with.data()), static_cast<std::streamsize>(with.size()));
  REQUIRE(out.good());
}

/// A disk that begins and completes transfers when it is told to.
class slow_disk {
 public:
  /// For the store; the test keeps the disk.
  std::unique_ptr<disk_engine> engine() { return std::make_unique<port>(state_); }

  /// Begins all that was submitted; how many run now.
  std::size_t begin() {
    for (;;) {
      std::shared_ptr<disk_operation> next;
      {
        const std::lock_guard lock{state_->mutex};
        if (state_->queue.empty()) return running_.size();
        next = std::move(state_->queue.front());
        state_->queue.pop_front();
      }
      if (const auto t = next->begin()) running_.push_back({std::move(next), *t});
    }
  }
  std::size_t submitted() const {
    const std::lock_guard lock{state_->mutex};
    return state_->queue.size();
  }
  const disk_transfer& transfer(std::size_t i) const { return running_[i].second; }
  /// Moves the bytes of the oldest one that runs, and then says so.
  void complete() {
    land();
    end(0);
  }
  /// Moves them, and says nothing yet.
  void land() {
    const auto& t = running_.front().second;
    const auto n =
        t.which == disk_transfer::way::read
            ? ::preadv(t.file, t.parts.data(), static_cast<int>(t.count), static_cast<off_t>(t.offset))
            : ::pwritev(t.file, t.parts.data(), static_cast<int>(t.count), static_cast<off_t>(t.offset));
    REQUIRE(n == static_cast<ssize_t>(t.size()));
  }
  void end(int problem) {
    const auto operation = std::move(running_.front().first);
    running_.pop_front();
    operation->end(problem);
  }
  /// Until nothing is left.
  void drain() {
    while (begin() > 0) complete();
  }

 private:
  struct shared {
    mutable std::mutex mutex;
    std::deque<std::shared_ptr<disk_operation>> queue;
  };
  class port final : public disk_engine {
   public:
    explicit port(std::shared_ptr<shared> s) : shared_{std::move(s)} {}
    void submit(disk_operations operations) override {
      const std::lock_guard lock{shared_->mutex};
      for (auto& o : operations) shared_->queue.push_back(std::move(o));
    }
    std::string describe() const override { return "a slow disk"; }

   private:
    const std::shared_ptr<shared> shared_;
  };

  const std::shared_ptr<shared> state_ = std::make_shared<shared>();
  std::deque<std::pair<std::shared_ptr<disk_operation>, disk_transfer>> running_;
};

}  // namespace kvlease::test

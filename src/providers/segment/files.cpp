#include "src/providers/segment/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace kvlease {

namespace {

tl::unexpected<error> io_error(const std::string& what, int problem) {
  return fail(errc::io, fmt::format("segment: {}: {}", what, std::strerror(problem)));
}

/// The system's calls until all is done. 0, or errno.
int write_all(int file, std::span<const std::byte> in, std::uint64_t offset) {
  while (!in.empty()) {
    const auto n = ::pwrite(file, in.data(), in.size(), static_cast<off_t>(offset));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    in = in.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
  return 0;
}

int read_all(int file, std::span<std::byte> out, std::uint64_t offset) {
  while (!out.empty()) {
    const auto n = ::pread(file, out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
  return 0;
}

/// O_DIRECT wants an aligned block, whatever the caller has.
struct alignas(disk_block) aligned_block {
  std::array<std::byte, disk_block> bytes{};
};

std::string segment_name(std::size_t number) { return fmt::format("segment.{:04}", number); }

std::uint64_t file_size(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 ? static_cast<std::uint64_t>(s.st_size) : 0;
}

std::uint64_t default_segment(std::uint64_t total) {
  constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  return std::clamp(total / 8, std::uint64_t{256} << 10, std::max(gib, total / 256)) / disk_block *
         disk_block;
}

}  // namespace

file_handle::~file_handle() {
  if (number_ >= 0) ::close(number_);
}

result<std::unique_ptr<segment_files>> segment_files::open(const std::string& directory, std::uint64_t total,
                                                           std::uint64_t segment_bytes, bool direct) {
  std::unique_ptr<segment_files> files{new segment_files};
  files->directory_ = directory;
  files->direct_ = direct;
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return io_error(fmt::format("can't make the directory '{}'", directory), errno);
  if (const auto ok = files->lock(); !ok) return tl::unexpected{ok.error()};
  if (const auto ok = files->open_segments(total, segment_bytes); !ok) return tl::unexpected{ok.error()};
  return files;
}

/// An OFD lock: it ends with the last of this store's hold on the file, and is held against other stores of
/// this process too.
result<void> segment_files::lock() {
  const auto name = path("lock");
  lock_ = file_handle{::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
  if (lock_.number() < 0) return io_error(fmt::format("can't open '{}'", name), errno);
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  std::array<char, 32> text{};
  if (::fcntl(lock_.number(), F_OFD_SETLK, &whole) != 0) {
    if (errno != EAGAIN && errno != EACCES) return io_error(fmt::format("can't lock '{}'", name), errno);
    const auto n = ::pread(lock_.number(), text.data(), text.size() - 1, 0);
    return fail(errc::state,
                fmt::format("segment: '{}' has an owner already: process {}; one directory, one owner",
                            directory_, n > 0 ? text.data() : "unknown"));
  }
  const auto mine = fmt::format("{}", ::getpid());
  if (::ftruncate(lock_.number(), 0) != 0 ||
      write_all(lock_.number(), std::as_bytes(std::span{mine}), 0) != 0)
    return io_error(fmt::format("can't write '{}'", name), errno);
  return {};
}

result<void> segment_files::open_segments(std::uint64_t total, std::uint64_t segment_bytes) {
  const auto there = file_size(path(segment_name(0)));
  if (segment_bytes != 0 && there != 0 && there != segment_bytes)
    return fail(errc::invalid, fmt::format("segment: '{}' was made with segments of {} bytes, not {}: pass "
                                           "that, or leave it out, or use another directory",
                                           directory_, there, segment_bytes));
  geometry_.segment_bytes = there != 0 ? there : segment_bytes != 0 ? segment_bytes : default_segment(total);
  const auto count = total / geometry_.segment_bytes;
  if (geometry_.segment_bytes % disk_block != 0 || count == 0)
    return fail(errc::invalid, fmt::format("segment: {} bytes hold no segment of {} bytes; segments are "
                                           "multiples of {}",
                                           total, geometry_.segment_bytes, disk_block));
  if (count > 100'000)
    return fail(errc::invalid, fmt::format("segment: {} segments of {} bytes are too many, the bound is "
                                           "100000: make segments larger",
                                           count, geometry_.segment_bytes));
  geometry_.segments = static_cast<std::uint32_t>(count);

  std::uint64_t missing = 0;
  for (std::size_t i = 0; i < count; ++i)
    missing += geometry_.segment_bytes - std::min(geometry_.segment_bytes, file_size(path(segment_name(i))));
  struct statvfs disk {};
  if (::statvfs(directory_.c_str(), &disk) == 0 &&
      missing > static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize)
    return fail(
        errc::io,
        fmt::format("segment: '{}' needs {} bytes more, its disk has {} left: {}", directory_, missing,
                    static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize, std::strerror(ENOSPC)));
  probe_direct();
  std::vector<std::string> made_now;
  for (std::size_t i = 0; i < count; ++i) {
    const auto name = path(segment_name(i));
    bool made = false;
    const auto ok = open_segment(name, made);
    if (made) made_now.push_back(name);
    if (ok) continue;
    for (const auto& gone : made_now) ::unlink(gone.c_str());
    return ok;
  }
  for (std::size_t i = count; ::unlink(path(segment_name(i)).c_str()) == 0; ++i) continue;
  return {};
}

result<void> segment_files::open_segment(const std::string& name, bool& made) {
  made = ::access(name.c_str(), F_OK) != 0;
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (direct_ ? O_DIRECT : 0);
  file_handle file{::open(name.c_str(), flags, 0600)};
  if (file.number() < 0)
    return errno == EMFILE
               ? fail(errc::io, fmt::format("segment: can't open '{}': {}: raise ulimit -n, or make segments "
                                            "larger",
                                            name, std::strerror(errno)))
               : io_error(fmt::format("can't open '{}'", name), errno);
  if (file_size(name) != geometry_.segment_bytes)
    if (const int problem = ::posix_fallocate(file.number(), 0, static_cast<off_t>(geometry_.segment_bytes));
        problem != 0)
      return io_error(fmt::format("can't allocate {} bytes for '{}'", geometry_.segment_bytes, name),
                      problem);
  segments_.push_back(std::move(file));
  return {};
}

/// Whether this file system lets one read past the page cache.
void segment_files::probe_direct() {
  if (!direct_) {
    buffered_because_ = "direct=off";
    return;
  }
  const auto name = path("probe");
  const file_handle file{::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_DIRECT, 0600)};
  aligned_block block;
  int problem = file.number() < 0 ? errno : write_all(file.number(), block.bytes, 0);
  if (problem == 0) problem = read_all(file.number(), block.bytes, 0);
  ::unlink(name.c_str());
  direct_ = problem == 0;
  if (!direct_)
    buffered_because_ = fmt::format("the file system refuses O_DIRECT: {}", std::strerror(problem));
}

result<void> segment_files::read_block(std::uint32_t segment, std::uint64_t offset,
                                       std::span<std::byte> out) const {
  aligned_block block;
  if (const int problem = read_all(file(segment), block.bytes, offset); problem != 0)
    return io_error(fmt::format("reading '{}' at {}", path(segment_name(segment)), offset), problem);
  std::memcpy(out.data(), block.bytes.data(), disk_block);
  return {};
}

result<void> segment_files::write_block(std::uint32_t segment, std::uint64_t offset,
                                        std::span<const std::byte> in) const {
  aligned_block block;
  std::memcpy(block.bytes.data(), in.data(), disk_block);
  if (const int problem = write_all(file(segment), block.bytes, offset); problem != 0)
    return io_error(fmt::format("writing '{}' at {}", path(segment_name(segment)), offset), problem);
  return {};
}

result<void> segment_files::sync(std::uint32_t segment) const {
  if (::fdatasync(file(segment)) == 0) return {};
  return io_error(fmt::format("fdatasync of '{}'", path(segment_name(segment))), errno);
}

result<std::vector<std::byte>> segment_files::read_journal() const {
  const auto name = path("journal");
  const file_handle file{::open(name.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number() < 0 && errno == ENOENT) return std::vector<std::byte>{};
  struct stat s {};
  if (file.number() < 0 || ::fstat(file.number(), &s) != 0)
    return io_error(fmt::format("can't read '{}'", name), errno);
  std::vector<std::byte> all(static_cast<std::size_t>(s.st_size));
  if (const int problem = read_all(file.number(), all, 0); problem != 0)
    return io_error(fmt::format("reading '{}'", name), problem);
  return all;
}

result<void> segment_files::replace_journal(std::span<const std::byte> all) {
  const auto next = path("journal.next"), name = path("journal");
  file_handle file{::open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)};
  if (file.number() < 0) return io_error(fmt::format("can't make '{}'", next), errno);
  if (const int problem = write_all(file.number(), all, 0); problem != 0)
    return io_error(fmt::format("writing '{}'", next), problem);
  if (::fdatasync(file.number()) != 0) return io_error(fmt::format("fdatasync of '{}'", next), errno);
  if (::rename(next.c_str(), name.c_str()) != 0)
    return io_error(fmt::format("can't replace '{}'", name), errno);
  journal_ = std::move(file);  // the old one has no name any more
  journal_bytes_ = all.size();
  const file_handle directory{::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (directory.number() < 0 || ::fsync(directory.number()) != 0)
    return io_error(fmt::format("fsync of '{}'", directory_), errno);
  return {};
}

result<void> segment_files::append_journal(std::span<const std::byte> records) {
  if (const int problem = write_all(journal_.number(), records, journal_bytes_); problem != 0) {
    if (::ftruncate(journal_.number(), static_cast<off_t>(journal_bytes_)) != 0) journal_ = file_handle{};
    return io_error(fmt::format("writing '{}'", path("journal")), problem);
  }
  journal_bytes_ += records.size();
  return {};
}

result<void> segment_files::sync_journal() const {
  if (::fdatasync(journal_.number()) == 0) return {};
  return io_error(fmt::format("fdatasync of '{}'", path("journal")), errno);
}

}  // namespace kvlease

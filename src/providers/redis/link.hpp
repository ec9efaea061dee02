// One connection to one server, on a thread of its own: nobody else touches its socket, and it alone touches
// the memory of the commands that it carries. So the end of access is what this thread says: it has read the
// reply to its end, or drops the rest of it, or has closed the socket. None of that needs the server.
//
// It waits in poll for the socket, for its own eventfd or for the next deadline, and nowhere else.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/providers/redis/command.hpp"
#include "src/providers/redis/name_lookup.hpp"
#include "src/providers/redis/options.hpp"
#include "src/providers/redis/reply_reader.hpp"
#include "src/providers/redis/stream.hpp"
#include "src/providers/redis/waker.hpp"

namespace kvlease::redis {

/// Whom a link tells. On the link's thread, with no lock held. Outlives its links' threads.
class link_host {
 public:
  virtual ~link_host() = default;
  /// The answer to CLUSTER SLOTS that each connection to a cluster begins with.
  virtual result<void> learned(const value& slots, const link& from) = 0;
  /// A command that was waiting while the connection was made: true when another link has it now.
  virtual bool rehome(const std::shared_ptr<command>& c, const link& from) = 0;
  /// The server can't be reached.
  virtual void unreachable(const link& from) = 0;
};

class link {
 public:
  /// Starts the thread, which connects at once. `tls` may be null. Throws std::system_error when there is no
  /// thread or descriptor left.
  link(link_host& host, const options& o, endpoint to, std::shared_ptr<const tls_context> tls);
  ~link();  ///< stop() and join(); not on its own thread
  link(const link&) = delete;
  link& operator=(const link&) = delete;

  const endpoint& to() const noexcept { return to_; }

  // ---- Any thread ----
  /// Room for one more command; false at the bound. Each must be followed by push() or release().
  bool reserve() noexcept;
  /// For a command that is under way already and moves here: no bound stops it.
  void reserve_beyond() noexcept { open_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept { open_.fetch_sub(1, std::memory_order_relaxed); }
  std::size_t open() const noexcept { return open_.load(std::memory_order_relaxed); }
  /// Takes a command that room was reserved for. False when the link has stopped: it stays the caller's.
  bool push(std::shared_ptr<command> c);
  /// The last attempt to connect came to nothing and the next is not due, or has not succeeded yet.
  bool down() const noexcept { return down_.load(std::memory_order_acquire); }
  std::string why_down() const;
  /// Let go of what nobody wants any more, now.
  void sweep();
  /// Drops everything and ends the thread; returns at once.
  void stop();
  /// As soon as it carries nothing.
  void stop_when_idle();
  /// After stop(): waits for the thread, which waits for nothing. One caller.
  void join();
  bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

 private:
  class greeting;
  using clock = std::chrono::steady_clock;
  enum class phase : std::uint8_t { down, resolving, connecting, shaking, greeting, ready };
  /// A command whose bytes are being written.
  struct sending {
    std::shared_ptr<command> what;  ///< null: nobody waits for the reply
    expectation expect;
    outgoing bytes;
    std::vector<std::byte> aside = {};  ///< the payload, once its owner's memory was let go
    std::size_t written = 0;
    bool tried = false;  ///< some of it may be on its way, even if nothing was counted as written
    bool ours = false;   ///< of the greeting
  };
  /// A command whose reply is due.
  struct awaiting {
    std::shared_ptr<command> what;  ///< null: likewise
    expectation expect;
    std::size_t preludes = 0;
    bool ours = false;
  };

  void run();
  bool take_orders();
  void sweep_now();
  static void set_aside(sending& s);
  void advance(short events);
  void wait(short& events);
  std::optional<clock::time_point> deadline() const;

  // link_connect.cpp: until the connection is ready, and when it is not any more
  void begin_connecting();
  void connect_next();
  void connected();
  void shake();
  void greet();
  void greeted();
  void connect_failed(const std::string& why);
  clock::time_point after_pause();
  void broken(const std::string& why);
  void lose(const std::string& why);
  void drop_waiting(const std::string& why);

  void write_some();
  void fill_out();
  void wrote(std::size_t bytes);
  void read_some();
  bool consume();
  void hand_over(awaiting a, reply r);
  void drop(const std::shared_ptr<command>& c, bool ours, const std::string& why);

  link_host& host_;
  const options& options_;
  const endpoint to_;
  const std::shared_ptr<const tls_context> tls_;
  const std::shared_ptr<waker> waker_ = std::make_shared<waker>();

  mutable std::mutex mutex_;  ///< guards the next five
  std::vector<std::shared_ptr<command>> incoming_;
  bool sweep_ = false, stop_ = false, retire_ = false;
  std::string why_down_;
  std::atomic<std::size_t> open_{0};
  std::atomic<bool> down_{false}, ended_{false};

  // Of the thread alone.
  phase phase_ = phase::down;
  clock::time_point due_{};  ///< the next attempt, or the end of this one
  clock::time_point ready_since_{};
  clock::time_point progress_{};          ///< when the last byte moved, or the first command became due
  std::chrono::milliseconds backoff_{0};  ///< the last pause
  std::minstd_rand jitter_;
  std::optional<name_lookup> lookup_;
  std::size_t next_address_ = 0;
  owned_fd socket_;  ///< while it connects
  std::unique_ptr<stream> stream_;
  bool wants_write_ = false, readable_ = false, retiring_ = false;
  std::deque<std::shared_ptr<command>> waiting_;
  std::deque<sending> out_;
  std::size_t out_bytes_ = 0;
  std::deque<awaiting> due_replies_;
  std::optional<reply_reader> reader_;  ///< of the first of due_replies_
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  ///< what is in the buffer
  std::string problem_;              ///< of the greeting

  std::thread thread_;  ///< last: it uses the others
};

}  // namespace kvlease::redis

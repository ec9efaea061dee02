#include "tools/serve/http_server.hpp"

#if defined(__SANITIZE_THREAD__)
#define BOOST_ASIO_DISABLE_FENCED_BLOCK 1  // one thread runs the loop; the sanitizer knows no fences
#endif

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstring>
#include <list>
#include <thread>

#include "tools/serve/addresses.hpp"
#include "tools/serve/job_queue.hpp"

namespace kvlease::serve {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using local = asio::local::stream_protocol;
using tcp = asio::ip::tcp;
using any_stream = beast::basic_stream<asio::generic::stream_protocol>;

constexpr std::size_t max_target_bytes = 2048;
constexpr std::string_view read_methods = "GET, HEAD";
constexpr std::chrono::milliseconds linger_for{1000}, stream_pause{100}, accept_pause{100};

/// What a browser may do with an answer: load nothing from elsewhere, and guess no type.
void common_fields(http::fields& f) {
  f.set(http::field::server, "kvlease");
  f.set(http::field::cache_control, "no-store");
  f.set("X-Content-Type-Options", "nosniff");
  f.set("Content-Security-Policy",
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
        "img-src data:");
}

std::string_view view_of(beast::string_view s) { return {s.data(), s.size()}; }

/// The status for what the parser refused; 0 where there is nobody to answer.
unsigned status_of(const error_code& ec) {
  if (ec == http::error::header_limit) return 431;
  if (ec == http::error::body_limit || ec == http::error::buffer_overflow) return 413;
  if (ec == http::error::end_of_stream) return 0;
  return ec.category() == http::make_error_code(http::error::bad_method).category() ? 400 : 0;
}

/// The last word to a client whose connection is taken from it: as much as goes out at once. Nothing else may
/// be under way to it.
template <class Socket>
void say_last(Socket& socket, std::string_view status, std::string_view why) {
  const auto body = fmt::format("{{\"schema_version\":1,\"error\":\"{}\"}}", why);
  const auto text = fmt::format(
      "HTTP/1.1 {}\r\nServer: kvlease\r\nContent-Type: application/json\r\nConnection: close\r\n"
      "Content-Length: {}\r\n\r\n{}",
      status, body.size(), body);
  [[maybe_unused]] const auto n =
      ::send(socket.native_handle(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

// ---- what all connections share; but for what says otherwise, the io thread's own

class session;

struct http_core : std::enable_shared_from_this<http_core> {
  http_core(http_options o, http_handler h)
      : options{std::move(o)}, handler{std::move(h)}, jobs{options.workers, options.max_queued} {}

  result<void> listen();
  void accept_local();
  void accept_tcp();
  void admit(any_stream stream, bool over_tcp);
  void stop();

  /// Any thread. Drops `f` once the server is stopping.
  template <class F>
  void on_io(F f) {
    const std::lock_guard lock{stopping_mutex};
    if (!stopping) asio::post(io, std::move(f));
  }

  http_options options;
  http_handler handler;
  asio::io_context io{1};
  local::acceptor unix_acceptor{io};
  tcp::acceptor tcp_acceptor{io};
  asio::steady_timer retry_unix{io}, retry_tcp{io};
  std::list<std::shared_ptr<session>> sessions;
  std::list<session*> silent;  ///< wait for their client, longest first
  std::size_t streams = 0;
  std::uint16_t port = 0;
  bool bound = false;
  std::atomic<std::uint64_t> accepted{0}, evicted{0}, refused{0};
  std::atomic<std::size_t> open{0};
  std::mutex stopping_mutex;
  bool stopping = false;
  job_queue jobs;
  std::thread thread;
};

// ---- one connection

class session : public std::enable_shared_from_this<session> {
 public:
  session(std::shared_ptr<http_core> of, any_stream stream, bool over_tcp)
      : of_{std::move(of)}, stream_{std::move(stream)}, over_tcp_{over_tcp}, due_{of_->io} {}

  void read_request() {
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(of_->options.max_header_bytes));
    // A stated length is held against it with the header, before the path is known; the path's own bound
    // follows.
    parser_->body_limit(std::max(of_->options.max_body_bytes, of_->options.max_post_bytes));
    be_silent();
    head_ = false;
    reading_ = true;
    stream_.expires_never();  // its own clock would close without a word
    due_.expires_after(of_->options.request_within);
    due_.async_wait([self = shared_from_this()](error_code ec) {
      if (ec || self->closed_ || !self->reading_) return;
      self->late_ = true;
      self->stream_.cancel();  // the read ends, and on_bad_request says why
    });
    http::async_read_header(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code ec, std::size_t) { self->on_header(ec); });
  }

  void close() {
    if (closed_) return;
    closed_ = true;
    leave_silent();
    due_.cancel();
    if (pause_) pause_->cancel();
    error_code ignored;
    stream_.socket().close(ignored);
    if (streaming_) --of_->streams;
    --of_->open;
    of_->sessions.erase(place);
  }

  /// Makes room for another client.
  void evict() {
    if (reading_ && begun())
      say_last(stream_.socket(), "408 Request Timeout", "the request is not complete, and others wait");
    close();
  }

  std::list<std::shared_ptr<session>>::iterator place;

 private:
  /// Some of a request has come.
  bool begun() const { return buffer_.size() > 0 || (parser_ && parser_->got_some()); }

  void be_silent() {
    leave_silent();
    silent_ = of_->silent.insert(of_->silent.end(), this);
    is_silent_ = true;
  }
  void leave_silent() {
    if (is_silent_) of_->silent.erase(silent_);
    is_silent_ = false;
  }

  void on_header(error_code ec) {
    if (closed_) return;
    if (ec) return on_bad_request(ec);
    const auto& head = parser_->get();
    if (const auto wrong = framing_problem(head); !wrong.empty()) return refuse(400, wrong);
    const bool posts = head.method() == http::verb::post && !of_->options.posts.empty() &&
                       view_of(head.target()) == of_->options.posts;
    const auto most = posts ? of_->options.max_post_bytes : of_->options.max_body_bytes;
    if (parser_->content_length().value_or(0) > most) return refuse(413, "the body is too large");
    parser_->body_limit(most);
    const auto expected = head[http::field::expect];
    if (!expected.empty() && !beast::iequals(expected, "100-continue"))
      return refuse(417, "only 100-continue can be expected");
    if (!expected.empty()) {
      head_only_.emplace(http::status::continue_, 11);
      http::async_write(stream_, *head_only_, [self = shared_from_this()](error_code e, std::size_t) {
        if (e) return self->close();
        self->read_body();
      });
    } else {
      read_body();
    }
  }

  /// What leaves it open where a request ends, or whom it is for (RFC 9112, 3.2 and 6).
  std::string framing_problem(const http::request_header<>& head) const {
    if (head.count(http::field::host) > 1 || (head.version() >= 11 && head.count(http::field::host) == 0))
      return "there must be one Host field";
    if (head.count(http::field::transfer_encoding) == 0) return "";
    if (head.version() < 11) return "Transfer-Encoding needs HTTP/1.1";
    if (!parser_->chunked() || head.count(http::field::transfer_encoding) > 1)
      return "the only transfer coding is chunked";
    return head.count(http::field::content_length) > 0 ? "Content-Length beside Transfer-Encoding" : "";
  }

  void read_body() {
    if (closed_) return;
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](error_code ec, std::size_t) {
      if (self->closed_) return;
      if (ec) return self->on_bad_request(ec);
      self->on_request();
    });
  }

  void on_bad_request(error_code ec) {
    if (late_) return begun() ? refuse(408, "the request did not come in time") : close();
    const auto status = status_of(ec);
    if (status == 0) return close();
    refuse(status, ec == http::error::partial_message ? "the request breaks off"
                   : status == 431                    ? "the header is too large"
                   : status == 413                    ? "the body is too large"
                                                      : "this is no HTTP request: " + ec.message());
  }

  void on_request() {
    reading_ = false;
    due_.cancel();
    const auto& message = parser_->get();
    keep_alive_ = message.keep_alive();
    version_ = message.version();
    head_ = message.method() == http::verb::head;
    if (message.method() != http::verb::get && !head_ && message.method() != http::verb::post)
      return refuse(405, "only GET, HEAD and POST are known",
                    !of_->options.posts.empty() && view_of(message.target()) == of_->options.posts
                        ? "POST"
                        : read_methods);
    if (message.target().size() > max_target_bytes) return refuse(414, "the target is too long");
    const auto host = view_of(message[http::field::host]);
    if (over_tcp_ && !is_loopback_host(host)) return refuse(403, "Host must name this machine's loopback");
    const auto origin = view_of(message[http::field::origin]);
    if (!origin.empty() && origin != fmt::format("http://{}", host))
      return refuse(403, "requests of other origins are not answered");
    auto target = split_target(view_of(message.target()));
    if (!target) return refuse(400, target.error().text);
    ask({message.method() == http::verb::post ? "POST" : "GET", std::move(target->path),
         std::move(target->query), std::move(parser_->get().body())});
  }

  void ask(http_request request) {
    leave_silent();
    const auto turn = ++turn_;
    http_reply reply = [self = shared_from_this(), turn](http_response r) {
      self->of_->on_io([self, turn, r = std::move(r)]() mutable {
        if (!self->closed_ && self->turn_ == turn) self->answer(std::move(r));
      });
    };
    pause_.emplace(of_->io);
    pause_->expires_after(of_->options.answer_within);
    pause_->async_wait([self = shared_from_this(), turn](error_code ec) {
      if (!ec && !self->closed_ && self->turn_ == turn)
        self->answer({504, "{\"schema_version\":1,\"error\":\"no answer in time\"}"});
    });
    const bool taken = of_->jobs.post([of = of_, request = std::move(request), reply] {
      try {
        of->handler(request, reply);
      } catch (const std::exception&) {
        reply({500, "{\"schema_version\":1,\"error\":\"internal\"}"});
      }
    });
    if (!taken) answer({503, "{\"schema_version\":1,\"error\":\"too many requests wait\"}"});
  }

  void refuse(unsigned status, std::string text, std::string_view allowed = {}) {
    ++of_->refused;
    reading_ = false;
    due_.cancel();
    keep_alive_ = false;
    lingers_ = true;
    for (auto& c : text)
      if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) c = ' ';
    http_response r{status, fmt::format("{{\"schema_version\":1,\"error\":\"{}\"}}", text)};
    r.allowed = allowed;
    answer(std::move(r));
  }

  void answer(http_response r) {
    if (pause_) pause_->cancel();
    ++turn_;  // a second reply to the same request finds another turn
    be_silent();
    if (r.more && (head_ || of_->streams >= of_->options.max_streams)) {
      if (!head_) r = {503, "{\"schema_version\":1,\"error\":\"too many streams are open\"}"};
      r.more = nullptr;
    }
    stream_.expires_after(of_->options.write_within);
    if (r.more) return start_stream(std::move(r));
    full_.emplace(static_cast<http::status>(r.status), version_);
    common_fields(*full_);
    full_->set(http::field::content_type, r.content_type);
    if (!r.allowed.empty()) full_->set(http::field::allow, r.allowed);
    full_->keep_alive(keep_alive_);
    full_->body() = std::move(r.body);
    full_->prepare_payload();
    serializer_.emplace(*full_);
    const auto done = [self = shared_from_this()](error_code ec, std::size_t) { self->on_answered(ec); };
    if (head_)
      http::async_write_header(stream_, *serializer_, done);
    else
      http::async_write(stream_, *serializer_, done);
  }

  void on_answered(error_code ec) {
    serializer_.reset();
    full_.reset();
    if (closed_) return;
    if (ec) return close();
    if (keep_alive_) return read_request();
    error_code ignored;
    stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
    if (!lingers_) return close();
    // Closed with input unread, the connection could take the answer with it.
    stream_.expires_after(linger_for);
    discard();
  }

  void discard() {
    stream_.async_read_some(asio::buffer(waste_), [self = shared_from_this()](error_code ec, std::size_t n) {
      if (self->closed_) return;
      self->discarded_ += n;
      if (ec || self->discarded_ > (std::size_t{1} << 24)) return self->close();
      self->discard();
    });
  }

  // ---- streams

  void start_stream(http_response r) {
    ++of_->streams;
    streaming_ = true;
    leave_silent();
    more_ = std::move(r.more);
    keep_alive_ = false;
    head_only_.emplace(static_cast<http::status>(r.status), version_);
    common_fields(*head_only_);
    head_only_->set(http::field::content_type, r.content_type);
    head_only_->keep_alive(false);
    if (version_ >= 11) head_only_->chunked(true);
    header_serializer_.emplace(*head_only_);
    pause_.emplace(of_->io);
    http::async_write_header(stream_, *header_serializer_,
                             [self = shared_from_this()](error_code ec, std::size_t) {
                               if (self->closed_) return;
                               if (ec) return self->close();
                               self->stream_.expires_never();
                               self->watch_client();
                               self->ask_more();
                             });
  }

  /// The only way to learn that a client is gone while there is nothing to write.
  void watch_client() {
    stream_.async_read_some(asio::buffer(waste_), [self = shared_from_this()](error_code ec, std::size_t) {
      if (self->closed_) return;
      if (ec) return self->close();
      self->watch_client();
    });
  }

  void ask_more() {
    const bool taken = of_->jobs.post([self = shared_from_this()] {
      std::optional<std::string> chunk;
      try {
        chunk = self->more_();
      } catch (const std::exception&) {  // ends the stream
      }
      self->of_->on_io([self, chunk = std::move(chunk)]() mutable { self->on_chunk(std::move(chunk)); });
    });
    if (!taken) wait_for_more();
  }

  void wait_for_more() {
    pause_->expires_after(stream_pause);
    pause_->async_wait([self = shared_from_this()](error_code) {
      if (!self->closed_) self->ask_more();
    });
  }

  void on_chunk(std::optional<std::string> chunk) {
    if (closed_) return;
    if (chunk && chunk->empty()) return wait_for_more();
    const bool last = !chunk;
    chunk_ = last             ? (version_ >= 11 ? "0\r\n\r\n" : "")
             : version_ >= 11 ? fmt::format("{:x}\r\n{}\r\n", chunk->size(), *chunk)
                              : std::move(*chunk);
    stream_.expires_after(of_->options.write_within);
    asio::async_write(stream_, asio::buffer(chunk_),
                      [self = shared_from_this(), last](error_code ec, std::size_t) {
                        if (self->closed_) return;
                        if (ec || last) return self->close();
                        self->ask_more();
                      });
  }

  std::shared_ptr<http_core> of_;
  any_stream stream_;
  const bool over_tcp_;
  bool closed_ = false, keep_alive_ = false, head_ = false, lingers_ = false, streaming_ = false;
  unsigned version_ = 11;
  std::uint64_t turn_ = 0;
  beast::flat_buffer buffer_{64 * 1024};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> full_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
  std::optional<http::response<http::empty_body>> head_only_;
  std::optional<http::response_serializer<http::empty_body>> header_serializer_;
  std::list<session*>::iterator silent_;
  bool is_silent_ = false;
  std::array<char, 4096> waste_{};
  std::size_t discarded_ = 0;
  std::function<std::optional<std::string>()> more_;
  std::optional<asio::steady_timer> pause_;
  asio::steady_timer due_;               ///< the request must be complete by then
  bool reading_ = false, late_ = false;  ///< a request is due; it has not come in time
  std::string chunk_;
};

// ---- listening

result<void> http_core::listen() {
  const auto failed = [](const std::string& what, const error_code& ec) {
    return fail(errc::io, fmt::format("{}: {}", what, ec.message()));
  };
  error_code ec;
  if (const auto free = clear_socket_path(options.socket_path); !free) return free;
  if (unix_acceptor.open(local{}, ec)) return failed("unix socket", ec);
  // The node is born with the socket's own mode: at no time can others open it.
  if (::fchmod(unix_acceptor.native_handle(), 0600) != 0)
    return fail(errc::io, fmt::format("'{}': {}", options.socket_path, std::strerror(errno)));
  if (unix_acceptor.bind(local::endpoint{options.socket_path}, ec)) return failed(options.socket_path, ec);
  bound = true;
  ::chmod(options.socket_path.c_str(), 0600);
  if (unix_acceptor.listen(4096, ec)) return failed(options.socket_path, ec);
  if (!options.tcp) return {};
  const auto where = parse_loopback(*options.tcp);
  if (!where) return tl::unexpected{where.error()};
  const tcp::endpoint endpoint{asio::ip::make_address(where->address), where->port};
  if (tcp_acceptor.open(endpoint.protocol(), ec)) return failed(*options.tcp, ec);
  tcp_acceptor.set_option(tcp::acceptor::reuse_address{true}, ec);
  if (tcp_acceptor.bind(endpoint, ec)) return failed(*options.tcp, ec);
  if (tcp_acceptor.listen(4096, ec)) return failed(*options.tcp, ec);
  port = tcp_acceptor.local_endpoint().port();
  return {};
}

void http_core::accept_local() {
  unix_acceptor.async_accept([this](error_code ec, local::socket s) {
    if (!unix_acceptor.is_open()) return;
    if (!ec) admit(any_stream{asio::generic::stream_protocol::socket{std::move(s)}}, false);
    if (!ec || ec == asio::error::connection_aborted) return accept_local();
    retry_unix.expires_after(accept_pause);  // out of file descriptors, most likely
    retry_unix.async_wait([this](error_code stopped) {
      if (!stopped) accept_local();
    });
  });
}

void http_core::accept_tcp() {
  tcp_acceptor.async_accept([this](error_code ec, tcp::socket s) {
    if (!tcp_acceptor.is_open()) return;
    if (!ec) {
      error_code ignored;
      s.set_option(tcp::no_delay{true}, ignored);
      admit(any_stream{asio::generic::stream_protocol::socket{std::move(s)}}, true);
    }
    if (!ec || ec == asio::error::connection_aborted) return accept_tcp();
    retry_tcp.expires_after(accept_pause);
    retry_tcp.async_wait([this](error_code stopped) {
      if (!stopped) accept_tcp();
    });
  });
}

void http_core::admit(any_stream stream, bool over_tcp) {
  ++accepted;
  if (sessions.size() >= options.max_connections) {
    ++evicted;
    if (silent.empty())  // all the others are at work: this one is closed
      return say_last(stream.socket(), "503 Service Unavailable", "too many connections are open");
    silent.front()->evict();
  }
  auto s = std::make_shared<session>(shared_from_this(), std::move(stream), over_tcp);
  s->place = sessions.insert(sessions.end(), s);
  ++open;
  s->read_request();
}

void http_core::stop() {
  {
    const std::lock_guard lock{stopping_mutex};
    if (stopping) return;
    asio::post(io, [this] {
      error_code ignored;
      unix_acceptor.close(ignored);
      tcp_acceptor.close(ignored);
      retry_unix.cancel();
      retry_tcp.cancel();
      while (!sessions.empty()) sessions.front()->close();
    });
    stopping = true;
  }
  jobs.close();
  if (thread.joinable()) thread.join();
  if (bound) ::unlink(options.socket_path.c_str());
}

result<std::unique_ptr<http_server>> http_server::start(http_options options, http_handler handler) {
  auto b = std::make_shared<http_core>(std::move(options), std::move(handler));
  auto made = std::unique_ptr<http_server>{new http_server{b}};
  if (const auto ok = b->listen(); !ok) return tl::unexpected{ok.error()};
  b->accept_local();
  if (b->options.tcp) b->accept_tcp();
  b->thread = std::thread{[b] { b->io.run(); }};
  return made;
}

http_server::http_server(std::shared_ptr<http_core> core) : core_{std::move(core)} {}
http_server::~http_server() { core_->stop(); }
std::uint16_t http_server::tcp_port() const noexcept { return core_->port; }
http_figures http_server::figures() const {
  return {core_->accepted, core_->evicted, core_->refused, core_->open};
}

}  // namespace kvlease::serve

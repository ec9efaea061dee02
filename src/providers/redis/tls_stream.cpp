// TLS over our own socket calls: OpenSSL's would raise SIGPIPE.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>

#include "src/providers/redis/stream.hpp"

namespace kvlease::redis {

namespace {

struct freed {
  void operator()(SSL_CTX* c) const { SSL_CTX_free(c); }
  void operator()(SSL* s) const { SSL_free(s); }
  void operator()(BIO* b) const { BIO_free(b); }
};

/// The first error of this thread's queue, which is empty afterwards.
std::string openssl_reason() {
  const auto code = ERR_get_error();
  ERR_clear_error();
  const char* text = code == 0 ? nullptr : ERR_reason_error_string(code);
  return text == nullptr ? "no reason given" : text;
}

// ---- The socket under OpenSSL ----------------------------------------------------------------------------

int fd_of(BIO* b) { return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(b))); }

int answer(BIO* b, ssize_t n, int again) {
  BIO_clear_retry_flags(b);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    BIO_set_flags(b, again | BIO_FLAGS_SHOULD_RETRY);
  return static_cast<int>(n);
}
int bio_write(BIO* b, const char* data, int size) {
  return answer(b, ::send(fd_of(b), data, static_cast<std::size_t>(size), MSG_NOSIGNAL), BIO_FLAGS_WRITE);
}
int bio_read(BIO* b, char* data, int size) {
  return answer(b, ::recv(fd_of(b), data, static_cast<std::size_t>(size), 0), BIO_FLAGS_READ);
}
long bio_control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "kvlease socket");
    if (m == nullptr) return m;
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_ctrl(m, bio_control);
    return m;
  }();
  return method;
}

// ---- The stream ------------------------------------------------------------------------------------------

class tls final : public stream {
 public:
  tls(owned_fd s, std::unique_ptr<SSL, freed> session)
      : socket_{std::move(s)}, session_{std::move(session)} {}

  int fd() const noexcept override { return socket_.get(); }
  bool buffers() const noexcept override { return SSL_has_pending(session_.get()) == 1; }

  moved handshake() override {
    ERR_clear_error();
    const int done = SSL_connect(session_.get());
    return done == 1 ? moved{moved::kind::some} : stopped(done, "TLS handshake: ");
  }

  moved read(std::span<const iovec> into) override {
    for (const auto& piece : into)
      if (piece.iov_len > 0) {
        std::size_t n = 0;
        ERR_clear_error();
        const int good = SSL_read_ex(session_.get(), piece.iov_base, piece.iov_len, &n);
        return good == 1 ? moved{moved::kind::some, n} : stopped(good, "TLS: ");
      }
    return {moved::kind::some, 0};
  }

  moved write(std::span<const iovec> from) override {
    for (const auto& piece : from)
      if (piece.iov_len > 0) {
        std::size_t n = 0;
        ERR_clear_error();
        const int good = SSL_write_ex(session_.get(), piece.iov_base, piece.iov_len, &n);
        return good == 1 ? moved{moved::kind::some, n} : stopped(good, "TLS: ");
      }
    return {moved::kind::some, 0};
  }

 private:
  moved stopped(int returned, const char* during) {
    const int problem = errno;
    switch (SSL_get_error(session_.get(), returned)) {
      case SSL_ERROR_WANT_READ:
        return {moved::kind::wants_read};
      case SSL_ERROR_WANT_WRITE:
        return {moved::kind::wants_write};
      case SSL_ERROR_ZERO_RETURN:
        return {moved::kind::over, 0, "the server closed the connection"};
      case SSL_ERROR_SYSCALL:
        return {moved::kind::over, 0,
                problem == 0 ? "the server closed the connection" : std::strerror(problem)};
      default:
        break;
    }
    auto why = during + openssl_reason();
    if (const auto verdict = SSL_get_verify_result(session_.get()); verdict != X509_V_OK)
      why += fmt::format(" ({})", X509_verify_cert_error_string(verdict));
    return {moved::kind::over, 0, std::move(why)};
  }

  owned_fd socket_;
  std::unique_ptr<SSL, freed> session_;
};

// ---- What all connections share --------------------------------------------------------------------------

class shared_context final : public tls_context {
 public:
  shared_context(std::unique_ptr<SSL_CTX, freed> c, tls_options o)
      : context_{std::move(c)}, options_{std::move(o)} {}

  std::unique_ptr<stream> wrap(owned_fd socket, const std::string& host) const override {
    std::unique_ptr<SSL, freed> session{SSL_new(context_.get())};
    std::unique_ptr<BIO, freed> bio{socket_method() == nullptr ? nullptr : BIO_new(socket_method())};
    const auto& name = options_.server_name.empty() ? host : options_.server_name;
    if (!session || !bio || !ask_for(session.get(), name)) return nullptr;
    BIO_set_data(bio.get(), reinterpret_cast<void*>(static_cast<std::intptr_t>(socket.get())));
    BIO_set_init(bio.get(), 1);
    auto* both = bio.release();
    SSL_set_bio(session.get(), both, both);
    return std::make_unique<tls>(std::move(socket), std::move(session));
  }

 private:
  /// An address is checked against the certificate's addresses, a name against its names and sent as SNI.
  bool ask_for(SSL* session, const std::string& name) const {
    unsigned char address[sizeof(in6_addr)];
    const bool is_address =
        ::inet_pton(AF_INET, name.c_str(), address) == 1 || ::inet_pton(AF_INET6, name.c_str(), address) == 1;
    if (!is_address && SSL_set_tlsext_host_name(session, name.c_str()) != 1) return false;
    if (!options_.verify) return true;
    if (is_address) return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), name.c_str()) == 1;
    SSL_set_hostflags(session, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(session, name.c_str()) == 1;
  }

  std::unique_ptr<SSL_CTX, freed> context_;
  const tls_options options_;
};

}  // namespace

result<std::shared_ptr<const tls_context>> tls_context::open(const tls_options& o) {
  ERR_clear_error();
  std::unique_ptr<SSL_CTX, freed> c{SSL_CTX_new(TLS_client_method())};
  const auto refused = [](const char* option, const std::string& file) {
    return fail(errc::io, fmt::format("rediss: {}={} can't be used: {}", option, file, openssl_reason()));
  };
  if (!c) return fail(errc::io, "rediss: OpenSSL gives no context: " + openssl_reason());
  SSL_CTX_set_min_proto_version(c.get(), TLS1_2_VERSION);
  // What is left of a piece after a wait may lie elsewhere, with the same content (link.cpp, aside).
  SSL_CTX_set_mode(c.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(c.get(), o.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (!o.ca.empty()) {
    if (SSL_CTX_load_verify_file(c.get(), o.ca.c_str()) != 1) return refused("ca", o.ca);
  } else if (o.verify && SSL_CTX_set_default_verify_paths(c.get()) != 1) {
    return fail(errc::io, "rediss: the system's certificates can't be used: " + openssl_reason());
  }
  if (!o.cert.empty()) {
    if (SSL_CTX_use_certificate_chain_file(c.get(), o.cert.c_str()) != 1) return refused("cert", o.cert);
    if (SSL_CTX_use_PrivateKey_file(c.get(), o.key.c_str(), SSL_FILETYPE_PEM) != 1)
      return refused("key", o.key);
    if (SSL_CTX_check_private_key(c.get()) != 1) return refused("key", o.key);
  }
  return std::make_shared<const shared_context>(std::move(c), o);
}

}  // namespace kvlease::redis

#include "tools/inspect/target.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "tools/inspect/format.hpp"
#include "tools/inspect/http_client.hpp"
#include "tools/inspect/read_json.hpp"
#include "tools/inspect/render_json.hpp"
#include "tools/inspect/render_metrics.hpp"
#include "tools/inspect/render_trace.hpp"
#include "tools/serve/addresses.hpp"

namespace kvlease::inspect {

namespace {

constexpr std::chrono::seconds answer_within{10};

/// What may stand in a path as it is.
std::string encoded(std::string_view text) {
  constexpr std::string_view plain = "-._~:/!$'()*,;=@";
  std::string out;
  for (const char c : text) {
    const bool keep = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                      plain.find(c) != std::string_view::npos;
    if (keep)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return out;
}

result<nlohmann::json> parsed(std::string_view text, const std::string& name) {
  // Nothing of ours is deep: what is would only cost the stack.
  constexpr int deepest = 32;
  bool too_deep = false;
  auto j = nlohmann::json::parse(
      text,
      [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep |= depth > deepest;
        return depth <= deepest;
      },
      false);
  if (too_deep || j.is_discarded() || !j.is_object() || !j.contains("schema_version"))
    return fail(errc::io, fmt::format("'{}' does not speak the inspection's JSON", name));
  if (const auto& v = j["schema_version"]; v != inspection_schema_version)
    return fail(errc::io, fmt::format("'{}' has schema_version {}, this tool knows {}", name, v.dump(),
                                      inspection_schema_version));
  return j;
}

result<std::string> read_all(const std::string& path) {
  if (path == "-") return std::string{std::istreambuf_iterator<char>{std::cin}, {}};
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown))
    return fail(errc::io, fmt::format("'{}': {}", path, std::strerror(EISDIR)));
  std::ifstream in{path, std::ios::binary};
  if (!in) return fail(errc::io, fmt::format("'{}': {}", path, std::strerror(errno)));
  std::ostringstream text;
  text << in.rdbuf();
  if (in.bad()) return fail(errc::io, fmt::format("'{}': {}", path, std::strerror(errno)));
  return std::move(text).str();
}

}  // namespace

result<target> target::open(const inspect_options& o) {
  target t;
  if (o.file.empty()) {
    t.name_ = o.socket.empty() ? serve::default_socket_path() : o.socket;
    return o.runtime ? t.of_runtime(*o.runtime) : t;
  }
  t.name_ = o.file;
  const auto text = read_all(o.file);
  if (!text) return tl::unexpected{text.error()};
  auto j = parsed(*text, o.file);
  if (!j) return tl::unexpected{j.error()};
  if (const auto it = j->find("operations"); it == j->end() || !it->is_array())
    return fail(errc::io, fmt::format("'{}' is no snapshot: it has no operations", o.file));
  t.file_ = *std::move(j);
  return t;
}

target target::of_runtime(std::size_t index) const {
  target t = *this;
  if (live()) t.prefix_ = fmt::format("/runtime/{}", index);
  return t;
}

std::string target::path(std::string_view of) const { return prefix_ + std::string{of}; }

result<std::string> target::from_file(std::string_view of) const {
  const auto missing = [this](const char* what) {
    return fail(errc::unsupported,
                fmt::format("'{}' was saved without {}: `kvlease inspect snapshot` of a live "
                            "runtime has them",
                            name_, what));
  };
  if (of == "/trace") {
    const auto saved = events_of(file_);
    return saved ? result<std::string>{trace_json(saved->events, saved->open)} : missing("its events");
  }
  const auto metrics = metrics_of(file_);
  if (!metrics) return missing("its metrics");
  if (of != "/metrics") return metrics_json(*metrics);
  const std::vector<runtime_metrics> one{{"0", health_of(file_), *metrics}};
  return metrics_text(one);
}

result<std::string> target::text(std::string_view of) const {
  if (!live()) return from_file(of);
  auto a = http_get(name_, path(of), answer_within);
  if (!a) return tl::unexpected{a.error()};
  if (a->status == 200) return std::move(a->body);
  const auto j = nlohmann::json::parse(a->body, nullptr, false);
  const auto why = j.is_object() ? text_of(j, "error") : "";
  return fail(a->status < 500 ? errc::invalid : errc::io,
              fmt::format("'{}' answers {}{}{}", name_, a->status, why.empty() ? "" : ": ", why));
}

result<nlohmann::json> target::snapshot(std::size_t limit) const {
  if (!live()) return file_;
  const auto answer = text(fmt::format("/snapshot?limit={}", limit));
  if (!answer) return tl::unexpected{answer.error()};
  return parsed(*answer, name_);
}

result<nlohmann::json> target::whole_snapshot(std::size_t limit, std::size_t explain,
                                              std::size_t events) const {
  if (!live()) return file_;
  const auto answer =
      text(fmt::format("/snapshot?limit={}&explain={}&events={}&metrics=1", limit, explain, events));
  if (!answer) return tl::unexpected{answer.error()};
  return parsed(*answer, name_);
}

result<nlohmann::json> target::why(const subject& about) const {
  if (!live()) return why_in_snapshot(file_, about);
  const auto a = http_get(name_, path(fmt::format("/why/{}/{}", to_string(about.kind), encoded(about.id))),
                          answer_within);
  if (!a) return tl::unexpected{a.error()};
  auto j = parsed(a->body, name_);
  if (!j) return j;
  if (j->contains("found")) return j;
  return fail(errc::invalid, fmt::format("'{}' answers {}: {}", name_, a->status, text_of(*j, "error")));
}

result<std::string> target::health() const {
  const auto all = health_of_all();
  if (!all) return tl::unexpected{all.error()};
  return text_of(*all, "health");
}

result<nlohmann::json> target::health_of_all() const {
  if (!live()) return file_;
  const auto a = http_get(name_, path("/health"), answer_within);
  if (!a) return tl::unexpected{a.error()};
  auto j = parsed(a->body, name_);
  if (j && !j->contains("health"))
    return fail(errc::invalid, fmt::format("'{}' answers {}: {}", name_, a->status, text_of(*j, "error")));
  return j;
}

}  // namespace kvlease::inspect

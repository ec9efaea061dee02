#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "src/names.hpp"
#include "tools/serve/request.hpp"

namespace kvlease::serve {

namespace {

using nlohmann::json;

constexpr double longest_seconds = 3600;

tl::unexpected<error> bad(std::string text) { return fail(errc::invalid, std::move(text)); }

result<std::vector<std::uint32_t>> tokens_of(const json& value, std::size_t most) {
  if (!value.is_array() || value.empty()) return bad("tokens must be an array of at least one token id");
  if (value.size() > most)
    return bad(fmt::format("tokens has {} ids, the pool holds {}", value.size(), most));
  std::vector<std::uint32_t> out;
  out.reserve(value.size());
  for (const auto& t : value) {
    if (!t.is_number_unsigned() || t.get<std::uint64_t>() >= token_id_limit)
      return bad(fmt::format("tokens[{}] must be a whole number from 0 to 2^31 - 1", out.size()));
    out.push_back(t.get<std::uint32_t>());
  }
  return out;
}

result<double> seconds_of(const json& value, const std::string& name) {
  if (!value.is_number()) return bad(name + " must be a number of seconds");
  const auto s = value.get<double>();
  if (!(s >= 0 && s <= longest_seconds)) return bad(fmt::format("{} must be 0 to {}", name, longest_seconds));
  return s;
}

result<void> take_drill(const json& value, request_drill& into) {
  if (!value.is_object()) return bad("drill must be an object");
  for (const auto& [name, v] : value.items()) {
    if (name == "lose_copy" && v.is_boolean()) {
      into.lose_copy = v.get<bool>();
      continue;
    }
    auto* member = name == "keep_lease_seconds"   ? &into.keep_lease
                   : name == "read_guard_seconds" ? &into.read_guard
                   : name == "copy_seconds"       ? &into.copy
                                                  : nullptr;
    if (member == nullptr)
      return bad("drill knows keep_lease_seconds, read_guard_seconds, copy_seconds and lose_copy");
    const auto s = seconds_of(v, name);
    if (!s) return tl::unexpected{s.error()};
    *member = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>{*s});
  }
  return {};
}

result<void> take_member(const std::string& name, const json& value, const serve_plan& plan,
                         request_ask& into) {
  if (name == "tokens") {
    auto tokens = tokens_of(value, plan.instances.pool_blocks * plan.instances.tokens_per_block);
    if (!tokens) return tl::unexpected{tokens.error()};
    into.tokens = *std::move(tokens);
  } else if (name == "salt") {
    if (!value.is_number_unsigned()) return bad("salt must be a whole number");
    into.salt = value.get<std::uint64_t>();
  } else if (name == "instance") {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() >= plan.instances.instances)
      return bad(fmt::format("instance must be 0 to {}", plan.instances.instances - 1));
    into.instance = value.get<std::size_t>();
  } else if (name == "timeout_seconds") {
    const auto s = seconds_of(value, name);
    if (!s) return tl::unexpected{s.error()};
    const auto timeout = transfer_timeout::make(std::chrono::duration<double>{*s});
    if (!timeout) return bad(name + ": " + timeout.error().text);
    into.timeout = *timeout;
  } else if (name == "drill") {
    if (!plan.drills) return bad("drill: the service was started without --drills");
    return take_drill(value, into.drill);
  } else {
    return bad("known members are tokens, salt, instance, timeout_seconds and drill");
  }
  return {};
}

}  // namespace

result<request_ask> parse_request(std::string_view body, const serve_plan& plan) {
  const auto j = json::parse(body, nullptr, false);
  if (!j.is_object()) return bad("the body must be a JSON object with the member tokens");
  request_ask ask;
  for (const auto& [name, value] : j.items())
    if (const auto ok = take_member(name, value, plan, ask); !ok) return tl::unexpected{ok.error()};
  if (ask.tokens.empty()) return bad("tokens is missing");
  return ask;
}

}  // namespace kvlease::serve

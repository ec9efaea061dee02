#include "actors/errors.hpp"

#include <caf/atom.hpp>
#include <caf/message.hpp>
#include <caf/sec.hpp>

namespace kvlease {

namespace {
const auto category = caf::atom("kvlease");
}

caf::error to_caf(const error& e) {
  return caf::error{static_cast<std::uint8_t>(e.code), category, caf::make_message(e.text)};
}

error from_caf(const caf::error& e) {
  if (e.category() == category && e.context().match_elements<std::string>())
    return {static_cast<errc>(e.code()), e.context().get_as<std::string>(0)};
  if (e == caf::sec::request_timeout) return {errc::timeout, "no answer in time"};
  if (e == caf::sec::request_receiver_down) return {errc::state, "the actor that should answer is down"};
  return {errc::state, "CAF error " + std::to_string(e.code()) + " of category " + to_string(e.category())};
}

}  // namespace kvlease

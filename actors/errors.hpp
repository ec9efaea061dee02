// kvlease::error <-> caf::error, in one place.
#pragma once

#include <caf/error.hpp>
#include <caf/result.hpp>

#include "messages/error.hpp"

namespace kvlease {

caf::error to_caf(const error& e);
/// Also for CAF's own errors: a request that was not answered in time is `timeout`, an actor that is gone
/// is `state`.
error from_caf(const caf::error& e);

/// A handler's answer from a core result.
template <class T>
caf::result<T> answer(result<T> r) {
  if (r) return *std::move(r);
  return to_caf(r.error());
}

}  // namespace kvlease

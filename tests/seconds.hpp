// Points of fake time, in the seconds that the scenarios speak of.
#pragma once

#include <chrono>

#include "messages/retirement.hpp"

namespace kvlease::test {

inline time_point at(double seconds) {
  return time_point{std::chrono::duration_cast<duration>(std::chrono::duration<double>(seconds))};
}

}  // namespace kvlease::test

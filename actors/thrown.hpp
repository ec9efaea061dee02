// What a provider threw, as text. Providers throw what they like; exceptions stop here.
#pragma once

#include <exception>
#include <string>

namespace kvlease {

/// Text of the exception being handled; never empty.
inline std::string what_was_thrown() {
  try {
    throw;
  } catch (const std::exception& e) {
    return *e.what() != '\0' ? e.what() : "an exception without a text";
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

}  // namespace kvlease

// The page: one HTML document that needs nothing else, and reads /snapshot once a second.
#pragma once

#include <string>
#include <string_view>

namespace kvlease::inspect {

std::string page();

std::string_view page_markup();
std::string_view page_style();
std::string_view page_script();

}  // namespace kvlease::inspect

// Tables that `kvlease bench copy --table` measured, one a kind of device.
#include "src/copy_path.hpp"

namespace kvlease {

copy_table copy_table::for_device(std::string_view name) { return copy_table{std::string{name}, {}}; }

}  // namespace kvlease

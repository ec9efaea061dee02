// Tables that `kvlease bench copy --load --table FILE` measured, one a kind of device: what it wrote, as it
// is (docs/results/ has the runs).
#include <array>
#include <string_view>

#include "src/copy_path.hpp"

namespace kvlease {

namespace {

constexpr std::string_view h200 = R"(device NVIDIA H200
# direction load row_bytes total_bytes path
h2d idle 4096 1048576 kernel
h2d busy 4096 1048576 kernel
h2d idle 4096 4194304 bulk
h2d busy 4096 4194304 kernel
h2d idle 4096 16777216 bulk
h2d busy 4096 16777216 kernel
h2d idle 4096 67108864 bulk
h2d busy 4096 67108864 bulk
h2d idle 4096 536870912 bulk
h2d busy 4096 536870912 bulk
h2d idle 16384 1048576 kernel
h2d busy 16384 1048576 rows
h2d idle 16384 4194304 kernel
h2d busy 16384 4194304 kernel
h2d idle 16384 16777216 bulk
h2d busy 16384 16777216 kernel
h2d idle 16384 67108864 bulk
h2d busy 16384 67108864 kernel
h2d idle 16384 536870912 bulk
h2d busy 16384 536870912 bulk
h2d idle 65536 1048576 kernel
h2d busy 65536 1048576 batch
h2d idle 65536 4194304 kernel
h2d busy 65536 4194304 batch
h2d idle 65536 16777216 bulk
h2d busy 65536 16777216 batch
h2d idle 65536 67108864 bulk
h2d busy 65536 67108864 kernel
h2d idle 65536 536870912 bulk
h2d busy 65536 536870912 bulk
h2d idle 262144 1048576 batch
h2d busy 262144 1048576 batch
h2d idle 262144 4194304 batch
h2d busy 262144 4194304 batch
h2d idle 262144 16777216 bulk
h2d busy 262144 16777216 batch
h2d idle 262144 67108864 bulk
h2d busy 262144 67108864 batch
h2d idle 262144 536870912 bulk
h2d busy 262144 536870912 bulk
h2d idle 1048576 1048576 rows
h2d busy 1048576 1048576 rows
h2d idle 1048576 4194304 batch
h2d busy 1048576 4194304 batch
h2d idle 1048576 16777216 batch
h2d busy 1048576 16777216 batch
h2d idle 1048576 67108864 bulk
h2d busy 1048576 67108864 batch
h2d idle 1048576 536870912 bulk
h2d busy 1048576 536870912 batch
d2h idle 4096 1048576 kernel
d2h busy 4096 1048576 batch
d2h idle 4096 4194304 kernel
d2h busy 4096 4194304 kernel
d2h idle 4096 16777216 bulk
d2h busy 4096 16777216 kernel
d2h idle 4096 67108864 bulk
d2h busy 4096 67108864 bulk
d2h idle 4096 536870912 bulk
d2h busy 4096 536870912 bulk
d2h idle 16384 1048576 kernel
d2h busy 16384 1048576 batch
d2h idle 16384 4194304 kernel
d2h busy 16384 4194304 batch
d2h idle 16384 16777216 bulk
d2h busy 16384 16777216 kernel
d2h idle 16384 67108864 bulk
d2h busy 16384 67108864 kernel
d2h idle 16384 536870912 bulk
d2h busy 16384 536870912 bulk
d2h idle 65536 1048576 kernel
d2h busy 65536 1048576 batch
d2h idle 65536 4194304 kernel
d2h busy 65536 4194304 batch
d2h idle 65536 16777216 kernel
d2h busy 65536 16777216 batch
d2h idle 65536 67108864 bulk
d2h busy 65536 67108864 kernel
d2h idle 65536 536870912 bulk
d2h busy 65536 536870912 bulk
d2h idle 262144 1048576 batch
d2h busy 262144 1048576 batch
d2h idle 262144 4194304 batch
d2h busy 262144 4194304 batch
d2h idle 262144 16777216 bulk
d2h busy 262144 16777216 batch
d2h idle 262144 67108864 bulk
d2h busy 262144 67108864 batch
d2h idle 262144 536870912 bulk
d2h busy 262144 536870912 batch
d2h idle 1048576 1048576 rows
d2h busy 1048576 1048576 rows
d2h idle 1048576 4194304 batch
d2h busy 1048576 4194304 batch
d2h idle 1048576 16777216 batch
d2h busy 1048576 16777216 batch
d2h idle 1048576 67108864 batch
d2h busy 1048576 67108864 batch
d2h idle 1048576 536870912 bulk
d2h busy 1048576 536870912 batch
)";

constexpr std::array all{h200};

}  // namespace

copy_table copy_table::for_device(std::string_view name) {
  for (const auto text : all)
    if (auto table = parse(text); table && table->device() == name) return *std::move(table);
  return copy_table{std::string{name}, {}};
}

}  // namespace kvlease

// What a segment URI says: segment:DIR?key=value&...
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "messages/error.hpp"
#include "src/providers/segment/eviction.hpp"

namespace kvlease {

enum class engine_choice : std::uint8_t {
  automatic,  ///< io_uring, or threads where it is refused
  uring,      ///< or an error
  threads,
};

struct segment_options {
  std::string directory;
  std::uint64_t bytes = std::uint64_t{4} << 30;  ///< of all segments; 1 MiB or more
  std::uint64_t segment = 0;                     ///< of each; 0: by the rule of segment_files::open
  bool durable = false;                          ///< visible only once a power loss can't take it any more
  bool direct = true;                            ///< past the page cache, where the file system lets one
  engine_choice engine = engine_choice::automatic;
  unsigned depth = 16;                         ///< transfers at once; 1 to 1024
  std::size_t queue = 65536;                   ///< units submitted and not done; 1 to 2^24
  std::size_t bounce = std::size_t{64} << 20;  ///< bytes of bounce buffers; 64 KiB or more
  eviction policy = eviction::slru;
};

inline constexpr std::string_view segment_uri_form =
    "segment:DIR[?bytes=N&segment=N&durable=off|on&direct=on|off&engine=auto|uring|threads&depth=N&queue=N"
    "&bounce=N&eviction=slru|s3fifo|lru]";

/// Errors: invalid, with the option, its value and the rule.
result<segment_options> parse_segment_options(std::string_view after_colon);

}  // namespace kvlease

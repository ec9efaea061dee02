// A TCP port of 127.0.0.1 for a server of one's own.
#pragma once

namespace kvlease::bench {

/// One that nobody uses now; 0 when there is none. Somebody may take it before you do: try again then.
int free_port();

}  // namespace kvlease::bench

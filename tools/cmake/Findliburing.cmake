# Finds liburing. Target: liburing::liburing.
include(plain_library)
kvlease_find_plain_library(liburing liburing liburing.h uring liburing-dev)

# Finds xxHash. Target: xxHash::xxhash.
include(plain_library)
kvlease_find_plain_library(xxHash xxhash xxhash.h xxhash libxxhash-dev)

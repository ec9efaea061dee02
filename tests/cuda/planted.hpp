// Errors planted in kernels, to see that the sanitizers find them. In CUDA builds only.
#pragma once

namespace kvlease::test {

enum class planted { out_of_bounds_write, uninitialized_read, race };

/// Runs the error on device 0 and waits. Answers whether CUDA itself noticed nothing.
bool run_planted(planted what);

}  // namespace kvlease::test

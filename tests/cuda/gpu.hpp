// Tests that need a GPU: where there is none they say so and pass as skipped.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <memory>

#include "src/include/kvlease/cuda_device.hpp"
#include "tests/device_bench.hpp"

namespace kvlease::test {

/// Null, after the line that marks the case as skipped, where there is no GPU.
inline std::shared_ptr<device_bench> gpu(const cuda_options& options = {}) {
  static const auto devices = cuda_devices();
  if (!devices) {
    std::printf("SKIP: %s\n", devices.error().text.c_str());
    return nullptr;
  }
  auto bench = device_bench::cuda(options);
  INFO((bench ? std::string{} : to_string(bench.error())));
  REQUIRE(bench);
  return *bench;
}

}  // namespace kvlease::test

/// A case for a GPU: `bench` is the device under test.
#define KVLEASE_ON_GPU(bench, ...)                      \
  const auto bench = ::kvlease::test::gpu(__VA_ARGS__); \
  if (bench == nullptr) return

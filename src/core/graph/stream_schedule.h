#pragma once

// Finds which steps of recorded work depend on which, and spreads them over branches that may run
// side by side. A step is the bytes that it uses; tensors and devices are unknown here.

#include <cstddef>
#include <span>
#include <vector>

namespace singa {

/// Bytes that a step reads or writes.
struct ByteUse {
  const void* data;
  size_t bytes;
  bool writes;
};

/// A piece of work. It depends on earlier ones in a list if they share bytes.
struct Step {
  std::vector<ByteUse> uses;
  bool fills = false;  ///< it fills the device, so running two such steps side by side wins nothing
};

/// For each step, earlier steps that it has to wait for, in ascending order. A step depends on each
/// earlier one that writes what it uses, or uses what it writes. Dependencies that follow from
/// others may be missing.
std::vector<std::vector<size_t>> Dependencies(std::span<const Step> steps);

/// Steps in branches. Those of one branch run in order.
struct StreamSchedule {
  std::vector<std::vector<size_t>> after;  ///< for each step: the fewest steps to wait for
  size_t count = 0;                        ///< branches that have steps
  size_t longest = 0;                      ///< steps on the longest path
};

/// Assigns each step, in order, to that of the `most` branches where it may begin first, as if all
/// steps took equal time. Steps that fill the device go to the first branch.
StreamSchedule PlanStreams(std::span<const Step> steps, size_t most);

}  // namespace singa

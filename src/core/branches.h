#pragma once

// Which steps of recorded work have to come after which, and how they are spread over branches that
// may run side by side. Knows bytes only: neither tensors nor devices.

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

/// A piece of work that comes after those before it in the list, as far as they share bytes.
struct Step {
  std::vector<ByteUse> uses;
  bool fills = false;  ///< the device: nothing is gained by another one beside it that does
};

/// For each step earlier ones, in ascending order. To come after all of them, and after those that
/// they come after, is to come after each earlier step that writes what this one uses, or uses what
/// this one writes.
std::vector<std::vector<size_t>> Dependencies(std::span<const Step> steps);

/// Steps in branches. Those of one branch run in order.
struct Branches {
  std::vector<std::vector<size_t>> after;  ///< for each step: whose ends it waits for, no more
  size_t count = 0;                        ///< branches that have steps
  size_t longest = 0;                      ///< most steps that wait one for the other
};

/// Each step, in order, goes to that of the `most` branches where it may begin first, as if all
/// took the same time; those that fill the device go to the first one.
Branches PlanBranches(std::span<const Step> steps, size_t most);

}  // namespace singa

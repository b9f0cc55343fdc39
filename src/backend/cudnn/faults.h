#pragma once

// What a kernel finds wrong with the values of its arguments: a class number that is no class, an
// index outside its axis. The kernel goes on with a harmless value; the error is raised by the next
// call that waits for the device, and names the operation.

#include <cstdint>

#include "backend/cudnn/launch.h"

namespace singa::cuda {

/// In memory that both sides see.
struct Fault {
  int claimed;        ///< not 0: the rest is about the first fault since it was raised
  double value;       ///< what was found ...
  int64_t position;   ///< ... where
  int64_t low, high;  ///< and where it should lie: [low, high)
};

/// The place of the operation `op` (a string that lives for ever).
Fault* FaultOf(const char* op);

/// Takes the memory of all places now, and not when a kernel wants one.
void PrepareFaults();

/// Raises std::out_of_range where a kernel that has run reported one, and forgets it.
void RaiseFaults();

__device__ inline void Report(Fault* fault, double value, int64_t position, int64_t low,
                              int64_t high) {
  if (atomicCAS(&fault->claimed, 0, 1) != 0) return;
  fault->value = value;
  fault->position = position;
  fault->low = low;
  fault->high = high;
}

}  // namespace singa::cuda

#pragma once

// What a kernel finds wrong with the values of its arguments: a class number that is no class, an
// index outside its axis. The kernel goes on with a harmless value; the error is raised by the next
// call that waits for the device, and names the operation.

#include <cstdint>

#include "backend/cudnn/launch.h"

namespace singa::cuda {

/// What is wrong; the exceptions are those of the same operations on the CPU.
enum class FaultKind : int {
  kNone,
  kNotWhole,  ///< an index with a fraction: std::invalid_argument
  kOutside,   ///< an index outside [low, high): std::out_of_range
  kNoLabel,   ///< a label outside [low, high): std::out_of_range
  kNoClass,   ///< a target that is no whole number in [low, high): std::invalid_argument
};

/// In memory that both sides see.
struct Fault {
  int claimed;        ///< by the first thread that finds one since it was raised
  int kind;           ///< not kNone: the rest has been written
  double value;       ///< what was found ...
  int64_t position;   ///< ... where
  int64_t low, high;  ///< and where it should lie
};

/// The place of the operation `op` (a string that lives for ever).
Fault* FaultOf(const char* op);

/// Takes the memory of all places now, and not when a kernel wants one.
void PrepareFaults();

/// Raises where a kernel that has run reported one, and forgets all.
void RaiseFaults();

__device__ inline void Report(Fault* fault, FaultKind kind, double value, int64_t position,
                              int64_t low, int64_t high) {
  if (atomicCAS(&fault->claimed, 0, 1) != 0) return;
  fault->value = value;
  fault->position = position;
  fault->low = low;
  fault->high = high;
  __threadfence_system();  // the host may look while the kernel runs
  fault->kind = static_cast<int>(kind);
}

}  // namespace singa::cuda

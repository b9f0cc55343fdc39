#pragma once

// Errors that kernels find in the values of their arguments, such as an invalid class or an index
// out of range. The kernel continues with a harmless value. The next call that waits for the device
// throws the error, with the operation's name.

#include <cstdint>

#include "backend/cuda/runtime/runtime.h"

namespace singa::cuda {

/// The kinds of faults. The exceptions are those of the operations on the CPU.
enum class FaultKind : int {
  kNone,
  kNotWhole,  ///< an index with a fraction: std::invalid_argument
  kOutside,   ///< an index outside [low, high): std::out_of_range
  kNoLabel,   ///< a label outside [low, high): std::out_of_range
};

/// A record in memory that host and device share.
struct Fault {
  int claimed;        ///< by the first thread that finds a fault after the last throw
  int kind;           ///< if not kNone, the other fields are valid
  double value;       ///< the invalid value
  int64_t position;   ///< its position
  int64_t low, high;  ///< the valid range
};

/// The record of operation `op`, a string that must live forever.
Fault* FaultOf(const char* op);

/// Allocates the memory of all records, so that kernels need not.
void PrepareFaults();

/// Throws the first fault that completed kernels have reported, and clears all.
void RaiseFaults();

}  // namespace singa::cuda

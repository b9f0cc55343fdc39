#pragma once

#include <string>

#include "singa/core/dtype.h"

namespace singa {

/// Instruction sets for our kernels; each includes the ones before it.
enum class InstructionSet : int {
  kBaseline = 0,    ///< any x86-64 CPU, or another architecture
  kAvx2 = 1,        ///< with FMA
  kAvx512 = 2,      ///< F, BW, DQ and VL
  kAvx512Bf16 = 3,  ///< AVX512_BF16
  kAmx = 4,         ///< AMX-TILE and AMX-BF16
};

/// The highest instruction set that this CPU has and LimitInstructionSet allows. Kernels query it
/// when they make a plan.
InstructionSet AllowedInstructionSet();
/// Lowers the limit. Backends call it when they register, so that a user's limit for a vendor's
/// library also applies to our kernels.
void LimitInstructionSet(InstructionSet most);

/// Why our kernels cannot store images as `dtype`; empty for float32 and bfloat16. They support
/// bfloat16 on every CPU, since they compute in float32.
std::string RefusesStorage(DType dtype);

}  // namespace singa

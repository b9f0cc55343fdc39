#pragma once

#include <cstddef>
#include <cstdint>

#include "singa/core/export.h"

namespace singa {

/// Element types. The first six values are those that Apache SINGA scripts and files use.
enum DataType : int {
  kFloat32 = 0,
  kFloat16 = 1,
  kInt = 2,
  kChar = 3,
  kDouble = 4,
  kUChar = 5,
  kBFloat16 = 6,
  kInt64 = 7,
  kBool = 8,
  kNumDataType = 9,
  // The field's names for the same values.
  kInt32 = kInt,
  kInt8 = kChar,
  kFloat64 = kDouble,
  kUInt8 = kUChar,
};
using DType = DataType;

/// Bytes per element. Raises std::invalid_argument for a value outside the enumeration.
SINGA_API size_t SizeOf(DType dtype);

/// Lower-case name as NumPy spells it: "float32", "bfloat16", "uint8", "bool" ...
SINGA_API const char* DTypeName(DType dtype);

/// True for float16, bfloat16, float32 and float64.
SINGA_API bool IsFloat(DType dtype);

/// True for int8, uint8, int32 and int64 (bool is neither integer nor float).
SINGA_API bool IsInteger(DType dtype);

/// Result type of arithmetic between two types: the wider of the same kind, float over integer over
/// bool; float16 with bfloat16 gives float32.
SINGA_API DType Promote(DType a, DType b);

}  // namespace singa

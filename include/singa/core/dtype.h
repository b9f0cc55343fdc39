#pragma once

#include <cstddef>
#include <cstdint>

#include "singa/core/export.h"

namespace singa {

/// Element types. The first six have Apache SINGA's names and values, which scripts and files use.
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
  // Common names for the same values.
  kInt32 = kInt,
  kInt8 = kChar,
  kFloat64 = kDouble,
  kUInt8 = kUChar,
};
using DType = DataType;

/// Bytes per element. Raises std::invalid_argument for a value outside the enumeration.
SINGA_API size_t SizeOf(DType dtype);

/// NumPy's name of the type: "float32", "uint8", "bool", ...; "bfloat16" is ml_dtypes' name.
SINGA_API const char* DTypeName(DType dtype);

/// True for float16, bfloat16, float32 and float64.
SINGA_API bool IsFloat(DType dtype);

/// True for int8, uint8, int32 and int64; bool is neither integer nor float.
SINGA_API bool IsInteger(DType dtype);

/// Result type of arithmetic between two types: the wider of two types of the same kind; else float
/// before integer before bool. float16 with bfloat16 gives float32. As in PyTorch, but for int8
/// with uint8, which gives int32, since there is no int16.
SINGA_API DType Promote(DType a, DType b);

/// Result type of arithmetic between a tensor of type `a` that has axes, and a number or a tensor
/// without axes of type `number`: `a`, unless `number` is of a higher kind. As in PyTorch, where
/// Python's numbers count as bool, int64 and float32.
SINGA_API DType PromoteNumber(DType a, DType number);

}  // namespace singa

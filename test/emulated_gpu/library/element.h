#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>

#include "singa/core/dtype.h"
#include "singa/core/half.h"

namespace singa::cudnn::emulated {

/// Reads an element of an array of any float type.
inline double Load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case kFloat16:
      return static_cast<float>(static_cast<const Float16*>(data)[i]);
    case kBFloat16:
      return static_cast<float>(static_cast<const BFloat16*>(data)[i]);
    case kFloat64:
      return static_cast<const double*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}

inline void Store(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case kFloat16:
      static_cast<Float16*>(data)[i] = Float16(static_cast<float>(value));
      break;
    case kBFloat16:
      static_cast<BFloat16*>(data)[i] = BFloat16(static_cast<float>(value));
      break;
    case kFloat64:
      static_cast<double*>(data)[i] = value;
      break;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

/// Rounds a float32 factor as tensor cores do: to ten bits of mantissa.
inline double ToTf32(double value) {
  const auto narrow = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &narrow, sizeof(bits));
  bits = (bits + 0x1000) & ~uint32_t{0x1fff};
  float rounded;
  std::memcpy(&rounded, &bits, sizeof(rounded));
  return rounded;
}

/// Throws unless the arguments have the alignment that the library was promised, and the workspace
/// that which the library requires: 256 bytes.
inline void CheckAlignment(std::span<void* const> arguments, int alignment, const void* workspace) {
  const auto begins = [](const void* p, int at) {
    return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(at) == 0;
  };
  for (const void* argument : arguments)
    if (!begins(argument, alignment))
      throw std::runtime_error("an argument is not aligned as the problem said");
  if (!begins(workspace, 256)) throw std::runtime_error("the workspace is not aligned");
}

}  // namespace singa::cudnn::emulated

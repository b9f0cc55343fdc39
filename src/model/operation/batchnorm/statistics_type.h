#pragma once

#include "singa/core/dtype.h"

namespace singa {

/// Type of the statistics of images of type `x`. Kernels take scale and bias in this type, too.
inline DType StatisticsType(DType x) { return x == kFloat64 ? kFloat64 : kFloat32; }

}  // namespace singa

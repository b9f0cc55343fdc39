#pragma once

#include <cstdint>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"

namespace singa {

enum class RandomKind : int { kUniform, kGaussian, kBernoulli };
template <>
inline constexpr int kEnumSize<RandomKind> = 3;

/// Words of the random sequence that one element takes. The 53 bits of a float64 need two.
inline uint64_t WordsPerElement(DType dtype) { return dtype == kFloat64 ? 2 : 1; }

/// One contiguous output. Scalars: v[0], v[1] = low, high | mean, std | p; seed and offset.
struct RandomSpec {
  RandomKind kind;
  DType dtype;
  const char* op() const {
    return kind == RandomKind::kUniform    ? "Uniform"
           : kind == RandomKind::kGaussian ? "Gaussian"
                                           : "Bernoulli";
  }
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(kind, dtype);
};

/// Scalars: v[0] = ratio; seed and offset. The words of the sequence go to the elements in logical
/// order, whatever their layout.
struct DropoutSpec {
  DType dtype;
  LayoutPtr x_layout = nullptr;
  int64_t skip = 0;  ///< words of the sequence before the first one that is used
  const char* op() const { return "Dropout"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    const Shape shape = visit.ShapeOfInput(0);
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Output("y", shape, dtype);
    visit.Output("mask", shape, kUInt8);
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(dtype, x_layout, skip);
};

/// dx follows the mask's layout. Scalars: v[0] = ratio.
struct DropoutBackwardSpec {
  DType dtype;
  LayoutPtr mask_layout = nullptr;
  const char* op() const { return "DropoutBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    const Shape shape = visit.ShapeOfInput(0);
    visit.Input("dy", shape, dtype);
    visit.Input("mask", shape, kUInt8, {.layout = &mask_layout});
    visit.Output("dx", shape, dtype);
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(dtype, mask_layout);
};

}  // namespace singa

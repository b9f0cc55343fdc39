#pragma once

#include <algorithm>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "model/formula/interpolation.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/operation/interpolate.h"

namespace singa {

template <>
inline constexpr int kEnumSize<InterpolationMode> = 4;
template <>
inline constexpr int kEnumSize<CoordinateMode> = 5;
template <>
inline constexpr int kEnumSize<NearestMode> = 4;

/// Axes that one call resizes; they are neighbours.
inline constexpr int kMostInterpolated = 3;

/// The fields of both directions. The result has y_shape.
struct InterpolationFields {
  formula::Interpolation how;
  DType dtype;
  Shape x_shape;
  Shape y_shape;
  int first_axis;
  int axes;                            ///< number of axes, from first_axis on
  double scales[kMostInterpolated]{};  ///< of these axes; 0: the quotient of lengths
  LayoutPtr layout = nullptr;          ///< of the argument; a plan may give it to the result
  bool magnitude = false;              ///< not visited: weights are taken without their signs

  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("how", self.how);
    v("dtype", self.dtype);
    v("x_shape", self.x_shape);
    v("y_shape", self.y_shape);
    v("first_axis", self.first_axis);
    v("axes", self.axes);
    v("scale 0", self.scales[0]);
    v("scale 1", self.scales[1]);
    v("scale 2", self.scales[2]);
    v("layout", self.layout);
  }

  void CheckFields(const CallChecker& call) const;
  static constexpr bool kLinear = true;
  void MakeMagnitude() { magnitude = true; }

  /// Of kMostInterpolated axes, of which the first ones may have one position only.
  formula::InterpolatedAxis axis(int i) const {
    const int k = i - (kMostInterpolated - axes);
    if (k < 0) return {};
    return {x_shape[first_axis + k], y_shape[first_axis + k], scales[k]};
  }
  /// Number of elements before and behind these axes, row-major.
  int64_t outer() const { return x_shape.Count(0, first_axis); }
  int64_t inner() const { return x_shape.Count(first_axis + axes, x_shape.rank()); }
  /// Most terms of a result, or of a gradient.
  int64_t terms(bool backward) const {
    int64_t most = 1;
    for (int i = 0; i < kMostInterpolated; ++i) {
      const formula::InterpolatedAxis a = axis(i);
      const int64_t taps = formula::MostTaps(how, a);
      most *= backward ? (taps + 1) * std::max<int64_t>(1, a.out / std::max<int64_t>(a.in, 1) + 1)
                       : taps;
    }
    return most;
  }
};

struct InterpolateSpec : InterpolationFields {
  const char* op() const { return "Interpolate"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", x_shape, dtype, {.layout = &layout});
    visit.Output("y", y_shape, dtype);
  }
  int64_t sum_length() const { return terms(false); }
};

struct InterpolateBackwardSpec : InterpolationFields {
  const char* op() const { return "InterpolateBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", y_shape, dtype, {.layout = &layout});
    visit.Output("dx", x_shape, dtype);
  }
  int64_t sum_length() const { return terms(true); }
};

}  // namespace singa

#pragma once

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/operation/pooling.h"
#include "singa/operation/recorder.h"

namespace singa {

template <>
inline constexpr int kEnumSize<PoolMode> = 3;

/// The fields of both directions.
struct PoolingFields {
  Recorder geometry;
  PoolMode mode = PoolMode::kMax;
  DType dtype = kFloat32;
  LayoutPtr x_layout = nullptr;

  int64_t sum_length() const { return geometry.taps(); }
  bool of_bytes() const { return dtype == kInt8 || dtype == kUInt8; }
  SINGA_FIELDS(geometry, mode, dtype, x_layout);
};

/// What a maximum in training saves is positions: (d · height + h) · width + w of the first
/// maximum, of the first NaN where there are NaNs, or -1 for a window that sees no element of x.
/// All implementations give the same positions.
struct PoolingForwardSpec : PoolingFields {
  bool save = false;

  const char* op() const { return "PoolingForward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", geometry.input_shape(), dtype, {.layout = &x_layout});
    visit.Output("y", geometry.output_shape(), dtype);
    visit.Output("saved", geometry.output_shape(), kInt32, {.given = save});
  }
  void CheckFields(const CallChecker& call) const;
  void Sample(spot::Sampler& sampler) const;
  SINGA_MORE_FIELDS(PoolingFields, save);
};

/// Without positions the kernel finds them from x. With positions, recorded steps leave x out.
struct PoolingBackwardSpec : PoolingFields {
  bool saved = false;
  LayoutPtr dy_layout = nullptr;

  const char* op() const { return "PoolingBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    const Shape y_shape = geometry.output_shape();
    visit.Input("dy", y_shape, dtype, {.layout = &dy_layout});
    visit.Input("x", geometry.input_shape(), dtype,
                {.given = mode == PoolMode::kMax, .optional = saved, .layout = &x_layout});
    visit.Input("saved", y_shape, kInt32, {.given = saved});
    visit.Output("dx", geometry.input_shape(), dtype, {.layout = &x_layout});
  }
  void CheckFields(const CallChecker& call) const;
  void Sample(spot::Sampler& sampler) const;
  void CheckValues(const CallChecker& call) const;
  SINGA_MORE_FIELDS(PoolingFields, saved, dy_layout);
};

}  // namespace singa

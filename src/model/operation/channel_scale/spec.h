#pragma once

#include <cstdint>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// y = x · s, a product with one number per channel, as in squeeze-and-excitation and layer scale.
/// Products of images in a layout of channels are computed so; others are a BinarySpec.
struct ChannelScaleSpec {
  Shape shape;             ///< of x
  bool per_image = false;  ///< s is (N, C, 1, 1), else (1, C, 1, 1)
  DType dtype = kFloat32;
  LayoutPtr x_layout;

  Shape s_shape() const { return {per_image ? shape[0] : 1, shape[1], 1, 1}; }
  int64_t pixels() const { return shape[2] * shape[3]; }

  const char* op() const { return "ChannelScale"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Input("s", s_shape(), dtype);
    visit.Output("y", shape, dtype);
  }
  void CheckFields(const CallChecker& call) const;
  static constexpr bool kLinear = true;
  int64_t sum_length() const { return 1; }
  SINGA_FIELDS(shape, per_image, dtype, x_layout);
};

struct ChannelScaleBackwardSpec : ChannelScaleSpec {
  bool need_x = true;
  bool need_s = true;

  const char* op() const { return "ChannelScaleBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", shape, dtype, {.layout = &x_layout});
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Input("s", s_shape(), dtype);
    visit.Output("dx", shape, dtype, {.given = need_x});
    visit.Output("ds", s_shape(), dtype, {.given = need_s});
  }
  void CheckFields(const CallChecker& call) const;
  int64_t sum_length() const { return pixels() * (per_image ? 1 : shape[0]); }
  SINGA_MORE_FIELDS(ChannelScaleSpec, need_x, need_s);
};

}  // namespace singa

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "model/operation/batchnorm/statistics_type.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// What layer, group, instance and RMS norm have in common, in both directions. A statistic is
/// taken over the channels of a group, and over all positions or for each position by itself.
struct NormGeometry {
  Shape shape;         // of x: (N, C, ...)
  int64_t groups = 1;  // divides C
  bool per_position = false;
  bool centered = true;  // false: RMS norm, no mean
  bool has_scale = true;
  DType dtype = kFloat32;
  LayoutPtr x_layout = nullptr;

  void CheckFields(const CallChecker& call) const;
  int64_t channels() const { return shape[1]; }
  int64_t group_channels() const { return shape[1] / groups; }
  int64_t positions() const { return shape.Count(2, shape.rank()); }
  /// Number of statistics: (N, groups), or (N, groups, positions).
  int64_t statistics() const { return shape[0] * groups * (per_position ? positions() : 1); }
  /// Values of which one statistic is taken.
  int64_t values() const { return group_channels() * (per_position ? 1 : positions()); }

  SINGA_FIELDS(shape, groups, per_position, centered, has_scale, dtype, x_layout);
};

/// Without a scale it is 1, without a bias 0. inv_std is 1 / sqrt(var + epsilon).
struct NormForwardSpec : NormGeometry {
  bool has_bias = true;
  double epsilon = 1e-5;

  const char* op() const { return "NormForward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    const DType type = StatisticsType(dtype);
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Input("scale", {channels()}, type, {.given = has_scale});
    visit.Input("bias", {channels()}, type, {.given = has_bias});
    visit.Output("y", shape, dtype);
    visit.Output("mean", {statistics()}, type, {.given = centered});
    visit.Output("inv_std", {statistics()}, type);
  }
  void CheckFields(const CallChecker& call) const;
  int64_t sum_length() const { return values(); }
  /// Of the terms of each output (norm/tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  SINGA_MORE_FIELDS(NormGeometry, has_bias, epsilon);
};

struct NormBackwardSpec : NormGeometry {
  bool need_x = true;
  bool need_scale = true;
  bool need_bias = true;

  const char* op() const { return "NormBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    const DType type = StatisticsType(dtype);
    visit.Input("dy", shape, dtype);
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Input("scale", {channels()}, type, {.given = has_scale});
    visit.Input("mean", {statistics()}, type, {.given = centered});
    visit.Input("inv_std", {statistics()}, type);
    visit.Output("dx", shape, dtype, {.given = need_x});
    visit.Output("dscale", {channels()}, type, {.given = need_scale});
    visit.Output("dbias", {channels()}, type, {.given = need_bias});
  }
  void CheckFields(const CallChecker& call) const;
  int64_t sum_length() const { return std::max(values(), shape[0] * positions()); }
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  SINGA_MORE_FIELDS(NormGeometry, need_x, need_scale, need_bias);
};

}  // namespace singa

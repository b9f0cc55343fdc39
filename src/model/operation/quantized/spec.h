#pragma once

#include <cstdint>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"
#include "singa/operation/recorder.h"

namespace singa {

/// What products of quantized tensors have in common.
struct QuantizedFields {
  DType x_type = kUInt8;
  DType y_type = kUInt8;
  bool has_x_zero = false;
  bool has_bias = false;
  bool has_y_zero = false;
  bool relu = false;
  bool gelu = false;
  bool has_y_scale = false;
  bool plain = false;  ///< images stay row-major
  int threads = 1;     ///< the workspace has room for this many

  bool has_scale() const { return y_type != kInt32; }
  bool is_rounded() const { return y_type == kInt8 || y_type == kUInt8; }

  /// For OPCHECK: where a sum lies between two integers, rounding errors decide.
  std::vector<Tensor> MagnitudesOf(const Shape& y) const;

  SINGA_FIELDS(x_type, y_type, has_x_zero, has_bias, has_y_zero, relu, gelu, has_y_scale, plain,
               threads);

 protected:
  void VisitAs(ArgumentVisitor& visit, const Shape& x, const Shape& W, int64_t outputs,
               const Shape& y) const {
    visit.Input("x", x, x_type);
    visit.Input("W", W, kInt8, {.weight = true});
    visit.Input("x_zero", {1}, kInt32, {.left_out = !has_x_zero, .flat = true});
    visit.Input("scale", {outputs}, kFloat32, {.left_out = !has_scale()});
    visit.Input("b", {outputs}, kFloat32, {.left_out = !has_bias});
    visit.Input("y_zero", {1}, kInt32, {.left_out = !has_y_zero, .flat = true});
    visit.Input("y_scale", {1}, kFloat32, {.left_out = !has_y_scale, .flat = true});
    visit.Output("y", y, y_type);
  }
  void CheckAs(const CallChecker& call, const Shape& x, const Shape& W, const Shape& y) const;
};

struct QuantizedConvSpec : QuantizedFields {
  Recorder geometry;  ///< without a bias

  const char* op() const { return "QuantizedConv"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitAs(visit, geometry.input_shape(), geometry.weight_shape(), geometry.out_channels,
            geometry.output_shape());
  }
  void CheckFields(const CallChecker& call) const;
  void Sample(spot::Sampler& sampler) const;
  int64_t multiply_adds() const {
    return geometry.batchsize * geometry.out_channels * geometry.col_height * geometry.col_width;
  }
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>&) const {
    return MagnitudesOf(geometry.output_shape());
  }
  SINGA_MORE_FIELDS(QuantizedFields, geometry);
};

/// x (rows, length), W (length, outputs), y (rows, outputs).
struct QuantizedMatMulSpec : QuantizedFields {
  int64_t rows = 0;
  int64_t length = 0;
  int64_t outputs = 0;

  const char* op() const { return "QuantizedMatMul"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitAs(visit, {rows, length}, {length, outputs}, outputs, {rows, outputs});
  }
  void CheckFields(const CallChecker& call) const;
  void Sample(spot::Sampler& sampler) const;
  int64_t multiply_adds() const { return rows * length * outputs; }
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>&) const {
    return MagnitudesOf({rows, outputs});
  }
  SINGA_MORE_FIELDS(QuantizedFields, rows, length, outputs);
};

/// Arguments: for each x itself, its scale and its zero point; y_scale, y_zero → y. Scales and zero
/// points may be empty. x and y have one layout: row-major or channels-last.
struct QuantizedSumSpec {
  int count = 1;  ///< 1 or 2
  DType x_types[2] = {kFloat32, kFloat32};
  DType y_type = kUInt8;
  bool relu = false;

  const char* op() const { return "QuantizedSum"; }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return count; }
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("count", self.count);
    visitor("x_type", self.x_types[0]);
    visitor("second_type", self.x_types[1]);
    visitor("y_type", self.y_type);
    visitor("relu", self.relu);
  }
};

}  // namespace singa

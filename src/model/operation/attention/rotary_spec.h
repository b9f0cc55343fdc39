#pragma once

#include <cstdint>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// See singa/operation/rotary.h.
struct RotarySpec {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t length = 0;
  int64_t dim = 0;
  int64_t pairs = 0;  ///< R / 2
  DType dtype = kFloat32;
  bool interleaved = false;

  const char* op() const { return "Rotary"; }
  void VisitArguments(ArgumentVisitor& visit) const { VisitAs(visit, "x", "y"); }
  void CheckFields(const CallChecker& call) const;
  Shape x_shape() const { return {batch, heads, length, dim}; }
  Shape table_shape() const { return {batch, length, pairs}; }
  DType table_type() const { return dtype == kFloat64 ? kFloat64 : kFloat32; }
  int64_t sum_length() const { return 2; }
  /// |a · cos| + |b · sin| and |a · sin| + |b · cos|.
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;

  /// Places of pair i in a row.
  int64_t first(int64_t i) const { return interleaved ? 2 * i : i; }
  int64_t second(int64_t i) const { return interleaved ? 2 * i + 1 : i + pairs; }

  SINGA_FIELDS(batch, heads, length, dim, pairs, dtype, interleaved);

 protected:
  void VisitAs(ArgumentVisitor& visit, const char* in, const char* out) const {
    visit.Input(in, x_shape(), dtype, {.dense_rows = true});
    visit.Input("cos", table_shape(), table_type(), {.dense_rows = true});
    visit.Input("sin", table_shape(), table_type(), {.dense_rows = true});
    visit.Output(out, x_shape(), dtype, {.rows_like = 0});
  }
};

struct RotaryBackwardSpec : RotarySpec {
  const char* op() const { return "RotaryBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const { VisitAs(visit, "dy", "dx"); }
};

}  // namespace singa

#pragma once

#include <cstdint>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "model/operation/saved_form.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// The window of channel c: the `size` channels [c − below, c + above]. It is centred where size is
/// odd. Where size is even it has one more channel below than above, as in PyTorch.
struct LrnWindow {
  explicit LrnWindow(int64_t size) : below(size / 2), above((size - 1) / 2) {}
  int64_t below, above;
};

/// The fields of both directions.
struct LrnFields {
  Shape shape;  // of x: (N, C, ...)
  DType dtype = kFloat32;
  int64_t size = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  LayoutPtr x_layout = nullptr;

  /// Of what forward saves in the common form: the base k + alpha / size · Σ x² of the power.
  DType base_type() const { return dtype == kFloat64 ? kFloat64 : kFloat32; }
  void CheckFields(const CallChecker& call) const;
  int64_t sum_length() const { return size; }
  SINGA_FIELDS(shape, dtype, size, alpha, beta, k, x_layout);
};

struct LrnForwardSpec : LrnFields {
  bool save = false;

  const char* op() const { return "LrnForward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Output("y", shape, dtype);
    visit.Output("saved", shape, base_type(), {.given = save, .saved = true});
  }
  void Sample(spot::Sampler& sampler) const;
  SINGA_MORE_FIELDS(LrnFields, save);
};

struct LrnBackwardSpec : LrnFields {
  SavedForm saved = SavedForm::kNone;
  LayoutPtr saved_layout = nullptr;

  const char* op() const { return "LrnBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", shape, dtype);
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Input("saved", shape, base_type(),
                {.given = saved != SavedForm::kNone,
                 .private_form = saved == SavedForm::kPrivate,
                 .layout = &saved_layout});
    visit.Output("dx", shape, dtype);
  }
  /// Bounds of the terms that each output sums (norm/tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  void Sample(spot::Sampler& sampler) const;
  SINGA_MORE_FIELDS(LrnFields, saved, saved_layout);
};

}  // namespace singa

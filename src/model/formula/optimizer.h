#pragma once

// One step of an optimizer for one element. A rule takes the parameter's value, its gradient and
// its states. It changes the states and returns the new value.
//
// `From` makes a rule from the scalars of an update, OptimizerSpec's Scalars.
//
// Formulas round where PyTorch's do: constants such as 1 - beta are computed in double and then
// rounded to the parameters' type C.

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "model/operation/optimizer/spec.h"
#include "singa/core/plan.h"

namespace singa::formula {

template <class C>
constexpr C Decayed(C gradient, C value, C decay) {
  return decay != C(0) ? gradient + decay * value : gradient;  // not 0 times infinity
}

template <class C>
struct PlainSgd {
  static constexpr int kStates = 0;
  C lr, decay;
  static constexpr PlainSgd From(const OptimizerSpec&, const double* v) {
    return {C(v[0]), C(v[1])};
  }
  constexpr C operator()(C value, C gradient) const {
    return value - lr * Decayed(gradient, value, decay);
  }
};

template <class C, bool kNesterov>
struct MomentumSgd {
  static constexpr int kStates = 1;
  bool first;
  C lr, decay, momentum, take;
  static constexpr MomentumSgd From(const OptimizerSpec& spec, const double* v) {
    return {spec.first, C(v[0]), C(v[1]), C(v[2]), C(1 - v[3])};
  }
  constexpr C operator()(C value, C gradient, C& m) const {
    gradient = Decayed(gradient, value, decay);
    // On the first step the buffer's old contents do not count, not even a NaN.
    m = first ? gradient : momentum * m + take * gradient;
    return value - lr * (kNesterov ? gradient + momentum * m : m);
  }
};

template <class C>
struct RmsProp {
  static constexpr int kStates = 1;
  C lr, decay, rho, take, epsilon;
  static constexpr RmsProp From(const OptimizerSpec&, const double* v) {
    return {C(v[0]), C(v[1]), C(v[2]), C(1 - v[2]), C(v[3])};
  }
  constexpr C operator()(C value, C gradient, C& v) const {
    gradient = Decayed(gradient, value, decay);
    v = rho * v + take * gradient * gradient;
    return value - lr * gradient / std::sqrt(v + epsilon);
  }
};

template <class C>
struct AdaGrad {
  static constexpr int kStates = 1;
  C lr, decay, epsilon;
  static constexpr AdaGrad From(const OptimizerSpec&, const double* v) {
    return {C(v[0]), C(v[1]), C(v[3])};
  }
  constexpr C operator()(C value, C gradient, C& v) const {
    gradient = Decayed(gradient, value, decay);
    v += gradient * gradient;
    return value - lr * gradient / std::sqrt(v + epsilon);
  }
};

template <class C>
struct Adam {
  static constexpr int kStates = 2;
  C shrink;  // 1 − lr·weight_decay where that is decoupled
  C decay;   // weight decay in the gradient otherwise
  C take1;   // 1 − beta1
  C beta2;
  C take2;  // 1 − beta2
  C epsilon;
  C rate;              // lr / (1 − beta1^step)
  C root_correction2;  // sqrt(1 − beta2^step)
  static constexpr Adam From(const OptimizerSpec& spec, const double* v) {
    const C shrink = C(spec.decoupled ? 1 - v[0] * v[1] : 1);
    const C decay = spec.decoupled ? C(0) : C(v[1]);
    return {shrink, decay, C(1 - v[2]), C(v[3]), C(1 - v[3]), C(v[4]), C(v[0] / v[5]), C(v[6])};
  }
  constexpr C operator()(C value, C gradient, C& m, C& v) const {
    gradient = Decayed(gradient, value, decay);
    const C step = gradient - m;
    // PyTorch's interpolation, from the nearer end.
    m = take1 < C(0.5) ? m + take1 * step : gradient - step * (C(1) - take1);
    v = beta2 * v + take2 * gradient * gradient;
    const C denominator = std::sqrt(v) / root_correction2 + epsilon;
    return value * shrink - rate * m / denominator;
  }
};

/// Whether no gradient is infinite or NaN, from their sums of squares.
constexpr bool AreFinite(const double* squares, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!(squares[i] <= std::numeric_limits<double>::max())) return false;
  return true;
}

/// The tensors on the device that decide about an update; null where they are not there.
struct Conditions {
  int64_t count = 0;  ///< of the sums of squares
  const double* squares = nullptr;
  const double* loss_scale = nullptr;
  int64_t rows = 0;  ///< of the table of scalars
  const double* scalars = nullptr;

  Conditions(const OptimizerSpec& spec, std::span<const Tensor> inputs) {
    inputs = inputs.last(spec.conditions());
    const auto next = [&](const double*& data) {
      const Tensor& t = inputs.front();
      data = static_cast<const double*>(t.raw_data());
      inputs = inputs.subspan(1);
      return t.shape()[0];
    };
    if (spec.scaled || spec.clipped) count = next(squares);
    if (spec.scaled) next(loss_scale);
    if (spec.scheduled) rows = next(scalars);
  }
};

/// The treatment of an update's gradients.
template <class C>
struct Decision {
  bool leave_out;  ///< the update
  C unscaling;
  C clipping;

  /// `v`: the scalars of the update.
  static constexpr Decision From(const Conditions& c, const double* v) {
    Decision decision{c.loss_scale && !AreFinite(c.squares, c.count), C(1), C(1)};
    const double unscaling = c.loss_scale ? 1 / c.loss_scale[0] : 1;
    decision.unscaling = static_cast<C>(unscaling);
    if (v[OptimizerSpec::kClipNorm] > 0) {
      double sum = 0;
      for (int64_t i = 0; i < c.count; ++i) sum += c.squares[i];
      // PyTorch's clip_grad_norm_
      const double factor = v[OptimizerSpec::kClipNorm] / (std::sqrt(sum) * unscaling + 1e-6);
      if (!(factor >= 1)) decision.clipping = static_cast<C>(factor);  // NaN stays NaN
    }
    return decision;
  }
  constexpr C operator()(C gradient) const { return gradient * unscaling * clipping; }
};

/// Completes the scalars of an update from the device's table, where there is one.
constexpr void PickScalars(const Conditions& c, double* v) {
  if (!c.scalars) return;
  const double last = static_cast<double>(c.rows - 2);
  const double row = c.loss_scale[2] - c.scalars[0];
  const double* found =
      c.scalars + OptimizerSpec::kScalars * (1 + static_cast<int64_t>(row < last ? row : last));
  v[OptimizerSpec::kRate] *= found[OptimizerSpec::kRate];
  for (int i = OptimizerSpec::kOwnNumbers; i < OptimizerSpec::kClipNorm; ++i) v[i] = found[i];
}

/// torch.amp.GradScaler.update. The scale stays a normal number of float32.
struct LossScaleRule {
  double growth, backoff, interval;

  explicit LossScaleRule(const Scalars& scalars)
      : growth(scalars.v[0]), backoff(scalars.v[1]), interval(scalars.v[2]) {}
  constexpr void operator()(bool finite, double* loss_scale) const {
    double& scale = loss_scale[0];
    double& updates = loss_scale[1];
    double& made = loss_scale[2];
    double& exhausted = loss_scale[3];
    updates = finite ? updates + 1 : 0;
    made += finite ? 1 : 0;
    exhausted = 0;
    if (!finite) {
      const double smaller = scale * backoff;
      exhausted = smaller < double{std::numeric_limits<float>::min()} ? 1 : 0;
      if (exhausted == 0) scale = static_cast<float>(smaller);
    } else if (updates == interval) {
      updates = 0;
      const double larger = scale * growth;
      if (larger <= double{std::numeric_limits<float>::max()}) scale = static_cast<float>(larger);
    }
  }
};

/// Calls f with the rule of an update with the scalars v.
template <class C, class F>
void SwitchRule(const OptimizerSpec& spec, const double* v, const F& f) {
  switch (spec.kind) {
    case OptimizerKind::kSgd:
      if (spec.states == 0) return f(PlainSgd<C>::From(spec, v));
      if (spec.nesterov) return f(MomentumSgd<C, true>::From(spec, v));
      return f(MomentumSgd<C, false>::From(spec, v));
    case OptimizerKind::kRmsProp:
      return f(RmsProp<C>::From(spec, v));
    case OptimizerKind::kAdaGrad:
      return f(AdaGrad<C>::From(spec, v));
    case OptimizerKind::kAdam:
      return f(Adam<C>::From(spec, v));
    case OptimizerKind::kCount:
      break;
  }
}

}  // namespace singa::formula

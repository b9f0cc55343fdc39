#pragma once

// One step of an optimizer for one element: a rule takes the parameter's value, its gradient and
// its states, changes the states, and gives the new value.
//
// Formulas round where PyTorch's do: constants are made in double, 1 - beta among them, and then
// rounded to the type C of the parameters.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "model/operation/optimizer_spec.h"
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
  constexpr C operator()(C value, C gradient) const {
    return value - lr * Decayed(gradient, value, decay);
  }
};

template <class C, bool kNesterov>
struct MomentumSgd {
  static constexpr int kStates = 1;
  bool first;
  C lr, decay, momentum, take;
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

/// No gradient is infinite or NaN, whose sums of squares these are.
constexpr bool AreFinite(const double* squares, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!(squares[i] <= std::numeric_limits<double>::max())) return false;
  return true;
}

/// By what gradients are multiplied that come times a loss scale.
template <class C>
constexpr C Unscaling(const double* loss_scale) {
  return static_cast<C>(1 / loss_scale[0]);
}

/// torch.amp.GradScaler.update; the scale stays among float32's normal numbers.
struct LossScaleRule {
  double growth, backoff, interval;

  explicit LossScaleRule(const Scalars& scalars)
      : growth(scalars.v[0]), backoff(scalars.v[1]), interval(scalars.v[2]) {}
  constexpr void operator()(bool finite, double* loss_scale) const {
    double& scale = loss_scale[0];
    double& updates = loss_scale[1];
    double& left_out = loss_scale[2];
    double& exhausted = loss_scale[3];
    updates = finite ? updates + 1 : 0;
    left_out += finite ? 0 : 1;
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

/// Calls f with the rule of an update.
template <class C, class F>
void SwitchRule(const OptimizerSpec& spec, const Scalars& scalars, const F& f) {
  const auto& v = scalars.v;
  const auto as = [](double value) { return static_cast<C>(value); };
  const C lr = as(v[0]), decay = as(v[1]);
  switch (spec.kind) {
    case OptimizerKind::kSgd:
      if (spec.states == 0) return f(PlainSgd<C>{lr, decay});
      if (spec.nesterov)
        return f(MomentumSgd<C, true>{spec.first, lr, decay, as(v[2]), as(1 - v[3])});
      return f(MomentumSgd<C, false>{spec.first, lr, decay, as(v[2]), as(1 - v[3])});
    case OptimizerKind::kRmsProp:
      return f(RmsProp<C>{lr, decay, as(v[2]), as(1 - v[2]), as(v[3])});
    case OptimizerKind::kAdaGrad:
      return f(AdaGrad<C>{lr, decay, as(v[3])});
    case OptimizerKind::kAdam: {
      const C shrink = as(spec.decoupled ? 1 - v[0] * v[1] : 1);
      return f(Adam<C>{shrink, spec.decoupled ? C(0) : decay, as(1 - v[2]), as(v[3]), as(1 - v[3]),
                       as(v[4]), as(v[0] / v[5]), as(v[6])});
    }
  }
}

/// The rule of an update, of the type that SwitchRule finds.
template <class Rule, class C>
Rule RuleOf(const OptimizerSpec& spec, const Scalars& scalars) {
  Rule rule{};
  SwitchRule<C>(spec, scalars, [&]<class Found>(const Found& found) {
    if constexpr (std::is_same_v<Found, Rule>) rule = found;
  });
  return rule;
}

}  // namespace singa::formula

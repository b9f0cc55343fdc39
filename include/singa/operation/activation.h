#pragma once

namespace singa {

/// Functions that an operation may apply to its result.
enum class ActivationKind : int {
  kNone,
  kRelu,
  kClip,       ///< limited to [low, high]; flat at the limits (UnaryOp::kHardTanh)
  kHardSwish,  ///< x·clip(x + 3, 0, 6) / 6
  kSilu,       ///< x·sigmoid(x)
  kCount
};

/// A function with its limits, which are zero for all but kClip. `true` is ReLU. In Python it is a
/// bool or (kind, low, high).
struct Activation {
  constexpr Activation(bool relu = false)  // NOLINT(google-explicit-constructor)
      : kind(relu ? ActivationKind::kRelu : ActivationKind::kNone) {}
  constexpr Activation(ActivationKind kind,  // NOLINT(google-explicit-constructor)
                       double low = 0, double high = 0)
      : kind(kind), low(low), high(high) {}
  /// Whether there is one.
  constexpr explicit operator bool() const { return kind != ActivationKind::kNone; }
  constexpr bool operator==(const Activation&) const = default;
  /// Calls `visitor(name, value)` for each member.
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("activation", self.kind);
    visitor("low", self.low);
    visitor("high", self.high);
  }

  ActivationKind kind;
  double low = 0, high = 0;
};

}  // namespace singa

#pragma once

#include <algorithm>

#include "model/operation/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// Operations whose element y[i0, i1, ...] is x[f0(i0), f1(i1), ...], or a constant where one of
/// the maps leads nowhere.
enum class AxisMapKind : int {
  kTile,      ///< f(i) = i mod length
  kRepeat,    ///< f(i) = i div first
  kUpsample,  ///< the same on several axes
  kPadConstant,
  kPadReflect,
  kPadEdge,
};
template <>
inline constexpr int kEnumSize<AxisMapKind> = 6;

inline bool IsPad(AxisMapKind kind) { return kind >= AxisMapKind::kPadConstant; }

/// What both directions are made of: `first` and `last` hold, per axis, how often it is repeated
/// (last unused: zeros), or how much is added before and after it.
struct AxisMapFields {
  AxisMapKind kind;
  DType dtype;
  Shape x_shape;
  Shape first;
  Shape last;
  LayoutPtr layout = nullptr;  ///< of the argument, which the result follows where the plan does

  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("kind", self.kind);
    v("dtype", self.dtype);
    v("x_shape", self.x_shape);
    v("first", self.first);
    v("last", self.last);
    v("layout", self.layout);
  }

  int64_t OutLength(int axis) const {
    return IsPad(kind) ? x_shape[axis] + first[axis] + last[axis] : x_shape[axis] * first[axis];
  }
  Shape OutShape() const {
    Shape shape = x_shape;
    for (int axis = 0; axis < shape.rank(); ++axis) shape[axis] = OutLength(axis);
    return shape;
  }
  /// The axis is copied as it is.
  bool IsIdentity(int axis) const {
    return IsPad(kind) ? first[axis] == 0 && last[axis] == 0 : first[axis] == 1;
  }
  /// f(i) of the axis; -1 where it leads nowhere.
  int64_t Source(int axis, int64_t i) const {
    const int64_t length = x_shape[axis];
    const int64_t j = i - first[axis];
    switch (kind) {
      case AxisMapKind::kTile:
        return i % length;
      case AxisMapKind::kRepeat:
      case AxisMapKind::kUpsample:
        return i / first[axis];
      case AxisMapKind::kPadConstant:
        return j >= 0 && j < length ? j : -1;
      case AxisMapKind::kPadEdge:
        return std::clamp<int64_t>(j, 0, length - 1);
      default: {  // reflect: back and forth between the two ends
        if (length == 1) return 0;
        const int64_t period = 2 * (length - 1);
        const int64_t k = (j % period + period) % period;
        return k < length ? k : period - k;
      }
    }
  }
};

/// Input: x, in the plan's layout or plain with any strides. Output: y, contiguous. Scalars: v[0]
/// is the constant.
struct AxisMapSpec : AxisMapFields {
  const char* op() const {
    if (IsPad(kind)) return "Pad";
    if (kind == AxisMapKind::kTile) return "Tile";
    return kind == AxisMapKind::kRepeat ? "Repeat" : "Upsample";
  }
  void CheckCall(CallChecker& call) const;
};

/// Input: dy, contiguous. Output: dx of x_shape, the sum of dy over everything that x was copied
/// to.
struct AxisMapBackwardSpec : AxisMapFields {
  const char* op() const {
    if (IsPad(kind)) return "PadBackward";
    return kind == AxisMapKind::kTile ? "TileBackward" : "UpsampleBackward";
  }
  void CheckCall(CallChecker& call) const;
};

}  // namespace singa

#pragma once

#include <algorithm>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// Operations with y[i0, i1, ...] = x[f0(i0), f1(i1), ...]. Where an f has no value, the element is
/// a constant.
enum class AxisMapKind : int {
  kTile,      ///< f(i) = i mod length
  kRepeat,    ///< f(i) = i div first
  kUpsample,  ///< kRepeat on several axes
  kRoll,      ///< f(i) = (i − first) mod length
  kShuffle,   ///< f(i) = (i mod first) · (length div first) + i div first
  kPadConstant,
  kPadReflect,
  kPadEdge,
  kPadWrap,
};
template <>
inline constexpr int kEnumSize<AxisMapKind> = 9;

inline bool IsPad(AxisMapKind kind) { return kind >= AxisMapKind::kPadConstant; }

/// Whether y has each element of x once.
inline bool IsPermutation(AxisMapKind kind) {
  return kind == AxisMapKind::kRoll || kind == AxisMapKind::kShuffle;
}

/// The fields of both directions. For a pad, `first` and `last` hold for each axis how much is
/// added before and after it. Otherwise `last` holds zeros, and `first` how often the axis is
/// repeated, by how much it is rolled, in [0, length), or into how many groups it is divided.
struct AxisMapFields {
  AxisMapKind kind;
  DType dtype;
  Shape x_shape;
  Shape first;
  Shape last;
  LayoutPtr layout = nullptr;  ///< of the argument; a plan may give it to the result

  SINGA_FIELDS(kind, dtype, x_shape, first, last, layout);

  void CheckFields(const CallChecker& call) const;
  int64_t OutLength(int axis) const {
    if (IsPermutation(kind)) return x_shape[axis];
    return IsPad(kind) ? x_shape[axis] + first[axis] + last[axis] : x_shape[axis] * first[axis];
  }
  Shape OutShape() const {
    Shape shape = x_shape;
    for (int axis = 0; axis < shape.rank(); ++axis) shape[axis] = OutLength(axis);
    return shape;
  }
  /// Whether the axis is copied unchanged.
  bool IsIdentity(int axis) const {
    if (kind == AxisMapKind::kRoll) return first[axis] == 0;
    return IsPad(kind) ? first[axis] == 0 && last[axis] == 0 : first[axis] == 1;
  }
  /// f(i) of the axis; -1 where it has no value.
  int64_t Source(int axis, int64_t i) const {
    const int64_t length = x_shape[axis];
    const int64_t j = i - first[axis];
    switch (kind) {
      case AxisMapKind::kTile:
        return i % length;
      case AxisMapKind::kRepeat:
      case AxisMapKind::kUpsample:
        return i / first[axis];
      case AxisMapKind::kRoll:
        return j < 0 ? j + length : j;
      case AxisMapKind::kShuffle:
        return i % first[axis] * (length / first[axis]) + i / first[axis];
      case AxisMapKind::kPadConstant:
        return j >= 0 && j < length ? j : -1;
      case AxisMapKind::kPadEdge:
        return std::clamp<int64_t>(j, 0, length - 1);
      case AxisMapKind::kPadWrap:
        return (j % length + length) % length;
      default: {  // reflect: back and forth between the two ends
        if (length == 1) return 0;
        const int64_t period = 2 * (length - 1);
        const int64_t k = (j % period + period) % period;
        return k < length ? k : period - k;
      }
    }
  }
};

/// Scalars: v[0] is the constant.
struct AxisMapSpec : AxisMapFields {
  const char* op() const {
    if (IsPad(kind)) return "Pad";
    if (kind == AxisMapKind::kTile) return "Tile";
    if (kind == AxisMapKind::kRoll) return "Roll";
    if (kind == AxisMapKind::kShuffle) return "ChannelShuffle";
    return kind == AxisMapKind::kRepeat ? "Repeat" : "Upsample";
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", x_shape, dtype, {.strided = true, .layout = &layout});
    visit.Output("y", OutShape(), dtype);
  }
};

/// For each element of x the sum of dy over its copies.
struct AxisMapBackwardSpec : AxisMapFields {
  const char* op() const {
    if (IsPad(kind)) return "PadBackward";
    if (kind == AxisMapKind::kRoll) return "RollBackward";
    if (kind == AxisMapKind::kShuffle) return "ChannelShuffleBackward";
    return kind == AxisMapKind::kTile ? "TileBackward" : "UpsampleBackward";
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", OutShape(), dtype, {.layout = &layout});
    visit.Output("dx", x_shape, dtype);
  }
  void CheckFields(const CallChecker& call) const;
};

}  // namespace singa

#pragma once

#include <algorithm>

#include "backend/cpu/winograd/filter.h"
#include "backend/cpu/winograd/tiles.h"
#include "core/tensor/round_up.h"
#include "model/operation/conv/spec.h"

namespace singa::cpu::winograd {

/// Whether F(6 x 6, 3 x 3) takes a tenth fewer products than F(4 x 4, 3 x 3) for these results.
/// Fewer would not pay for the larger transforms. Results have to fill a tile (offer.cc says why).
inline bool PrefersLargeTile(int64_t height, int64_t width) {
  const auto products = [&]<class T>(T) {
    return CeilDivide(height, T::kOutDown) * CeilDivide(width, T::kOutAcross) * T::kPositions;
  };
  return std::min(height, width) > Axis<3>::kOut &&
         products(LargeTile()) * 10 < products(Taps<3, 3>()) * 9;
}

/// Calls `visit` with the Taps of a filter that the method supports; else returns a default value.
template <class Visitor>
auto WithTaps(const ConvSpec& spec, const Visitor& visit) -> decltype(visit(Taps<3, 3>())) {
  const Recorder& r = spec.geometry;
  const auto is = [&](int64_t down, int64_t across) {
    return r.kernel_h() == down && r.kernel_w() == across;
  };
  const bool to_input = spec.pass == ConvPass::kBackwardX;
  if (is(3, 3) && spec.dtype == kBFloat16 &&
      PrefersLargeTile(to_input ? r.height() : r.conv_height(),
                       to_input ? r.width() : r.conv_width()))
    return visit(LargeTile());
  if (is(3, 3)) return visit(Taps<3, 3>());
  if (is(5, 5)) return visit(Taps<5, 5>());
  if (is(1, 3)) return visit(Taps<1, 3>());
  if (is(3, 1)) return visit(Taps<3, 1>());
  if (is(1, 7)) return visit(Taps<1, 7>());
  if (is(7, 1)) return visit(Taps<7, 1>());
  return {};
}

/// True if the transformed filter is an argument, instead of being computed in each call. A layout
/// of bfloat16 weights could not hold its float32 values.
inline bool IsPrepared(const ConvSpec& spec, int64_t lanes) {
  return spec.constant_weights && spec.dtype == kFloat32 && spec.pass == ConvPass::kForward &&
         FitsPrepared(spec.geometry.weight_shape(), lanes);
}

}  // namespace singa::cpu::winograd

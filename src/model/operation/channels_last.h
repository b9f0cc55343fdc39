#pragma once

#include "core/layout/channel_lanes.h"
#include "core/tensor/copy.h"
#include "singa/core/tensor.h"

namespace singa {

/// A permuted view of rows of features as the channels-last image that it is, on the CPU, to which
/// the layout belongs, and of a type of its convolutions; other tensors as they are.
inline Tensor AsChannelsLast(const Tensor& t) {
  if (t.device()->kind() != DeviceKind::kCpu) return t;
  if (t.data_type() != kFloat32 && t.data_type() != kBFloat16) return t;
  const LayoutPtr layout = LaneLayout(t.shape(), t.data_type(), LaneTag::kNhwc);
  return LiesAs(t, layout) ? t.ToLayout(layout) : t;
}

/// Whether `t` is an image on a CPU in a layout with channels innermost.
inline bool HasChannelsInside(const Tensor& t) {
  return t.device()->kind() == DeviceKind::kCpu &&
         LaneTagOf(t.layout(), t.shape(), t.data_type()).has_value();
}

}  // namespace singa

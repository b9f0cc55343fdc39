#include "model/operation/channel_scale/channel_scale.h"

#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/operation/channel_scale/spec.h"
#include "model/operation/channels_last.h"
#include "singa/operation/reduce.h"

namespace singa {
namespace {

bool IsPerImage(const Tensor& s, const Tensor& x) {
  return s.rank() == 4 && s.shape(0) == x.shape(0);
}

/// Whether s has one number for each channel of x, or for each image, or for all.
bool IsScaleOf(const Tensor& s, const Tensor& x) {
  if (x.rank() != 4 || s.rank() > 4) return false;
  if (s.data_type() != x.data_type() || s.device() != x.device()) return false;
  if (s.size() == 1) return x.size() > 1;
  if (s.rank() < 3) return false;
  const bool images = s.rank() == 3 || s.shape(0) == 1 || IsPerImage(s, x);
  const bool channels = s.shape(-3) == x.shape(1) || (s.shape(-3) == 1 && IsPerImage(s, x));
  return images && channels && s.shape(-2) == 1 && s.shape(-1) == 1 && x.shape(2) * x.shape(3) > 1;
}

ChannelScaleSpec SpecOf(const Tensor& x, const Tensor& s, const LayoutPtr& layout) {
  return {.shape = x.shape(),
          .per_image = IsPerImage(s, x),
          .dtype = x.data_type(),
          .x_layout = layout};
}

/// s in the Spec's shape.
Tensor Shaped(const Tensor& s, const Shape& shape) {
  if (s.shape() == shape) return s;
  return s.size() == shape.Count()
             ? s.Reshape(shape)
             : s.Reshape(s.size() == 1 ? Shape() : s.shape()).Broadcast(shape).Contiguous();
}

}  // namespace

std::optional<Tensor> ScaleChannels(const Tensor& a, const Tensor& b) {
  const bool first = IsScaleOf(b, a);
  if (!first && !IsScaleOf(a, b)) return std::nullopt;
  const Tensor x = AsChannelsLast(first ? a : b);
  const Tensor& s = first ? b : a;
  // Elementwise a product with a number is of the elements as they lie.
  if (!HasChannelsInside(x) || (s.size() == 1 && !IsPerImage(s, x))) return std::nullopt;
  const ChannelScaleSpec spec = SpecOf(x, s, x.layout());
  return Call(spec, {x, Shaped(s, spec.s_shape())});
}

std::optional<std::vector<Tensor>> ScaleChannelsBackward(const Tensor& dy, const Tensor& a,
                                                         const Tensor& b, bool need_a,
                                                         bool need_b) {
  const bool first = IsScaleOf(b, a);
  if (!first && !IsScaleOf(a, b)) return std::nullopt;
  const Tensor &x = first ? a : b, &s = first ? b : a;
  if (dy.data_type() != x.data_type()) return std::nullopt;
  const Tensor& laid = HasChannelsInside(x) ? x : dy;
  if (!HasChannelsInside(laid)) return std::nullopt;
  ChannelScaleBackwardSpec spec{SpecOf(x, s, laid.layout())};
  spec.need_x = first ? need_a : need_b;
  spec.need_s = first ? need_b : need_a;
  // Sums of 16-bit floats would be rounded once for each channel.
  const bool sums = s.size() != spec.s_shape().Count();
  if (sums && spec.need_s && SizeOf(spec.dtype) == 2) return std::nullopt;
  std::vector<Tensor> gradients =
      CallForAll(spec, {dy, x, Shaped(s, spec.s_shape())}, {.zeros = !need_a && !need_b});
  if (spec.need_s)
    gradients[1] = sums ? SumTo(gradients[1], s.shape()) : Shaped(gradients[1], s.shape());
  if (!first) std::swap(gradients[0], gradients[1]);
  return gradients;
}

void ChannelScaleSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("x", dtype);
  call.RequireShape(shape);
  call.Require(shape.rank() == 4, "x must have shape (N, C, H, W), got ", shape);
}

void ChannelScaleBackwardSpec::CheckFields(const CallChecker& call) const {
  ChannelScaleSpec::CheckFields(call);
  call.Require(need_x || need_s, "no gradient is needed");
}

}  // namespace singa

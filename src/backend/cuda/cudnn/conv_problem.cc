#include "backend/cuda/cudnn/conv_problem.h"

#include <algorithm>

#include "backend/cuda/runtime/channels_last.h"

namespace singa::cudnn {
namespace {

/// Many of cuDNN's engines use 32-bit sizes and strides.
constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;

/// Images and filters of one dimension have height 1.
DnnTensor TensorOf(const Shape& shape, bool channels_last) {
  Shape dims = shape;
  if (dims.rank() == 3) dims.insert(2, 1);
  const Strides strides = ImageStrides(dims, channels_last);
  DnnTensor tensor;
  std::copy_n(dims.begin(), tensor.dims.size(), tensor.dims.begin());
  std::copy_n(strides.begin(), tensor.strides.size(), tensor.strides.begin());
  return tensor;
}

}  // namespace

ConvLayouts LayoutsOf(const ConvSpec& spec) {
  if (spec.plain || spec.geometry.spatial == 3) return {};
  const Recorder& r = spec.geometry;
  return {ChannelsLastOf(r.input_shape(), spec.dtype), ChannelsLastOf(r.weight_shape(), spec.dtype),
          ChannelsLastOf(r.output_shape(), spec.dtype)};
}

ConvProblem ProblemOf(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  ConvProblem problem;
  problem.pass = spec.pass;
  problem.dtype = spec.dtype;
  problem.x = TensorOf(r.input_shape(), !spec.plain);
  problem.w = TensorOf(r.weight_shape(), !spec.plain);
  problem.y = TensorOf(r.output_shape(), !spec.plain);
  problem.stride = {r.stride_h(), r.stride_w()};
  problem.dilation = {r.dilation_h(), r.dilation_w()};
  problem.before = {r.pad_top(), r.pad_left()};
  problem.after = {r.pad_bottom(), r.pad_right()};
  problem.alignment = spec.alignment;
  if (spec.pass == ConvPass::kForward) {
    problem.bias = r.bias;
    problem.add = spec.has_add;
    problem.relu = static_cast<bool>(spec.activation);
  }
  return problem;
}

ConvProblem ProblemOf(const ConvStatisticsSpec& spec) {
  ConvProblem problem = ProblemOf(static_cast<const ConvSpec&>(spec));
  problem.statistics = true;
  return problem;
}

std::string RefusesConv(const ConvSpec& spec) {
  if (spec.dtype != kFloat32 && spec.dtype != kFloat16 && spec.dtype != kBFloat16)
    return std::string("cuDNN convolves float32, float16 and bfloat16, not ") +
           DTypeName(spec.dtype);
  const Recorder& r = spec.geometry;
  if (spec.activation && spec.activation.kind != ActivationKind::kRelu)
    return "cuDNN's convolution has no activation but ReLU";
  if (r.spatial == 3) return "our own kernels convolve volumes (N, C, D, H, W)";
  for (const Shape& shape : {r.input_shape(), r.weight_shape(), r.output_shape()})
    if (shape.Count() > kMostElements)
      return "a tensor has " + std::to_string(shape.Count()) + " elements, cuDNN counts to 2^31";
  return Dnn().Problem();
}

}  // namespace singa::cudnn

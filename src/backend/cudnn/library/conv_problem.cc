#include "backend/cudnn/library/conv_problem.h"

#include "backend/cudnn/channels_last.h"

namespace singa::cudnn {
namespace {

/// cuDNN counts elements and distances in 32 bits in many of its engines.
constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;

DnnTensor TensorOf(const Shape& shape, bool channels_last) {
  DnnTensor tensor;
  for (int i = 0; i < 4; ++i) tensor.dims[static_cast<size_t>(i)] = shape[i];
  tensor.strides = ImageStrides(shape, channels_last);
  return tensor;
}

}  // namespace

ConvLayouts LayoutsOf(const ConvSpec& spec) {
  if (spec.plain) return {};
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
  problem.stride = {r.stride_h, r.stride_w};
  problem.dilation = {r.dilation_h, r.dilation_w};
  problem.before = {r.pad_top, r.pad_left};
  problem.after = {r.pad_bottom, r.pad_right};
  problem.alignment = spec.alignment;
  if (spec.pass == ConvPass::kForward) {
    problem.bias = r.bias;
    problem.add = spec.has_add;
    problem.relu = spec.relu;
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
  for (const Shape& shape : {r.input_shape(), r.weight_shape(), r.output_shape()})
    if (shape.Count() > kMostElements)
      return "a tensor has " + std::to_string(shape.Count()) + " elements, cuDNN counts to 2^31";
  return Dnn().Problem();
}

}  // namespace singa::cudnn

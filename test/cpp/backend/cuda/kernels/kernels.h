#pragma once

// Compares CUDA kernels on the emulator (test/emulated_gpu) with `reference`.

#include <cstring>
#include <map>

#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/runtime/channels_last.h"
#include "emulated_gpu/emulator.h"
#include "model/dispatch/kernel.h"
#include "model/operation/elementwise/spec.h"
#include "support.h"

namespace singa::test {

/// Permitted difference from reference's result: relative to its value, and absolute. One rounding
/// to the result's type is added.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

inline constexpr DType kFloats[] = {kFloat32, kBFloat16, kFloat16, kFloat64};

/// The unit of least precision of the type in which floats of type `dtype` are computed.
inline double Step(DType dtype) { return dtype == kFloat64 ? 0x1p-52 : 0x1p-23; }

/// Copies tensors. Copies share memory where the originals do.
class Copies {
 public:
  std::vector<Tensor> Of(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> copies;
    for (const Tensor& t : tensors) copies.push_back(Of(t));
    return copies;
  }

 private:
  Tensor Of(const Tensor& t) {
    if (t.empty()) return t;
    BlockPtr& copy = blocks_[t.block().get()];
    if (!copy) {
      const size_t bytes = t.block()->size();
      Tensor whole({static_cast<int64_t>(bytes)}, nullptr, kUInt8);
      if (bytes > 0) std::memcpy(whole.raw_data(), t.block()->data(), bytes);
      copy = whole.block();
    }
    return Tensor(copy, t.shape(), t.strides(), t.offset(), t.data_type());
  }
  std::map<const Block*, BlockPtr> blocks_;
};

/// The plan of our own kernels.
template <class Spec>
PlanPtr PlanOnGpu(const Spec& spec) {
  RegisterBackend("cuda");
  return FindKernel<Spec>("cuda", DeviceKind::kCuda)->Make(spec).plan();
}

/// A new plain tensor whose memory holds t's elements in `layout`; t itself if that is null.
inline Tensor Packed(const Tensor& t, const LayoutPtr& layout) {
  if (!layout || t.empty()) return t;
  const Tensor packed(t.shape(), nullptr, t.data_type());
  layout->Pack(t.raw_data(), packed.raw_data());
  return packed;
}
inline Tensor Unpacked(const Tensor& t, const LayoutPtr& layout) {
  if (!layout || t.empty()) return t;
  const Tensor plain(t.shape(), nullptr, t.data_type());
  layout->Unpack(t.raw_data(), plain.raw_data());
  return plain;
}

/// Runs a plan with plain arguments, which are converted to the plan's layouts and back.
inline std::vector<Tensor> RunPlan(const Plan& plan, const std::vector<Tensor>& inputs,
                                   const std::vector<Tensor>& outputs, const Scalars& scalars) {
  Copies copies;
  std::vector<Tensor> in = copies.Of(inputs);
  std::vector<Tensor> out = copies.Of(outputs);
  for (size_t i = 0; i < in.size(); ++i) in[i] = Packed(in[i], plan.input_layout(i));
  // Filled with NaN, like memory that was used before.
  Tensor workspace({static_cast<int64_t>(plan.workspace_bytes()) + 64}, nullptr, kUInt8);
  std::memset(workspace.raw_data(), 0xff, plan.workspace_bytes() + 64);
  plan.Run({*DefaultDevice(), in, out, scalars, workspace.raw_data()});
  for (size_t i = 0; i < out.size(); ++i) out[i] = Unpacked(out[i], plan.output_layout(i));
  return out;
}

inline std::string BytesOf(const Tensor& t) {
  const Tensor dense = t.Contiguous();
  return {static_cast<const char*>(dense.raw_data()), static_cast<size_t>(dense.bytes())};
}

/// Runs the plan of `spec` on the emulator in every order of threads. Expects the same bits for all
/// orders, close to reference's results. `outputs` are the initial contents of the results, and may
/// share memory with inputs.
template <class Spec>
std::vector<Tensor> CompareWithReference(const Spec& spec, const std::vector<Tensor>& inputs,
                                         const std::vector<Tensor>& outputs,
                                         const Scalars& scalars = {}, Tolerance tolerance = {},
                                         const std::string& what = "") {
  SCOPED_TRACE(std::string(spec.op()) + " " + what);
  const PlanPtr plan = PlanOnGpu(spec);
  const PlanPtr reference = FindKernel<Spec>("reference")->Make(spec).plan();
  const std::vector<Tensor> want = RunPlan(*reference, inputs, outputs, scalars);
  std::vector<Tensor> first;
  for (const auto order : {cuda::emulated::Order::kForward, cuda::emulated::Order::kReversed,
                           cuda::emulated::Order::kShuffled}) {
    cuda::emulated::SetOrder(order);
    cuda::emulated::Watch(first.empty());  // one order is enough to find races
    const std::vector<Tensor> got = RunPlan(*plan, inputs, outputs, scalars);
    cuda::emulated::Watch(false);
    cuda::emulated::SetOrder(cuda::emulated::Order::kForward);
    if (!first.empty()) {
      for (size_t i = 0; i < got.size(); ++i) {
        if (got[i].empty()) continue;
        EXPECT_TRUE(BytesOf(got[i]) == BytesOf(first[i]))
            << "result " << i << " depends on the order of the threads";
      }
      continue;
    }
    first = got;
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i].empty()) continue;
      const Vector values = Values(want[i]);
      Vector allowed;
      // ExpectNear adds half a step of the type; both results were rounded to it.
      const double rounding =
          IsFloat(got[i].data_type()) && tolerance.relative > 0 ? Epsilon(got[i].data_type()) : 0;
      for (double v : values)
        allowed.push_back(tolerance.absolute + (tolerance.relative + rounding) * std::abs(v));
      ExpectNear(got[i], values, allowed, "result " + std::to_string(i));
    }
  }
  return first;
}

/// The layouts that images of a call may have: row-major, and channels-last if that differs.
inline std::vector<LayoutPtr> ImageLayouts(const Shape& shape, DType dtype) {
  std::vector<LayoutPtr> layouts = {nullptr};
  if (LayoutPtr last = cudnn::ChannelsLastOf(shape, dtype)) layouts.push_back(last);
  return layouts;
}

/// A result tensor filled with a value that no test expects.
inline Tensor Result(const Shape& shape, DType dtype = kFloat32) {
  return Full(shape, 77, nullptr, dtype);
}

}  // namespace singa::test

// Batch norm in training by cuDNN, on channels-last images. It is registered after our own kernels,
// so it is used only if the tuning table names it.
//
// cuDNN returns the inverse deviation, we keep the variance, which follows from it up to rounding.
// Our own formula computes the running statistics from the variance. Before cuDNN's backward, a
// kernel of ours applies the mask of ReLU to dy. If the masked gradient is wanted, as the gradient
// of the residual, this is no extra work, and cuDNN need not read y. Otherwise it would be an extra
// pass, so our own kernel does all.

#include <algorithm>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cuda/cudnn/engines.h"
#include "backend/cuda/cudnn/own_kernel.h"
#include "backend/cuda/kernels/norm/norm_statistics.h"
#include "backend/cuda/runtime/channels_last.h"
#include "backend/cuda/runtime/runtime.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/elementwise/spec.h"
#include "singa/core/error.h"

namespace singa::cudnn {
namespace {

/// Engines to measure, of the 20 to 40 that cuDNN lists. It compiles each one, in about a third of
/// a second.
constexpr size_t kMostMeasured = 6;
constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;
constexpr size_t kRegion = 256;  // alignment of our part of the workspace

template <class Spec>
NormProblem ProblemOf(const Spec& spec) {
  NormProblem problem;
  problem.dtype = spec.dtype;
  // Pixels lie alike in images of one, two and three dimensions.
  const Shape& shape = spec.shape;
  const Shape image = {shape[0], shape[1], shape.Count(2, shape.rank() - 1), shape.back()};
  const Strides strides = ImageStrides(image, true);
  std::copy_n(image.begin(), problem.x.dims.size(), problem.x.dims.begin());
  std::copy_n(strides.begin(), problem.x.strides.size(), problem.x.strides.begin());
  if constexpr (std::is_same_v<Spec, BatchNormForwardSpec>) {
    problem.epsilon = static_cast<float>(spec.epsilon);
    problem.add = spec.has_add;
    problem.relu = static_cast<bool>(spec.activation);
  } else {
    problem.backward = true;
  }
  return problem;
}

template <class Spec>
class NormPlan : public Plan {
 public:
  NormPlan(const Spec& spec, const Engine& engine)
      : Plan(kCudnn),
        spec_(spec),
        name_(engine.name),
        image_(ChannelsLastOf(spec.shape, spec.dtype)),
        executable_(Dnn().Build(ProblemOf(spec), engine)) {}
  std::string Describe() const override { return std::string(kCudnn) + " " + name_; }
  size_t workspace_bytes() const override { return executable_->workspace_bytes(); }
  size_t bytes() const override { return size_t{64} << 10; }

 protected:
  int64_t channels() const { return spec_.shape[1]; }
  void Call(const Execution& execution, std::span<void* const> arguments) const {
    try {
      executable_->Run(execution.device, arguments, execution.workspace);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(
          detail::Message(spec_.op(), error.what(), " (", name_, ") for ", spec_.shape));
    }
  }

  Spec spec_;
  std::string name_;
  LayoutPtr image_;
  std::shared_ptr<const Executable> executable_;
};

class ForwardPlan final : public NormPlan<BatchNormForwardSpec> {
 public:
  using NormPlan::NormPlan;
  void Run(const Execution& execution) const override {
    const auto& in = execution.inputs;
    const auto& out = execution.outputs;
    std::vector<void*> arguments = {in[0].raw_data(), in[1].raw_data(), in[2].raw_data()};
    if (spec_.has_add) arguments.push_back(in[5].raw_data());
    for (const size_t i : {1, 2, 0}) arguments.push_back(out[i].raw_data());
    Call(execution, arguments);
    const auto running = [&](size_t i) {
      return out[i].empty() ? nullptr : execution.out<float>(i);
    };
    // cuDNN adds epsilon as a float.
    cuda::FinishStatistics(cuda::StreamOf(execution.device), channels(), spec_.sum_length(),
                           static_cast<float>(spec_.epsilon), execution.scalars.v[0],
                           execution.out<float>(1), execution.out<float>(2), running(3),
                           running(4));
  }
  LayoutPtr input_layout(size_t i) const override { return i == 0 || i == 5 ? image_ : nullptr; }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? image_ : nullptr; }
};

class BackwardPlan final : public NormPlan<BatchNormBackwardSpec> {
 public:
  BackwardPlan(const BatchNormBackwardSpec& spec, const Engine& engine) : NormPlan(spec, engine) {
    if (spec.activation) cut_off_ = OwnKernel(UnaryBackwardSpec{UnaryOp::kRelu, spec.dtype});
  }
  /// The engine's workspace, inverse deviations, and dscale and dbias if they are not requested.
  size_t workspace_bytes() const override {
    return own_at() + static_cast<size_t>(channels()) * sizeof(float) * (spec_.need_scale ? 1 : 3);
  }
  void Run(const Execution& execution) const override {
    const auto& in = execution.inputs;
    const auto& out = execution.outputs;
    auto* const inverse =
        reinterpret_cast<float*>(static_cast<char*>(execution.workspace) + own_at());
    cuda::InverseDeviations(cuda::StreamOf(execution.device), channels(), spec_.epsilon,
                            execution.in<float>(4), inverse);
    void* dy = in[0].raw_data();
    if (spec_.activation) {
      CutOff(execution);
      dy = out[3].raw_data();
    }
    float* const dscale = spec_.need_scale ? execution.out<float>(1) : inverse + channels();
    float* const dbias = spec_.need_scale ? execution.out<float>(2) : inverse + 2 * channels();
    void* const arguments[] = {
        dy,    in[1].raw_data(), in[2].raw_data(), in[3].raw_data(), inverse, dscale,
        dbias, out[0].raw_data()};
    Call(execution, arguments);
  }
  LayoutPtr input_layout(size_t i) const override {
    return i == 0 || i == 1 || i == 6 ? image_ : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override { return i == 0 || i == 3 ? image_ : nullptr; }

 private:
  size_t own_at() const {
    return (executable_->workspace_bytes() + kRegion - 1) / kRegion * kRegion;
  }
  /// dadd = dy where y is positive. The tensors have the same layout, so they are treated as flat.
  void CutOff(const Execution& execution) const {
    const auto flat = [&](const Tensor& t) {
      return PlainAt(t.device(), t.raw_data(), {spec_.shape.Count()}, spec_.dtype);
    };
    const Tensor inputs[] = {flat(execution.inputs[0]), flat(execution.inputs[6])},
                 outputs[] = {flat(execution.outputs[3])};
    cut_off_->Run({execution.device, inputs, outputs, Scalars(), nullptr});
  }

  PlanPtr cut_off_;
};

/// Requirements of both directions.
template <class Spec>
std::string RefusesImages(const Spec& spec) {
  if (!spec.training)
    return "with given statistics batch norm is one pass, which our own kernel does";
  if (spec.dtype != kFloat32 && spec.dtype != kFloat16 && spec.dtype != kBFloat16)
    return std::string("cuDNN takes float32, float16 and bfloat16, not ") + DTypeName(spec.dtype);
  if (spec.activation && spec.activation.kind != ActivationKind::kRelu)
    return "cuDNN's batch norm has no activation but ReLU";
  if (!IsChannelsLast(spec.x_layout)) return "x does not lie with channels last";
  if (!spec.has_scale) return "cuDNN wants a scale";
  if (spec.shape.Count() > kMostElements)
    return "x has " + std::to_string(spec.shape.Count()) + " elements, cuDNN counts to 2^31";
  return Dnn().Problem();
}

std::string Refuses(const BatchNormForwardSpec& spec) {
  if (std::string reason = RefusesImages(spec); !reason.empty()) return reason;
  if (!spec.has_bias) return "cuDNN wants a bias";
  return "";
}

std::string Refuses(const BatchNormBackwardSpec& spec) {
  if (std::string reason = RefusesImages(spec); !reason.empty()) return reason;
  if (spec.has_dy2) return "cuDNN takes no gradient in two parts";
  if (!spec.need_x) return "cuDNN has no kernel for the gradients of scale and bias alone";
  if (spec.activation && !(spec.need_add && spec.has_y))
    return "ReLU's gradient would be a pass of its own";
  if (spec.activation && !OwnKernel(UnaryBackwardSpec{UnaryOp::kRelu, spec.dtype}))
    return "no kernel computes ReLU's gradient on this device";
  return "";
}

template <class Spec, class NormPlan>
auto MakerOf(const Spec& spec) {
  return
      [spec](const Engine& engine) -> PlanPtr { return std::make_shared<NormPlan>(spec, engine); };
}

template <class Spec, class NormPlan>
std::vector<Candidate> Candidates(const Spec& spec) {
  return CandidatesOf(PermittedEngines(ProblemOf(spec)), kMostMeasured,
                      MakerOf<Spec, NormPlan>(spec));
}

template <class Spec, class NormPlan>
PlanOrReason Make(const Spec& spec) {
  return FirstPlan(PermittedEngines(ProblemOf(spec)), MakerOf<Spec, NormPlan>(spec));
}

}  // namespace

SINGA_KERNELS(cuda_alternatives) {
  Register<BatchNormForwardSpec>(DeviceKind::kCuda, kCudnn,
                                 {.refuses = Refuses,
                                  .make = Make<BatchNormForwardSpec, ForwardPlan>,
                                  .candidates = Candidates<BatchNormForwardSpec, ForwardPlan>});
  Register<BatchNormBackwardSpec>(DeviceKind::kCuda, kCudnn,
                                  {.refuses = Refuses,
                                   .make = Make<BatchNormBackwardSpec, BackwardPlan>,
                                   .candidates = Candidates<BatchNormBackwardSpec, BackwardPlan>});
}

}  // namespace singa::cudnn

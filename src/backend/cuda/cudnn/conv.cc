// Convolutions by cuDNN, on channels-last images. cuDNN has no engine for the bias gradient, a sum
// over pixels, so the kernels of ReduceSpec compute it.

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "backend/cuda/cudnn/conv_problem.h"
#include "backend/cuda/cudnn/engines.h"
#include "backend/cuda/cudnn/own_kernel.h"
#include "model/dispatch/kernel.h"
#include "model/operation/reduce/spec.h"
#include "singa/core/error.h"

namespace singa::cudnn {
namespace {

/// Engines to measure. cuDNN lists up to about fifty, best first, and building one takes tens of
/// milliseconds.
constexpr size_t kMostMeasured = 24;

/// The bias gradient: the sum of dy over all axes except channels.
struct BiasGradient {
  PlanPtr sum;
  Shape shape;  ///< shape of dy as the input of `sum`

  /// `sum` is null if no kernel supports it.
  explicit BiasGradient(const ConvSpec& spec) {
    const Recorder& r = spec.geometry;
    const int64_t pixels = r.conv_pixels();
    ReduceSpec reduce{};
    reduce.reduce = ReduceOp::kSum;
    reduce.dtype = reduce.out_dtype = spec.dtype;
    if (LayoutsOf(spec).y || pixels == 1) {
      shape = {r.batchsize * pixels, r.out_channels};
      reduce.axes = 1;
    } else {
      shape = {r.batchsize, r.out_channels, pixels};
      reduce.axes = 1 | 4;
    }
    reduce.shape = shape;
    sum = OwnKernel(reduce);
  }

  void Run(const Execution& execution, const Tensor& dy, const Tensor& db) const {
    const Tensor inputs[] = {PlainAt(dy.device(), dy.raw_data(), shape, dy.data_type())},
                 outputs[] = {db};
    sum->Run({execution.device, inputs, outputs, execution.scalars, execution.workspace});
  }
};

class ConvPlan final : public Plan {
 public:
  template <class Spec>
  ConvPlan(const Spec& spec, const Engine& engine)
      : Plan(kCudnn),
        op_(spec.op()),
        geometry_(spec.geometry),
        name_(engine.name),
        pass_(spec.pass),
        transforms_(engine.transforms),
        rounds_factors_(engine.tensor_cores && spec.dtype == kFloat32) {
    executable_ = Dnn().Build(ProblemOf(spec), engine);
    SetLayouts(spec);
    workspace_ = executable_->workspace_bytes();
    if (pass_ == ConvPass::kBackwardW && spec.geometry.bias) {
      bias_.emplace(spec);
      workspace_ = std::max(workspace_, bias_->sum->workspace_bytes());
    }
  }
  /// Computes the bias gradient only.
  explicit ConvPlan(const ConvSpec& spec)
      : Plan(kCudnn), op_(spec.op()), geometry_(spec.geometry), name_("sum"), pass_(spec.pass) {
    SetLayouts(spec);
    bias_.emplace(spec);
    workspace_ = bias_->sum->workspace_bytes();
  }

  void Run(const Execution& execution) const override {
    if (executable_) {
      void* arguments[6];
      size_t count = 0;
      for (const Tensor& t : execution.inputs) arguments[count++] = t.raw_data();
      // The engine does not compute the bias gradient.
      for (const Tensor& t : execution.outputs.first(bias_ ? 1 : execution.outputs.size()))
        arguments[count++] = t.raw_data();
      try {
        executable_->Run(execution.device, {arguments, count}, execution.workspace);
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(
            detail::Message(op_, error.what(), " (", name_, ") for ", geometry_.ToString()));
      }
    }
    if (bias_) bias_->Run(execution, execution.inputs[0], execution.outputs[executable_ ? 1 : 0]);
  }
  std::string Describe() const override {
    return std::string(kCudnn) + " " + name_ + (rounds_factors_ ? " tf32" : "");
  }
  size_t workspace_bytes() const override { return workspace_; }
  LayoutPtr input_layout(size_t i) const override {
    return i < inputs_.size() ? inputs_[i] : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? output_ : nullptr; }
  bool spreads_error() const override { return transforms_; }
  double factor_error() const override { return rounds_factors_ ? kTf32Error : 0; }
  size_t bytes() const override { return size_t{64} << 10; }  // plans share kernels

 private:
  void SetLayouts(const ConvSpec& spec) {
    const ConvLayouts layouts = LayoutsOf(spec);
    switch (pass_) {
      case ConvPass::kForward:
        inputs_ = {layouts.x, layouts.w};
        if (spec.geometry.bias) inputs_.push_back(nullptr);
        if (spec.has_add) inputs_.push_back(layouts.y);
        output_ = layouts.y;
        break;
      case ConvPass::kBackwardX:
        inputs_ = {layouts.y, layouts.w};
        output_ = layouts.x;
        break;
      case ConvPass::kBackwardW:
        inputs_ = {layouts.y, layouts.x};
        output_ = layouts.w;
        break;
      case ConvPass::kBackwardB:
        inputs_ = {layouts.y};
        break;
    }
  }

  const char* op_;
  Recorder geometry_;
  std::string name_;
  ConvPass pass_;
  bool transforms_ = false, rounds_factors_ = false;
  std::shared_ptr<const Executable> executable_;
  std::optional<BiasGradient> bias_;
  size_t workspace_ = 0;
  std::vector<LayoutPtr> inputs_;
  LayoutPtr output_;
};

template <class Spec>
std::vector<Engine> EnginesOf(const Spec& spec) {
  return PermittedEngines(ProblemOf(spec));
}

template <class Spec>
std::string Refuses(const Spec& spec) {
  const bool sums = spec.pass == ConvPass::kBackwardB ||
                    (spec.pass == ConvPass::kBackwardW && spec.geometry.bias);
  if (sums && !BiasGradient(spec).sum) return "no kernel sums the bias gradient on this device";
  return spec.pass == ConvPass::kBackwardB ? "" : RefusesConv(spec);
}

/// Returns a function that makes a Spec's plan for an engine.
template <class Spec>
auto MakerOf(const Spec& spec) {
  return
      [spec](const Engine& engine) -> PlanPtr { return std::make_shared<ConvPlan>(spec, engine); };
}

template <class Spec>
std::vector<Candidate> Candidates(const Spec& spec) {
  if (spec.pass == ConvPass::kBackwardB)
    return {{std::string(kCudnn) + " sum", [spec] { return std::make_shared<ConvPlan>(spec); }}};
  return CandidatesOf(EnginesOf(spec), kMostMeasured, MakerOf(spec));
}

template <class Spec>
PlanOrReason Make(const Spec& spec) {
  if (spec.pass == ConvPass::kBackwardB) return std::make_shared<ConvPlan>(spec);
  return FirstPlan(EnginesOf(spec), MakerOf(spec));
}

}  // namespace

SINGA_KERNELS(cuda_libraries) {
  Register<ConvSpec>(DeviceKind::kCuda, kCudnn,
                     {.refuses = Refuses, .make = Make, .candidates = Candidates});
  Register<ConvStatisticsSpec>(DeviceKind::kCuda, kCudnn,
                               {.refuses = Refuses, .make = Make, .candidates = Candidates});
}

}  // namespace singa::cudnn

// Batch norm by cuDNN on the emulated GPU: whole calls against the CPU's reference, and when it is
// chosen. Loops on the host emulate cuDNN.

#include <map>

#include "backend/cuda/cudnn/emulated_cudnn.h"
#include "backend/cuda/runtime/channels_last.h"
#include "model/dispatch/dispatch.h"
#include "model/dispatch/select.h"
#include "model/operation/batchnorm/spec.h"
#include "singa/dispatch/tuning.h"
#include "singa/operation/batchnorm.h"
#include "support.h"

namespace singa::cudnn {
namespace {

using namespace test;

constexpr double kEpsilon = 1e-3;
const Shape kShape{3, 16, 5, 7};

BatchNormForwardSpec ForwardSpec(const Shape& shape = kShape, DType dtype = kFloat32,
                                 bool add = false, bool relu = false) {
  const LayoutPtr layout = ChannelsLastOf(shape, dtype);
  return {{shape, dtype, true, true, kEpsilon, layout}, true, add, relu};
}

/// The Spec of backward. With a residual it uses y, as the operation does.
BatchNormBackwardSpec BackwardSpec(const Shape& shape = kShape, DType dtype = kFloat32,
                                   bool add = false, bool relu = false) {
  BatchNormBackwardSpec spec{{shape, dtype}};
  spec.has_bias = relu && !add;
  spec.activation = relu;
  spec.has_y = spec.need_add = relu && add;
  spec.epsilon = kEpsilon;
  spec.x_layout = ChannelsLastOf(shape, dtype);
  return spec;
}

class EmulatedCudnnNormTest : public EmulatedCudnn {
 protected:
  /// Enters an engine for the Spec in the tuning table.
  template <class Spec>
  void Choose(const Spec& spec, const std::string& engine) const {
    AddTuningChoices(
        {{SignatureText(*gpu_, spec, {}), "cudnn emulation 1 " + engine, TuningMachine(), ""}});
  }
  /// Copies a tensor to the GPU; images become channels-last.
  Tensor OnGpu(const Tensor& t) const {
    if (t.empty()) return t;
    const Tensor there = t.ToDevice(gpu_);
    return t.rank() == 4 ? there.ToLayout(ChannelsLastOf(t.shape(), t.data_type())) : there;
  }
  template <class Spec>
  static std::string Refusal(const Spec& spec) {
    return FindKernel<Spec>("cudnn", DeviceKind::kCuda)->Make(spec).reason();
  }
};

/// The arguments of both directions, on the CPU.
struct Call {
  Call(uint64_t seed, const Shape& shape, DType dtype, bool add, bool relu)
      : random(seed), channels{shape[1]}, relu(relu) {
    x = RandomTensor(random, shape, dtype, 4, 6);  // not around zero
    dy = RandomTensor(random, shape, dtype);
    scale = RandomTensor(random, channels, kFloat32, 0.5, 2);
    bias = RandomTensor(random, channels);
    running_mean = RandomTensor(random, channels);
    running_var = RandomTensor(random, channels, kFloat32, 0.1, 1);
    if (add) residual = RandomTensor(random, shape, dtype);
  }
  /// y, mean, variance, both running statistics, dx, dscale, dbias and, with a residual, dadd.
  template <class Bring>
  std::vector<Tensor> Run(const Bring& bring) const {
    const Tensor on = bring(x), a = bring(scale), b = bring(bias), r = bring(residual);
    const Tensor mean = bring(running_mean.Clone()), var = bring(running_var.Clone());
    const BatchNormHandle handle(0.1, x, kEpsilon);
    std::vector<Tensor> results = BatchNormForwardTraining(handle, on, a, b, mean, var, r, relu);
    const Tensor y = r.empty() ? Tensor() : results[0];
    const auto gradients = BatchNormBackward(handle, bring(dy), on, a, results[1], results[2], true,
                                             true, relu, b, y, !r.empty() && relu);
    results.push_back(mean);
    results.push_back(var);
    results.insert(results.end(), gradients.begin(), gradients.end());
    return results;
  }
  std::vector<Tensor> Reference() const {
    const PreferenceScope reference(Preference::kReference);
    return Run([](const Tensor& t) { return t; });
  }

  Random random;
  Shape channels;
  bool relu;
  Tensor x, dy, scale, bias, running_mean, running_var, residual;
};

void ExpectSame(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Vector values = Values(want[i]);
    Vector allowed;
    for (const double v : values)
      allowed.push_back(1024 * 0x1p-24 + Epsilon(got[i].data_type()) * std::abs(v));
    ExpectNear(got[i].ToDevice(DefaultDevice()), values, allowed, "result " + std::to_string(i));
  }
}

TEST_F(EmulatedCudnnNormTest, EqualsTheReference) {
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16})
    for (const Shape& shape : {kShape, Shape{2, 24, 3, 3}, Shape{1, 8, 9, 4}})
      for (const auto& [add, relu] : {std::pair(false, false), {false, true}, {true, true}}) {
        SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + (add ? " add" : "") +
                     (relu ? " relu" : ""));
        Clear();
        const bool backward = add || !relu;
        Choose(ForwardSpec(shape, dtype, add, relu), "eng0");
        if (backward) Choose(BackwardSpec(shape, dtype, add, relu), "eng5 k2=3");
        const Call call(1, shape, dtype, add, relu);
        ExpectSame(call.Run([&](const Tensor& t) { return OnGpu(t); }), call.Reference());
        std::vector<std::string> built = {"eng0"};
        if (backward) built.push_back("eng5 k2=3");
        EXPECT_EQ(emulated::Dnn().built, built);
      }
}

TEST_F(EmulatedCudnnNormTest, OnlyTheGradientOfWhatIsWanted) {
  BatchNormBackwardSpec spec = BackwardSpec();
  spec.need_scale = false;
  Choose(spec, "eng4");
  const Call call(2, kShape, kFloat32, false, false);
  const BatchNormHandle handle(0.1, call.x, kEpsilon);
  const auto run = [&](const auto& bring) {
    return BatchNormBackward(handle, bring(call.dy), bring(call.x), bring(call.scale),
                             bring(call.running_mean), bring(call.running_var), true, false);
  };
  const auto got = run([&](const Tensor& t) { return OnGpu(t); });
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng4"}));
  EXPECT_TRUE(got[1].empty() && got[2].empty());
  const PreferenceScope reference(Preference::kReference);
  ExpectSame({got[0]}, {run([](const Tensor& t) { return t; })[0]});
}

TEST_F(EmulatedCudnnNormTest, StatisticsOfAConstantAreExact) {
  // The inverse deviation has almost no information about a variance far below epsilon.
  Choose(ForwardSpec(), "eng0");
  const BatchNormHandle handle(0.5, Tensor(kShape, DefaultDevice()), kEpsilon);
  const Tensor x = OnGpu(Full(kShape, 3)), one = OnGpu(Full({16}, 1));
  const Tensor mean = OnGpu(Full({16}, 1)), var = OnGpu(Full({16}, 1));
  const auto results = BatchNormForwardTraining(handle, x, one, one, mean, var);
  EXPECT_EQ(emulated::Dnn().built.size(), 1u);
  for (const double v : Values(results[2].ToDevice(DefaultDevice()))) {
    EXPECT_GE(v, 0);
    EXPECT_LE(v, 0x1p-22 * kEpsilon);
  }
  EXPECT_EQ(Values(mean.ToDevice(DefaultDevice())), Vector(16, 2));
  for (const double v : Values(var.ToDevice(DefaultDevice()))) EXPECT_NEAR(v, 0.5, 1e-9);
}

TEST_F(EmulatedCudnnNormTest, ScaleAndBiasMayBeginAnywhere) {
  Choose(ForwardSpec(), "eng0");
  Choose(BackwardSpec(), "eng0");
  Call call(3, kShape, kFloat32, false, false);
  const Tensor all = RandomTensor(call.random, {33}, kFloat32, 0.5, 2);
  call.scale = all.SliceAxis(0, 1, 17);
  call.bias = all.SliceAxis(0, 17, 33);
  const Tensor there = all.ToDevice(gpu_);
  const auto bring = [&](const Tensor& t) {
    if (t.empty() || t.block() != all.block()) return OnGpu(t);
    return there.SliceAxis(0, t.offset(), t.offset() + 16);  // 4 or 68 bytes into its block
  };
  ExpectSame(call.Run(bring), call.Reference());
  EXPECT_EQ(emulated::Dnn().built.size(), 2u);
}

TEST_F(EmulatedCudnnNormTest, OurKernelsAreTheDefault) {
  const Call call(4, kShape, kFloat32, true, true);
  ExpectSame(call.Run([&](const Tensor& t) { return OnGpu(t); }), call.Reference());
  EXPECT_TRUE(emulated::Dnn().norms.empty());  // cuDNN is not even asked
  const PreferenceScope limited(Preference::kLimitedWorkspace);
  EXPECT_STREQ(FindPlan(*gpu_, ForwardSpec())->implementation(), "cuda");
}

TEST_F(EmulatedCudnnNormTest, AutotuneMeasuresBoth) {
  const PreferenceScope autotune(Preference::kAutotune);
  FindPlan(*gpu_, ForwardSpec(kShape, kBFloat16, true, true), {Preference::kAutotune, 1 << 12});
  FindPlan(*gpu_, BackwardSpec(kShape, kFloat32, true, true));
  const std::vector<TuningChoice> choices = GetTuningChoices();
  ASSERT_EQ(choices.size(), 2u);
  for (const TuningChoice& choice : choices) {
    SCOPED_TRACE(choice.signature);
    const bool forward = choice.signature.starts_with("BatchNormForward");
    EXPECT_NE(choice.measured.find(" ms cuda"), std::string::npos) << choice.measured;
    for (const std::string engine : {"eng5 k2=3", "eng4", "eng0"})
      EXPECT_NE(choice.measured.find(" ms cudnn emulation 1 " + engine), std::string::npos)
          << choice.measured;
    // Tensor cores round float32; a megabyte exceeds the first call's limit.
    EXPECT_EQ(choice.measured.find("eng7") != std::string::npos, forward) << choice.measured;
    EXPECT_EQ(choice.measured.find("eng5 k2=1") != std::string::npos, !forward) << choice.measured;
  }
}

TEST_F(EmulatedCudnnNormTest, WhatCannotBeBuiltIsLeftToOurKernels) {
  for (const Engine& engine : emulated::Dnn().engines)
    emulated::Dnn().broken.push_back(engine.name);
  Choose(ForwardSpec(), "eng0");
  EXPECT_STREQ(FindPlan(*gpu_, ForwardSpec())->implementation(), "cuda");
  ClearPlanCache();
  const PlanOptions autotune{Preference::kAutotune};
  EXPECT_STREQ(FindPlan(*gpu_, BackwardSpec(), autotune)->implementation(), "cuda");
}

TEST_F(EmulatedCudnnNormTest, RefusalsSayWhy) {
  EXPECT_EQ(Refusal(ForwardSpec(kShape, kFloat16, true, true)), "");
  EXPECT_EQ(Refusal(BackwardSpec(kShape, kBFloat16, true, true)), "");
  const auto forward = [](const auto& change) {
    BatchNormForwardSpec spec = ForwardSpec();
    change(spec);
    return Refusal(spec);
  };
  const auto backward = [](const auto& change) {
    BatchNormBackwardSpec spec = BackwardSpec();
    change(spec);
    return Refusal(spec);
  };
  const auto says = [](const std::string& reason, const std::string& part) {
    EXPECT_NE(reason.find(part), std::string::npos) << reason;
  };
  says(forward([](auto& s) { s.training = false; }), "given statistics");
  says(forward([](auto& s) { s.dtype = kFloat64; }), "float64");
  says(forward([](auto& s) { s.x_layout = nullptr; }), "channels last");
  says(forward([](auto& s) { s.has_scale = false; }), "a scale");
  says(forward([](auto& s) { s.has_bias = false; }), "a bias");
  says(forward([](auto& s) { s.has_add = true; }), "no engine");  // without ReLU
  says(Refusal(ForwardSpec({2, 12, 3, 3}, kFloat16)), "no engine");
  EXPECT_EQ(Refusal(ForwardSpec({2, 12, 3, 3}, kFloat32)), "");
  says(Refusal(ForwardSpec({1 << 12, 1 << 10, 32, 32})), "2^31");
  says(backward([](auto& s) { s.training = false; }), "given statistics");
  says(backward([](auto& s) { s.need_x = false; }), "alone");
  says(backward([](auto& s) { s.activation = s.has_bias = true; }), "a pass of its own");
  says(forward([](auto& s) { s.activation = ActivationKind::kSilu; }), "no activation but ReLU");
  says(backward([](auto& s) { s.activation = ActivationKind::kHardSwish; }),
       "no activation but ReLU");
  emulated::Dnn().problem = "libcudnn.so.9 is missing";
  says(Refusal(ForwardSpec()), "libcudnn.so.9 is missing");
}

TEST_F(EmulatedCudnnNormTest, IsCapturedAsPartOfAStep) {
  Choose(ForwardSpec(kShape, kFloat32, true, true), "eng0");
  Choose(BackwardSpec(kShape, kFloat32, true, true), "eng4");
  const Call call(5, kShape, kFloat32, true, true);
  std::map<const Block*, Tensor> on_gpu;
  for (const Tensor& t : {call.x, call.dy, call.scale, call.bias})
    on_gpu[t.block().get()] = OnGpu(t);
  const Tensor mean = OnGpu(call.running_mean), var = OnGpu(call.running_var);
  // A step's inputs are row-major, so the residual is reordered.
  const auto step = [&](const Tensor& residual) {
    const auto at = [&](const Tensor& t) { return on_gpu.at(t.block().get()); };
    const BatchNormHandle handle(0.1, call.x, kEpsilon);
    std::vector<Tensor> results = BatchNormForwardTraining(
        handle, at(call.x), at(call.scale), at(call.bias), mean, var, residual, true);
    const auto gradients =
        BatchNormBackward(handle, at(call.dy), at(call.x), at(call.scale), results[1], results[2],
                          true, true, true, Tensor(), results[0], true);
    results.insert(results.end(), gradients.begin(), gradients.end());
    return results;
  };
  const Tensor residual = call.residual.ToDevice(gpu_);
  const auto graph = GraphOf(step, residual);
  std::vector<Tensor> want = call.Reference();
  want.erase(want.begin() + 3, want.begin() + 5);  // the running statistics
  for (int replay = 0; replay < 4; ++replay) {     // eager, captured, and launched
    const auto got = graph->Replay({residual});
    ASSERT_TRUE(got);
    ExpectSame(*got, want);
  }
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng0", "eng4"}));
  // Five updates: the recorded step and four replays.
  const Vector means = Values(mean.ToDevice(DefaultDevice()));
  const Vector batch = Values(want[1]), before = Values(call.running_mean);
  for (size_t c = 0; c < means.size(); ++c)
    EXPECT_NEAR(means[c], batch[c] + (before[c] - batch[c]) * std::pow(0.9, 5), 1e-5);
}

}  // namespace
}  // namespace singa::cudnn

// Batch norm statistics by the preceding convolution, on the emulated GPU: the operation itself,
// and recorded steps that are rewritten to use it.

#include <algorithm>

#include "backend/cuda/cudnn/emulated_cudnn.h"
#include "backend/cuda/cudnn/engines.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/conv/spec.h"
#include "model/passes/recorded.h"
#include "singa/dispatch/tuning.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"

namespace singa::cudnn {
namespace {

using namespace test;

constexpr const char* kConv = "ConvForward";
constexpr const char* kConvWithSums = "ConvForwardStatistics";
constexpr const char* kNorm = "BatchNormForwardTraining";
constexpr const char* kNormFromSums = "BatchNormForwardFromSums";

using EmulatedCudnnStatisticsTest = EmulatedCudnn;

// ---- the operation

ConvStatisticsSpec SpecOf(DType dtype, const Shape& x, int64_t out, bool bias, int64_t stride = 1,
                          int64_t group = 1) {
  ConvStatisticsSpec spec;
  spec.dtype = dtype;
  spec.geometry =
      ConvRecorder("test", x, {3, 3}, {stride, stride}, {1, 1}, out, bias, {1, 1}, group);
  return spec;
}

/// Returns y, sums and sums of squares, on the host.
std::vector<Tensor> RunOn(const DevicePtr& device, const ConvStatisticsSpec& spec,
                          const std::vector<Tensor>& inputs) {
  const PlanPtr plan = FindPlan(*device, spec);
  std::vector<Tensor> in;
  for (size_t i = 0; i < inputs.size(); ++i)
    in.push_back(InPlanLayout(*plan, i, inputs[i].ToDevice(device)));
  const Shape channels{spec.geometry.out_channels};
  const std::vector<Tensor> out = {
      NewOutput(*plan, 0, spec.geometry.output_shape(), device, spec.dtype),
      Tensor(channels, device), Tensor(channels, device)};
  Run(spec, device, plan, in, out);
  std::vector<Tensor> results;
  for (const Tensor& t : out) results.push_back(t.ToDevice(DefaultDevice()));
  return results;
}

TEST_F(EmulatedCudnnStatisticsTest, SumsAreThoseOfWhatTheConvolutionGives) {
  SetTf32(true);  // otherwise float32 has no engine
  for (const DType dtype : {kBFloat16, kFloat16, kFloat32})
    for (const bool bias : {false, true})
      for (const int64_t group : {1, 2})
        for (const DevicePtr& device : {gpu_, DefaultDevice()}) {
          SCOPED_TRACE(std::string(DTypeName(dtype)) + " on " + device->name() + ", groups " +
                       std::to_string(group) + ", bias " + std::to_string(bias));
          const ConvStatisticsSpec spec = SpecOf(dtype, {3, 4, 9, 7}, 6, bias, 2, group);
          Random random(1);
          std::vector<Tensor> inputs = {RandomTensor(random, {3, 4, 9, 7}, dtype),
                                        RandomTensor(random, spec.geometry.weight_shape(), dtype)};
          if (bias) inputs.push_back(RandomTensor(random, {6}, dtype, 1, 2));
          const std::vector<Tensor> got = RunOn(device, spec, inputs);

          ConvHandle handle(spec.geometry);
          const Tensor y = ConvForward(inputs[0].ToDevice(device), inputs[1].ToDevice(device),
                                       bias ? inputs[2].ToDevice(device) : Tensor(), handle);
          const Vector values = Values(y.ToDevice(DefaultDevice()));
          // 37 terms up to 2; the CPU's y is from another implementation.
          ExpectNear(got[0], values, Vector(values.size(), 37 * 37 * 2 * 0x1p-24), "y");
          // Sums may use y before or after its rounding, and are float32.
          Vector sums(6), squares(6), sum_bound(6), square_bound(6);
          const int64_t pixels = spec.geometry.conv_height() * spec.geometry.conv_width();
          const double step = Epsilon(dtype) + static_cast<double>(3 * pixels) * 0x1p-24;
          for (size_t i = 0; i < values.size(); ++i) {
            const size_t c = i / static_cast<size_t>(pixels) % 6;
            sums[c] += values[i];
            squares[c] += values[i] * values[i];
            sum_bound[c] += step * std::abs(values[i]);
            square_bound[c] += 2 * step * values[i] * values[i];
          }
          ExpectNear(got[1], sums, sum_bound, "sums");
          ExpectNear(got[2], squares, square_bound, "squares");
        }
}

TEST_F(EmulatedCudnnStatisticsTest, RefusesWhatCudnnHasNoEngineFor) {
  const auto refuses = [](const ConvStatisticsSpec& spec) {
    return FindKernel<ConvStatisticsSpec>("cudnn", DeviceKind::kCuda)->Make(spec).reason();
  };
  const Shape x{2, 8, 5, 5};
  EXPECT_EQ(refuses(SpecOf(kBFloat16, x, 8, true)), "");
  EXPECT_TRUE(emulated::Dnn().asked.back().statistics);
  EXPECT_NE(refuses(SpecOf(kFloat64, x, 8, true)).find("float64"), std::string::npos);
  EXPECT_EQ(refuses(SpecOf(kFloat16, x, 8, false, 1, 8)), kNoEngine);  // depthwise
  ConvStatisticsSpec spec = SpecOf(kFloat16, x, 8, false);
  spec.plain = true;
  EXPECT_EQ(refuses(spec), kNoEngine);
  EXPECT_EQ(refuses(SpecOf(kFloat32, x, 8, false)), kNoEngine);
  SetTf32(true);
  EXPECT_EQ(refuses(SpecOf(kFloat32, x, 8, false)), "");
}

// ---- recorded steps

/// A convolution and a training batch norm with residual and ReLU, forward and backward.
struct Net {
  explicit Net(const DevicePtr& device, DType dtype = kBFloat16) : device(device) {
    Random random(3);
    const auto make = [&](const Shape& shape, DType type, double low, double high) {
      return RandomTensor(random, shape, type, low, high).ToDevice(device);
    };
    x = make({3, 4, 6, 5}, dtype, -1, 2);
    W = make({8, 4, 3, 3}, dtype, -1, 1);
    b = make({8}, dtype, -1, 1);
    add = make({3, 8, 6, 5}, dtype, -1, 1);
    dy = make({3, 8, 6, 5}, dtype, -1, 1);
    scale = make({8}, kFloat32, 0.5, 2);
    bias = make({8}, kFloat32, -1, 1);
    running_mean = make({8}, kFloat32, -1, 1);
    running_var = make({8}, kFloat32, 0.1, 1);
  }
  ConvHandle conv() const { return ConvHandle(x, {3, 3}, {1, 1}, {1, 1}, 4, 8, true); }
  /// y, mean, variance, dx, dscale, dbias, dadd; then dW.
  std::vector<Tensor> Normalize(const Tensor& in, const Tensor& h) const {
    const BatchNormHandle norm(0.1, h, 1e-3);
    std::vector<Tensor> results =
        BatchNormForwardTraining(norm, h, scale, bias, running_mean, running_var, add, true);
    const std::vector<Tensor> gradients = BatchNormBackward(
        norm, dy, h, scale, results[1], results[2], true, true, true, bias, results[0], true);
    results.insert(results.end(), gradients.begin(), gradients.end());
    results.push_back(ConvBackwardW(gradients[0], in, conv()));
    return results;
  }
  std::vector<Tensor> operator()(const std::vector<Tensor>& in) const {
    return Normalize(in[0], ConvForward(in[0], W, b, conv()));
  }

  DevicePtr device;
  Tensor x, W, b, add, dy, scale, bias, running_mean, running_var;
};

using Names = std::vector<std::string>;

int64_t Count(const Recording& recording, const std::string& name) {
  const Names names = Operations(recording);
  return std::count(names.begin(), names.end(), name);
}

std::vector<Tensor> OnHost(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& t : tensors) copies.push_back(t.ToDevice(DefaultDevice()));
  return copies;
}

void ExpectClose(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Vector values = Values(want[i].ToDevice(DefaultDevice()));
    double largest = 0;
    for (const double v : values) largest = std::max(largest, std::abs(v));
    ExpectNear(got[i].ToDevice(DefaultDevice()), values, Vector(values.size(), 0x1p-7 * largest),
               "result " + std::to_string(i));
  }
}

TEST_F(EmulatedCudnnStatisticsTest, BatchNormStartsFromTheSumsOfTheConvolution) {
  for (const DType dtype : {kBFloat16, kFloat16}) {
    SCOPED_TRACE(DTypeName(dtype));
    const Net plain(gpu_, dtype), fused(gpu_, dtype);
    std::vector<Tensor> want, got;
    const RecordingPtr without = Recorded(plain, {plain.x}, nullptr, &want);
    EXPECT_EQ(Count(*without, kConvWithSums), 0);
    const RecordingPtr with = Recorded(fused, {fused.x}, TakeStatisticsInConvolutions, &got);
    EXPECT_EQ(Count(*with, kConvWithSums), 1);
    EXPECT_EQ(Count(*with, kNormFromSums), 1);
    EXPECT_EQ(Count(*with, kConv) + Count(*with, kNorm), 0);
    EXPECT_EQ(with->step().nodes().size(), without->step().nodes().size());
    ExpectClose(got, want);
    ExpectClose({fused.running_mean, fused.running_var}, {plain.running_mean, plain.running_var});
  }
}

TEST_F(EmulatedCudnnStatisticsTest, ReplaysHaveTheBitsOfTheFirstStep) {
  const Net net(gpu_);
  std::vector<Tensor> results;
  const RecordingPtr recording = Recorded(net, {net.x}, TakeStatisticsInConvolutions, &results);
  const std::vector<Tensor> first = OnHost(results);
  Graph graph(recording);
  for (int replay = 0; replay < 4; ++replay) {  // eager, captured, and launched
    const auto again = graph.Replay({net.x});
    ASSERT_TRUE(again);
    ExpectSame(OnHost(*again), first, "replay " + std::to_string(replay));
  }
  // Five updates of the running statistics.
  const Net once(gpu_);
  const Vector before = Values(once.running_mean.ToDevice(DefaultDevice()));
  const Vector batch = Values(first[1]);
  const Vector after = Values(net.running_mean.ToDevice(DefaultDevice()));
  for (size_t c = 0; c < after.size(); ++c)
    EXPECT_NEAR(after[c], batch[c] + (before[c] - batch[c]) * std::pow(0.9, 5), 1e-5);
}

TEST_F(EmulatedCudnnStatisticsTest, OthersMayReadTheConvolutionToo) {
  const auto step = [](const Net& net) -> Step {
    return [&net](const std::vector<Tensor>& in) {
      const Tensor h = ConvForward(in[0], net.W, net.b, net.conv());
      std::vector<Tensor> results = net.Normalize(in[0], h);
      results.push_back(net.Normalize(in[0], h)[0]);  // a second use of h
      results.push_back(Unary(UnaryOp::kRelu, h));
      return results;
    };
  };
  const Net plain(gpu_), fused(gpu_);
  std::vector<Tensor> want, got;
  Recorded(step(plain), {plain.x}, nullptr, &want);
  const RecordingPtr recording =
      Recorded(step(fused), {fused.x}, TakeStatisticsInConvolutions, &got);
  EXPECT_EQ(Count(*recording, kNormFromSums), 1);
  EXPECT_EQ(Count(*recording, kNorm), 1);
  ExpectClose(got, want);
}

TEST_F(EmulatedCudnnStatisticsTest, AutotuneMeasuresTheEngines) {
  const PreferenceScope autotune(Preference::kAutotune);
  emulated::Dnn().engines.push_back({.name = "eng8", .tensor_cores = true});
  const Net net(gpu_);
  std::vector<Tensor> results;
  const RecordingPtr recording = Recorded(net, {net.x}, TakeStatisticsInConvolutions, &results);
  EXPECT_EQ(Count(*recording, kNormFromSums), 1);
  const std::vector<TuningChoice> choices = GetTuningChoices();
  const auto choice = std::find_if(choices.begin(), choices.end(), [](const TuningChoice& c) {
    return c.signature.starts_with(kConvWithSums);
  });
  ASSERT_NE(choice, choices.end());
  for (const std::string engine : {"eng7 k2=1", "eng8"})
    EXPECT_NE(choice->measured.find(engine), std::string::npos) << choice->measured;
}

/// Expects the step to be recorded with the bits of the unfused one, and without sums.
void ExpectLeftAlone(const std::function<Step(const Net&)>& step, DType dtype = kBFloat16) {
  const Net plain(Gpu(), dtype), fused(Gpu(), dtype);
  std::vector<Tensor> want, got;
  Recorded(step(plain), {plain.x}, nullptr, &want);
  const RecordingPtr recording =
      Recorded(step(fused), {fused.x}, TakeStatisticsInConvolutions, &got);
  EXPECT_EQ(Count(*recording, kConv), 1);
  EXPECT_EQ(Count(*recording, kConvWithSums) + Count(*recording, kNormFromSums), 0);
  ExpectSame(OnHost(got), OnHost(want), "left alone");
}

TEST_F(EmulatedCudnnStatisticsTest, WhatIsNotACaseOfItIsLeftAlone) {
  const auto whole = [](const Net& net) -> Step { return net; };
  SetTf32(true);
  ExpectLeftAlone(whole, kFloat32);  // has engines then, but would lose accuracy
  ExpectLeftAlone([](const Net& net) -> Step {
    return [&net](const std::vector<Tensor>& in) {
      const Tensor h = ConvForward(in[0], net.W, net.b, net.conv());
      return net.Normalize(in[0], Unary(UnaryOp::kRelu, h));
    };
  });
  ExpectLeftAlone([](const Net& net) -> Step {
    return [&net](const std::vector<Tensor>& in) {
      return net.Normalize(in[0], ConvForward(in[0], net.W, net.b, net.conv(), net.add));
    };
  });
  ExpectLeftAlone([](const Net& net) -> Step {
    return [&net](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor h = ConvForward(in[0], net.W, net.b, net.conv());
      return {BatchNormForwardInference(BatchNormHandle(0.1, h, 1e-3), h, net.scale, net.bias,
                                        net.running_mean, net.running_var)};
    };
  });
  for (const Engine& engine : emulated::Dnn().engines)
    if (engine.tensor_cores) emulated::Dnn().broken.push_back(engine.name);
  ExpectLeftAlone(whole);
  SetLayoutMode(LayoutMode::kPlain);
  ExpectLeftAlone(whole);
}

}  // namespace
}  // namespace singa::cudnn

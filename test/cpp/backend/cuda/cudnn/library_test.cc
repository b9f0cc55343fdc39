// Convolutions and matrix products on the emulated GPU: whole calls against the CPU's reference,
// and the choice of engines. Loops on the host emulate cuDNN and cuBLASLt.

#include "backend/cuda/cudnn/emulated_cudnn.h"
#include "model/dispatch/dispatch.h"
#include "model/dispatch/select.h"
#include "model/operation/conv/spec.h"
#include "model/operation/linalg/spec.h"
#include "singa/dispatch/tuning.h"
#include "singa/operation/conv.h"
#include "singa/operation/linalg.h"
#include "support.h"

namespace singa::cudnn {
namespace {

using namespace test;

class EmulatedCudnnTest : public EmulatedCudnn {
 protected:
  Tensor OnGpu(const Tensor& t) const { return t.empty() ? t : t.ToDevice(gpu_); }
  /// A forward convolution with 8 channels and 3 x 3 filters, on the GPU.
  Tensor Convolve(const std::string& prefer, size_t limit = kWorkspaceByteLimit) const {
    Random random(7);
    const Tensor x = OnGpu(RandomTensor(random, {2, 8, 6, 5}));
    const Tensor w = OnGpu(RandomTensor(random, {4, 8, 3, 3}));
    return ConvForward(
        x, w, Tensor(),
        ConvHandle(x, {3, 3}, {1, 1}, {1, 1}, 8, 4, false, 1, {1, 1}, limit, prefer));
  }
};

/// Error bounds for sums of `length` products of numbers below 1.
Vector Bound(const Tensor& t, int64_t length) {
  return Vector(static_cast<size_t>(t.size()),
                static_cast<double>(length + 2) * Epsilon(t.data_type()));
}

struct Case {
  Shape x, w;
  std::vector<int64_t> stride, padding, dilation;
  int64_t group;
};

const Case kCases[] = {
    {{2, 3, 7, 6}, {5, 3, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1},
    {{2, 3, 9, 8}, {5, 3, 3, 2}, {2, 3}, {0, 1, 2, 0}, {1, 2}, 1},  // asymmetric
    {{3, 8, 5, 5}, {12, 2, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},
    {{2, 6, 6, 6}, {6, 1, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 6},   // depthwise
    {{2, 4, 1, 11}, {3, 4, 1, 4}, {1, 2}, {0, 1}, {1, 1}, 1},  // 1-d
    {{2, 1, 8, 8}, {4, 1, 5, 5}, {1, 1}, {0, 0}, {1, 1}, 1},   // one channel
    {{4, 6, 3, 3}, {7, 6, 3, 3}, {1, 1}, {0, 0}, {1, 1}, 1},   // one pixel
};

TEST_F(EmulatedCudnnTest, ConvolutionsEqualTheReference) {
  for (const LayoutMode mode : {LayoutMode::kAuto, LayoutMode::kPlain})
    for (const DType dtype : {kFloat32, kBFloat16})
      for (size_t i = 0; i < std::size(kCases); ++i) {
        SCOPED_TRACE(std::to_string(i) + " " + DTypeName(dtype));
        SetLayoutMode(mode);
        const Case& c = kCases[i];
        Random random(i + 1);
        const Tensor x = RandomTensor(random, c.x, dtype), w = RandomTensor(random, c.w, dtype);
        const Tensor b = RandomTensor(random, {c.w[0]}, dtype);
        const ConvHandle handle(x, {c.w[2], c.w[3]}, c.stride, c.padding, c.x[1], c.w[0], true,
                                c.group, c.dilation);
        const Shape y_shape = handle.recorder.output_shape();
        const Tensor add = RandomTensor(random, y_shape, dtype);
        const Tensor dy = RandomTensor(random, y_shape, dtype);
        std::vector<Tensor> want, got;
        {
          const PreferenceScope reference(Preference::kReference);
          want = ConvBackward(dy, x, w, handle, true, true, true);
          want.push_back(ConvForward(x, w, b, handle));
          want.push_back(ConvForward(x, w, b, handle, add, true));
        }
        got = ConvBackward(OnGpu(dy), OnGpu(x), OnGpu(w), handle, true, true, true);
        got.push_back(ConvForward(OnGpu(x), OnGpu(w), OnGpu(b), handle));
        got.push_back(ConvForward(OnGpu(x), OnGpu(w), OnGpu(b), handle, OnGpu(add), true));
        const int64_t length = std::max<int64_t>(
            {c.w.Count() / c.w[0], c.w.Count() / c.w[1], c.x[0] * y_shape[2] * y_shape[3]});
        for (size_t k = 0; k < want.size(); ++k)
          ExpectNear(got[k].ToDevice(DefaultDevice()), Values(want[k]), Bound(want[k], length),
                     "result " + std::to_string(k));
      }
}

TEST_F(EmulatedCudnnTest, ImagesLeaveWithChannelsLast) {
  const Tensor y = Convolve("fastest");
  EXPECT_EQ(LayoutName(y.layout()), "nhwc");
  SetLayoutMode(LayoutMode::kPlain);
  EXPECT_EQ(Convolve("fastest").layout(), nullptr);
}

TEST_F(EmulatedCudnnTest, FastestIsTheFirstEngineThatCanBeBuilt) {
  Convolve("fastest");
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng5 k2=1"}));
  Clear();
  emulated::Dnn().broken = {"eng5 k2=1", "eng5 k2=3"};
  Convolve("fastest");
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng4"}));
}

TEST_F(EmulatedCudnnTest, WhereNothingCanBeBuiltTheReasonSaysWhy) {
  for (const Engine& engine : emulated::Dnn().engines)
    emulated::Dnn().broken.push_back(engine.name);
  ConvSpec spec;
  spec.geometry = ConvRecorder("test", {2, 8, 6, 5}, {3, 3}, {1, 1}, {1, 1}, 4, false, {1, 1}, 1);
  const Kernel* kernel = FindKernel<ConvSpec>("cudnn", DeviceKind::kCuda);
  ASSERT_NE(kernel, nullptr);
  EXPECT_NE(kernel->Make(spec).reason().find("eng0: engine eng0 is broken"), std::string::npos);
  Convolve("fastest");  // uses our own kernel
  EXPECT_TRUE(emulated::Dnn().built.empty());
  emulated::Dnn().engines.clear();
  EXPECT_TRUE(kernel->Make(spec).reason().starts_with("cuDNN has no engine for this"));
}

TEST_F(EmulatedCudnnTest, LimitsAreKeptInBytes) {
  Convolve("limited_workspace", 2048);
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng5 k2=3"}));
  Clear();
  Convolve("limited_workspace", 2047);
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng4"}));
  Clear();
  Convolve("no_workspace");
  EXPECT_EQ(emulated::Dnn().built.back(), "eng0");
}

TEST_F(EmulatedCudnnTest, NoWorkspaceTakesTheLeastWhereAllWantSome) {
  std::vector<Engine>& engines = emulated::Dnn().engines;
  engines.pop_back();
  const Tensor y = Convolve("no_workspace");
  EXPECT_EQ(emulated::Dnn().built.back(), "eng4");
  EXPECT_EQ(y.shape(), (Shape{2, 4, 6, 5}));
}

TEST_F(EmulatedCudnnTest, AutotuneMeasuresAllWithinTheLimitAndOthersFollow) {
  Convolve("autotune", 4096);
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng5 k2=3", "eng4", "eng0"}));
  const std::vector<TuningChoice> choices = GetTuningChoices();
  ASSERT_EQ(choices.size(), 1u);
  for (const std::string& engine : emulated::Dnn().built)
    EXPECT_NE(choices[0].measured.find("cudnn emulation 1 " + engine), std::string::npos)
        << choices[0].measured;

  // Saved choices name the same engine in another process.
  Clear();
  TuningChoice other = choices[0];
  other.candidate = "cudnn emulation 1 eng0";
  AddTuningChoices({other});
  const Tensor first = Convolve("fastest", 4096);
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng0"}));
  ClearPlanCache();
  const Tensor second = Convolve("fastest", 4096);
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng0", "eng0"}));
  EXPECT_EQ(Values(first.ToDevice(DefaultDevice())), Values(second.ToDevice(DefaultDevice())));
}

TEST_F(EmulatedCudnnTest, ChoicesOfAnotherCudnnAreNotFollowed) {
  Convolve("autotune");
  TuningChoice old = GetTuningChoices().at(0);
  Clear();
  old.candidate = "cudnn emulation 0 eng0";
  AddTuningChoices({old});
  Convolve("fastest");
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng5 k2=1"}));
}

TEST_F(EmulatedCudnnTest, ChoicesOfAnotherGpuAreNotFollowed) {
  Convolve("autotune");
  TuningChoice choice = GetTuningChoices().at(0);
  EXPECT_TRUE(choice.signature.ends_with("8.0, 1 multiprocessors")) << choice.signature;
  ClearTuningChoices();
  choice.candidate = "cudnn emulation 1 eng0";
  AddTuningChoices({choice});
  const std::vector<std::string>& built = emulated::Dnn().built;
  gpu_ = cuda::NewDevice(1);
  Convolve("fastest");
  EXPECT_EQ(built.back(), "eng5 k2=1");
  Convolve("autotune");
  EXPECT_EQ(GetTuningChoices().size(), 2u);
  gpu_ = Gpu();
  Convolve("fastest");
  EXPECT_EQ(built.back(), "eng0");
}

TEST_F(EmulatedCudnnTest, PlansAreMadeOnTheirGpu) {
  const DevicePtr other = cuda::NewDevice(1);
  ConvSpec spec;
  spec.geometry = ConvRecorder("test", {2, 8, 6, 5}, {3, 3}, {1, 1}, {1, 1}, 4, false, {1, 1}, 1);
  gpu_->MakeCurrent();
  FindPlan(*other, spec);
  other->MakeCurrent();
  FindPlan(*gpu_, spec);
  EXPECT_EQ(emulated::Dnn().built_on, (std::vector<int>{1, 0}));
}

TEST_F(EmulatedCudnnTest, SettingsAreInTheKey) {
  ConvSpec spec;
  spec.geometry = ConvRecorder("test", {2, 8, 6, 5}, {3, 3}, {1, 1}, {1, 1}, 4, false, {1, 1}, 1);
  const auto key = [&] { return SignatureOf(*gpu_, spec, {}); };
  const auto text = [&] { return SignatureText(*gpu_, spec, {}); };
  const OpSignature before = key();
  const std::string before_text = text();
  SetFloat32Precision(Float32Precision::kHigh);
  EXPECT_FALSE(key() == before);
  EXPECT_NE(text(), before_text);
  SetFloat32Precision(Float32Precision::kHighest);
  SetDeterministic(false);
  EXPECT_FALSE(key() == before);
  EXPECT_NE(text(), before_text);
  SetDeterministic(true);
  spec.alignment = 4;
  EXPECT_FALSE(key() == before);
  EXPECT_NE(text(), before_text);
  spec.alignment = 16;
  EXPECT_TRUE(key() == before);
  EXPECT_EQ(text(), before_text);
}

TEST_F(EmulatedCudnnTest, Tf32IsAnotherEngine) {
  const Vector exact = Values(Convolve("fastest").ToDevice(DefaultDevice()));
  SetFloat32Precision(Float32Precision::kHigh);
  // OPCHECK knows how far the factors are rounded.
  const OpcheckScope scope({.every = 1, .ops = {}, .replay_directory = testing::TempDir()});
  ResetOpcheckStats();
  const Vector rounded = Values(Convolve("fastest").ToDevice(DefaultDevice()));
  double worst = 0;
  for (const OpcheckOpStats& stats : GetOpcheckStats()) worst = std::max(worst, stats.worst_ratio);
  EXPECT_GT(worst, 0.005);
  ResetOpcheckStats();
  EXPECT_EQ(emulated::Dnn().built, (std::vector<std::string>{"eng5 k2=1", "eng7 k2=1"}));
  EXPECT_NE(exact, rounded);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(exact[i], rounded[i], 72 * 0x1p-10);
}

TEST_F(EmulatedCudnnTest, ArgumentsInTheMiddleOfABlockAreKnownToBe) {
  Random random(3);
  const Tensor x = OnGpu(RandomTensor(random, {2, 4, 6, 5}));
  const Tensor w = OnGpu(RandomTensor(random, {4, 4, 3, 3}));
  const Tensor all = OnGpu(RandomTensor(random, {9}));
  const Tensor b = all.SliceAxis(0, 1, 5);  // 4 bytes into its block
  const ConvHandle handle(x, {3, 3}, {1, 1}, {1, 1}, 4, 4, true);
  const Tensor y = ConvForward(x, w, b, handle);
  EXPECT_EQ(emulated::Dnn().asked.back().alignment, 4);
  const Tensor same = ConvForward(x, w, b.Clone(), handle);
  EXPECT_EQ(emulated::Dnn().asked.back().alignment, 16);
  EXPECT_EQ(Values(y.ToDevice(DefaultDevice())), Values(same.ToDevice(DefaultDevice())));
}

TEST_F(EmulatedCudnnTest, PlansAreMadeOnceForEachSize) {
  Random random(5);
  const Tensor w = OnGpu(RandomTensor(random, {4, 8, 3, 3}));
  const Tensor x = OnGpu(RandomTensor(random, {4, 8, 6, 6}));
  const Tensor last = OnGpu(RandomTensor(random, {3, 8, 6, 6}));
  const ConvHandle handle(x, {3, 3}, {1, 1}, {1, 1}, 8, 4, false);
  for (int step = 0; step < 3; ++step)
    for (const Tensor& batch : {x, last}) ConvForward(batch, w, Tensor(), handle);
  EXPECT_EQ(emulated::Dnn().built.size(), 2u);
}

TEST_F(EmulatedCudnnTest, ProductsEqualTheReference) {
  struct Factors {
    Shape a, b;
  };
  const Factors cases[] = {{{5, 7}, {7, 3}},       {{4, 5, 7}, {7, 3}},
                           {{4, 5, 7}, {4, 7, 3}}, {{2, 1, 5, 7}, {3, 7, 2}},
                           {{1, 9}, {9, 1}},       {{2, 3, 4, 5}, {2, 3, 5, 6}},
                           {{3, 0}, {0, 2}}};
  Random random(11);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16})
    for (const Factors& f : cases) {
      SCOPED_TRACE(f.a.ToString() + f.b.ToString() + DTypeName(dtype));
      const Tensor a = RandomTensor(random, f.a, dtype), b = RandomTensor(random, f.b, dtype);
      const Tensor want = [&] {
        const PreferenceScope reference(Preference::kReference);
        return MatMul(a, b);
      }();
      const Tensor got = MatMul(OnGpu(a), OnGpu(b));
      ExpectNear(got.ToDevice(DefaultDevice()), Values(want), Bound(want, f.a.back()), "y");
    }
}

TEST_F(EmulatedCudnnTest, WhatIsAddedIsABiasOrComesFirst) {
  Random random(13);
  const Tensor a = RandomTensor(random, {5, 7}), b = RandomTensor(random, {3, 7});
  for (const Shape& shape : {Shape{3}, Shape{1, 3}, Shape{5, 1}, Shape{5, 3}, Shape{1}})
    for (const double beta : {1.0, 0.5}) {
      SCOPED_TRACE(shape.ToString());
      const Tensor c = RandomTensor(random, shape);
      const Tensor want = [&] {
        const PreferenceScope reference(Preference::kReference);
        return Gemm(a, b, c, 2, beta, false, true);
      }();
      ClearPlanCache();  // shapes (3) and (1, 3) have the same plan
      const Tensor got = Gemm(OnGpu(a), OnGpu(b), OnGpu(c), 2, beta, false, true);
      ExpectNear(got.ToDevice(DefaultDevice()), Values(want), Bound(want, 20), "y");
      EXPECT_EQ(emulated::Blas().asked.back().bias,
                shape.back() == 3 && shape.Count() == 3 && beta == 1);
    }
}

}  // namespace
}  // namespace singa::cudnn

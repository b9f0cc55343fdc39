// Pooling and local response normalisation on the emulator.

#include "backend/cuda/kernels/kernels.h"
#include "model/operation/lrn/spec.h"
#include "model/operation/pooling/spec.h"

namespace singa::test {
namespace {

Recorder RandomWindows(Random& random, int spatial = 2, bool adaptive = false) {
  const auto numbers = [&](int64_t low, int64_t high) {
    std::vector<int64_t> numbers;
    for (int i = 0; i < spatial; ++i) numbers.push_back(random.Int(low, high));
    return numbers;
  };
  const std::vector<int64_t> kernel = numbers(1, 3), dilation = numbers(1, 2);
  std::vector<int64_t> padding;
  for (const int64_t length : kernel) padding.push_back(random.Int(0, length / 2));
  // Channels that fill vectors, and others.
  const int64_t channels = random.Coin() ? random.Int(1, 3) : 8 * random.Int(1, 2);
  Shape input{random.Int(1, 2), channels};
  for (int64_t size : numbers(5, 9)) input.push_back(size);
  if (adaptive) return AdaptivePoolRecorder("test", input, numbers(1, 11));
  return PoolRecorder("test", input, kernel, numbers(1, 3), padding, dilation, random.Coin());
}

/// All modes on all layouts, forward and backward.
void CheckWindows(Random& random, const Recorder& g, DType dtype) {
  const Shape in = g.input_shape(), out = g.output_shape();
  // A few distinct values, so that there are ties.
  const Tensor x = RandomTensor(random, in, kInt32, -3, 3).AsType(dtype);
  const Tensor dy = RandomTensor(random, out, dtype);
  for (PoolMode mode :
       {PoolMode::kMax, PoolMode::kAverageExcludePad, PoolMode::kAverageIncludePad}) {
    const bool max = mode == PoolMode::kMax;
    std::vector<Tensor> outputs(max ? 2 : 1);
    outputs[0] = Result(out, dtype);
    if (max) outputs[1] = Result(out, kInt32);
    for (const LayoutPtr& layout : ImageLayouts(in, dtype)) {
      const std::string what = g.ToString() + " " + LayoutName(layout);
      const auto y = CompareWithReference(PoolingForwardSpec{{g, mode, dtype, layout}, max}, {x},
                                          outputs, {}, {}, what);
      for (bool saved : {false, true}) {
        if (saved && !max) continue;
        PoolingBackwardSpec backward{{g, mode, dtype, max ? layout : nullptr}, saved};
        if (layout) backward.dy_layout = cudnn::ChannelsLastOf(out, dtype);
        CompareWithReference(backward, {dy, max ? x : Tensor(), saved ? y[1] : Tensor()},
                             {Result(in, dtype)}, {}, {4 * Step(dtype), 4 * Step(dtype)}, what);
      }
    }
  }
}

TEST(CudaPooling, RandomGeometries) {
  Random random(1);
  for (int i = 0; i < 40; ++i) CheckWindows(random, RandomWindows(random), kFloats[i % 4]);
}

TEST(CudaPooling, SignalsAndVolumes) {
  Random random(3);
  for (int i = 0; i < 16; ++i)
    CheckWindows(random, RandomWindows(random, i % 2 ? 1 : 3), kFloats[i / 2 % 4]);
}

TEST(CudaPooling, AdaptiveWindows) {
  Random random(4);
  for (int i = 0; i < 18; ++i)
    CheckWindows(random, RandomWindows(random, 1 + i % 3, true), kFloats[i % 4]);
}

TEST(CudaPooling, ImagesFollowX) {
  const Shape in{2, 3, 4, 4}, out{2, 3, 2, 2};
  const Recorder g = PoolRecorder("test", in, {2, 2}, {2, 2}, {0, 0}, {1, 1}, false);
  const LayoutPtr x = cudnn::ChannelsLastOf(in, kFloat32), y = cudnn::ChannelsLastOf(out, kFloat32);
  const auto forward = PlanOnGpu(PoolingForwardSpec{{g, PoolMode::kMax, kFloat32, x}, true});
  EXPECT_TRUE(SameLayout(forward->output_layout(0), y));
  EXPECT_TRUE(SameLayout(forward->output_layout(1), cudnn::ChannelsLastOf(out, kInt32)));
  const auto backward = [&](PoolMode mode, const LayoutPtr& x_layout, const LayoutPtr& dy_layout) {
    return PlanOnGpu(PoolingBackwardSpec{{g, mode, kFloat32, x_layout}, false, dy_layout});
  };
  EXPECT_TRUE(SameLayout(backward(PoolMode::kMax, x, nullptr)->input_layout(0), y));
  EXPECT_EQ(backward(PoolMode::kMax, nullptr, y)->output_layout(0), nullptr);
  EXPECT_TRUE(SameLayout(backward(PoolMode::kAverageExcludePad, nullptr, y)->output_layout(0), x));
  EXPECT_TRUE(SameLayout(backward(PoolMode::kAverageExcludePad, x, nullptr)->output_layout(0), x));
}

TEST(CudaPooling, NaNWins) {
  const Tensor x =
      FromValues({1, 1, 2, 6}, {1, kNan, -kInf, -kInf, 2, 2, kNan, 3, -kInf, -kInf, 2, 2});
  const Recorder g = PoolRecorder("test", x.shape(), {2, 2}, {2, 2}, {0, 0}, {1, 1}, false);
  CompareWithReference(PoolingForwardSpec{{g, PoolMode::kMax, kFloat32}, true}, {x},
                       {Result(g.output_shape()), Result(g.output_shape(), kInt32)});
}

TEST(CudaLrn, WindowsOfAnySize) {
  Random random(2);
  for (DType dtype : kFloats) {
    for (const int64_t size : {1, 2, 5, 20}) {
      for (double beta : {0.75, 0.5}) {
        const Shape shape = {2, random.Int(1, 9), 3, 5};
        const DType compute = dtype == kFloat64 ? kFloat64 : kFloat32;
        const Tensor x = RandomTensor(random, shape, dtype, -3, 3);
        for (const LayoutPtr& layout : ImageLayouts(shape, dtype)) {
          const auto y = CompareWithReference(
              LrnForwardSpec{{shape, dtype, size, 0.1, beta, 1.5, layout}, true}, {x},
              {Result(shape, dtype), Result(shape, compute)}, {}, {Step(dtype), 0});
          for (SavedForm saved : {SavedForm::kNone, SavedForm::kCommon}) {
            LrnBackwardSpec backward{{shape, dtype, size, 0.1, beta, 1.5}, saved};
            backward.x_layout = layout;
            CompareWithReference(backward,
                                 {RandomTensor(random, shape, dtype), x,
                                  saved == SavedForm::kCommon ? y[1] : Tensor()},
                                 {Result(shape, dtype)}, {}, {4 * Step(dtype), 4 * Step(dtype)});
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace singa::test

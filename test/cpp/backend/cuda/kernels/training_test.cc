// Batch norm and optimizers on the emulator.

#include "backend/cuda/kernels/kernels.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/optimizer/spec.h"

namespace singa::test {
namespace {

constexpr Activation kActivations[] = {false, true, ActivationKind::kHardSwish,
                                       ActivationKind::kSilu,
                                       Activation(ActivationKind::kClip, -0.5, 0.75)};

TEST(CudaBatchNorm, StatisticsResidualAndActivations) {
  Random random(1);
  Scalars scalars;
  scalars.v[0] = 0.1;
  for (const Shape& shape :
       {Shape{4, 3, 5, 5}, Shape{2, 40, 1, 1}, Shape{70, 33}, Shape{3, 2, 8, 8}, Shape{1, 1, 1, 1},
        Shape{3, 2, 64, 96}, Shape{1200, 12}, Shape{150, 132}, Shape{3, 8, 6, 6}}) {
    for (DType dtype : kFloats) {
      if (shape.Count() > 20000 && dtype != kFloat32) continue;  // several parts
      const DType own = StatisticsType(dtype);
      const Shape channels{shape[1]};
      for (int flags = 0; flags < 20; ++flags) {
        const bool training = flags & 1, affine = flags & 2;
        const Activation activation = kActivations[flags / 4];
        const bool relu = activation.kind == ActivationKind::kRelu;
        const bool add = random.Coin() && (relu || !activation);
        SCOPED_TRACE(shape.ToString() + " " + DTypeName(dtype) + " " + std::to_string(flags) +
                     " add " + std::to_string(add));
        // Far from zero, where a variance from squares would have no correct digits.
        const Tensor x = RandomTensor(random, shape, dtype, 9, 11);
        const Tensor scale = affine ? RandomTensor(random, channels, own, 0.5, 2) : Tensor();
        const Tensor bias = affine ? RandomTensor(random, channels, own) : Tensor();
        const Tensor mean = RandomTensor(random, channels, own, 9, 11);
        const Tensor var = RandomTensor(random, channels, own, 0.1, 1);
        const Tensor residual = add ? RandomTensor(random, shape, dtype) : Tensor();
        const std::vector<LayoutPtr> layouts = ImageLayouts(shape, dtype);
        const LayoutPtr& layout = layouts[random.Coin() ? layouts.size() - 1 : 0];
        BatchNormForwardSpec forward{{shape, dtype, training, affine}, affine, add, activation};
        forward.x_layout = layout;
        std::vector<Tensor> outputs = {Result(shape, dtype)};
        if (training)
          outputs.insert(outputs.end(), {Result(channels, own), Result(channels, own), mean, var});
        // The mean may differ in its last bit, and y by that times the factor. Sums of float64 are
        // in float64, so there some bits of the mean differ.
        const auto y =
            CompareWithReference(forward, {x, scale, bias, mean, var, residual}, outputs, scalars,
                                 {8 * Step(dtype), (dtype == kFloat64 ? 2048 : 256) * Step(dtype)});
        const Tensor dy = RandomTensor(random, shape, dtype);
        BatchNormBackwardSpec backward{
            {shape, dtype, training, affine}, affine, add || (relu && !affine), activation};
        backward.x_layout = layout;
        backward.has_bias = affine && activation && !backward.has_y;
        backward.has_y = backward.has_y && relu;
        backward.need_add = relu && add;
        backward.need_scale = affine;
        backward.has_dy2 = backward.need_add && random.Coin();
        CompareWithReference(backward,
                             {dy, x, scale, mean, var, bias, backward.has_y ? y[0] : Tensor(),
                              backward.has_dy2 ? RandomTensor(random, shape, dtype) : Tensor()},
                             {Result(shape, dtype), affine ? Result(channels, own) : Tensor(),
                              affine ? Result(channels, own) : Tensor(),
                              backward.need_add ? Result(shape, dtype) : Tensor()},
                             {}, {16 * Step(dtype), (dtype == kFloat64 ? 4096 : 64) * Step(dtype)});
      }
    }
  }
}

TEST(CudaBatchNorm, FromSums) {
  Random random(9);
  Scalars scalars;
  scalars.v[0] = 0.1;
  for (const Shape& shape : {Shape{4, 3, 5, 5}, Shape{2, 40, 1, 1}, Shape{3, 16, 8, 9}})
    for (DType dtype : kFloats)
      for (const LayoutPtr& layout : ImageLayouts(shape, dtype)) {
        const bool affine = random.Coin(), add = random.Coin(), relu = random.Coin();
        SCOPED_TRACE(shape.ToString() + " " + DTypeName(dtype) + " affine " +
                     std::to_string(affine) + " add " + std::to_string(add));
        const DType own = StatisticsType(dtype);
        const Shape channels{shape[1]};
        const Tensor mean = RandomTensor(random, channels, own);
        const Tensor var = RandomTensor(random, channels, own, 0.1, 1);
        BatchNormFromSumsSpec spec{{{shape, dtype, true, affine}, affine, add, relu}};
        spec.x_layout = layout;
        const auto n = static_cast<double>(spec.sum_length());
        CompareWithReference(
            spec,
            {RandomTensor(random, shape, dtype, -1, 3),
             affine ? RandomTensor(random, channels, own, 0.5, 2) : Tensor(),
             affine ? RandomTensor(random, channels, own) : Tensor(), mean, var,
             add ? RandomTensor(random, shape, dtype) : Tensor(),
             RandomTensor(random, channels, own, 0.9 * n, 1.1 * n),
             // May be below the square of the mean.
             RandomTensor(random, channels, own, 0.9 * n, 2 * n)},
            {Result(shape, dtype), Result(channels, own), Result(channels, own), mean, var},
            scalars, {Step(dtype), Step(dtype)});
      }
}

TEST(CudaBatchNorm, ReluCutsOffAlikeInBothDirections) {
  // Backward without y must find the same signs from x as forward.
  Random random(2);
  const Shape shape{3, 4, 9, 9};
  const Tensor x = RandomTensor(random, shape), scale = RandomTensor(random, {4});
  const Tensor bias = RandomTensor(random, {4}), one = Full(shape, 1);
  Scalars scalars;
  BatchNormForwardSpec forward{{shape}};
  forward.activation = true;
  const auto y = CompareWithReference(forward, {x, scale, bias, Tensor(), Tensor(), Tensor()},
                                      {Result(shape), Result({4}), Result({4}), Tensor(), Tensor()},
                                      scalars, {8 * Step(kFloat32), 256 * Step(kFloat32)});
  BatchNormBackwardSpec backward{{shape}};
  backward.activation = backward.has_bias = backward.need_add = true;
  const auto dx = CompareWithReference(backward, {one, x, scale, y[1], y[2], bias, Tensor()},
                                       {Result(shape), Result({4}), Result({4}), Result(shape)}, {},
                                       {16 * Step(kFloat32), 256 * Step(kFloat32)});
  const auto positive = Values(y[0]), passed = Values(dx[3]);
  for (size_t i = 0; i < positive.size(); ++i) ASSERT_EQ(passed[i], positive[i] > 0) << i;
}

TEST(CudaBatchNorm, ThreadsKeepTheirChannels) {
  // More vectors than threads in a launch: each thread processes several, with the same channels.
  Random random(7);
  const Shape shape{180000, 12}, channels{12};
  const Tensor x = RandomTensor(random, shape), dy = RandomTensor(random, shape);
  const Tensor scale = RandomTensor(random, channels, kFloat32, 0.5, 2);
  const Tensor bias = RandomTensor(random, channels), mean = RandomTensor(random, channels);
  const Tensor var = RandomTensor(random, channels, kFloat32, 0.1, 1);
  BatchNormForwardSpec forward{{shape, kFloat32, false}};
  CompareWithReference(forward, {x, scale, bias, mean, var, Tensor()}, {Result(shape)}, {},
                       {8 * Step(kFloat32), 64 * Step(kFloat32)});
  BatchNormBackwardSpec backward{{shape, kFloat32, false}};
  backward.activation = backward.has_bias = true;
  backward.need_scale = false;
  CompareWithReference(backward, {dy, x, scale, mean, var, bias, Tensor()},
                       {Result(shape), Tensor(), Tensor(), Tensor()}, {},
                       {16 * Step(kFloat32), 64 * Step(kFloat32)});
}

TEST(CudaBatchNorm, MoreChannelsThanAGridHasRows) {
  // Only one case, because it takes two million threads to exceed the grid's limit.
  Random random(8);
  const Shape shape{1, 65600, 2}, channels{65600};
  const BatchNormBackwardSpec spec{{shape, kFloat32, true, false}};
  const std::vector<Tensor> inputs = {RandomTensor(random, shape),
                                      RandomTensor(random, shape),
                                      Tensor(),
                                      RandomTensor(random, channels),
                                      RandomTensor(random, channels, kFloat32, 0.1, 1),
                                      Tensor(),
                                      Tensor()};
  const std::vector<Tensor> outputs = {Result(shape), Result(channels), Result(channels), Tensor()};
  const auto got = RunPlan(*PlanOnGpu(spec), inputs, outputs, {});
  const auto want = RunPlan(*FindKernel<BatchNormBackwardSpec>("reference")->Make(spec).plan(),
                            inputs, outputs, {});
  for (size_t i = 0; i < 3; ++i) {
    const Vector values = Values(want[i]);
    ExpectNear(got[i], values, Vector(values.size(), 64 * Step(kFloat32)),
               "result " + std::to_string(i));
  }
}

TEST(CudaBatchNorm, GoesIntoFilters) {
  Random random(6);
  for (DType dtype : kFloats) {
    const DType own = StatisticsType(dtype);
    for (bool given : {false, true}) {
      const auto maybe = [&](DType type) {
        return given ? RandomTensor(random, {7}, type) : Tensor();
      };
      CompareWithReference(
          FoldBatchNormSpec{7, 45, dtype},
          {RandomTensor(random, {7, 45}, dtype), maybe(dtype), maybe(own), maybe(own),
           RandomTensor(random, {7}, own), RandomTensor(random, {7}, own, 0.1, 1)},
          {Result({7, 45}, dtype), Result({7}, dtype)}, {}, {1e-12, 1e-12});
    }
  }
}

TEST(CudaOptimizer, EveryRuleOverManyTensors) {
  Random random(3);
  struct Rule {
    OptimizerKind kind;
    int states;
    bool nesterov, first, decoupled;
    Vector scalars;
  };
  const std::vector<Rule> rules = {
      {OptimizerKind::kSgd, 0, false, false, false, {0.1, 0}},
      {OptimizerKind::kSgd, 0, false, false, false, {0.1, 0.01}},
      {OptimizerKind::kSgd, 1, false, true, false, {0.1, 0.01, 0.9, 0.1}},
      {OptimizerKind::kSgd, 1, false, false, false, {0.1, 0.01, 0.9, 0.1}},
      {OptimizerKind::kSgd, 1, true, false, false, {0.1, 0.01, 0.9, 0}},
      {OptimizerKind::kRmsProp, 1, false, false, false, {0.1, 0.01, 0.9, 1e-8}},
      {OptimizerKind::kAdaGrad, 1, false, false, false, {0.1, 0.01, 0, 1e-8}},
      {OptimizerKind::kAdam, 2, false, false, false, {0.1, 0.01, 0.9, 0.999, 1e-8, 0.2, 0.03}},
      {OptimizerKind::kAdam, 2, false, false, true, {0.1, 0.01, 0.9, 0.999, 1e-8, 0.2, 0.03}}};
  for (const Rule& rule : rules) {
    for (DType dtype : kFloats) {
      for (DType gradient : {dtype, dtype == kFloat32 ? kBFloat16 : dtype}) {
        const DType state = dtype == kFloat64 ? kFloat64 : kFloat32;
        std::vector<Tensor> inputs, outputs;
        const std::vector<int64_t> sizes = {5, 0, 2048, 1, 4099};
        for (int64_t n : sizes) inputs.push_back(RandomTensor(random, {n}, dtype));
        outputs = inputs;
        for (int64_t n : sizes)  // some in the parameter's type
          inputs.push_back(RandomTensor(random, {n}, n > 1 ? gradient : dtype));
        for (int s = 0; s < rule.states; ++s) {
          for (int64_t n : sizes) {
            inputs.push_back(RandomTensor(random, {n}, state, 0, 1));
            outputs.push_back(inputs.back());
          }
        }
        Scalars scalars;
        std::copy(rule.scalars.begin(), rule.scalars.end(), scalars.v.begin());
        OptimizerSpec spec{rule.kind, dtype, rule.states};
        spec.nesterov = rule.nesterov;
        spec.first = rule.first;
        spec.decoupled = rule.decoupled;
        // The CPU may contract a product and a sum, with one rounding.
        CompareWithReference(spec, inputs, outputs, scalars, {32 * Step(dtype), 32 * Step(dtype)});
        spec.scaled = true;
        for (double square : {7.0, double{INFINITY}}) {
          std::vector<Tensor> scaled = inputs;
          scaled.push_back(FromValues({2}, {3, square}, kFloat64));
          scaled.push_back(FromValues({4}, {1.7, 0, 0, 0}, kFloat64));
          const std::vector<Tensor> got = CompareWithReference(
              spec, scaled, outputs, scalars, {32 * Step(dtype), 32 * Step(dtype)});
          for (size_t i = 0; i < outputs.size() && square == INFINITY; ++i)
            EXPECT_EQ(Values(got[i]), Values(outputs[i]));
        }
        spec.clipped = true;
        for (double norm : {0.5, 50.0}) {
          scalars.v[OptimizerSpec::kClipNorm] = norm;
          std::vector<Tensor> conditions = {FromValues({2}, {3, 7}, kFloat64),
                                            FromValues({4}, {1.7, 0, 6, 0}, kFloat64)};
          const auto compare = [&] {
            std::vector<Tensor> all = inputs;
            all.insert(all.end(), conditions.begin(), conditions.end());
            CompareWithReference(spec, all, outputs, scalars, {32 * Step(dtype), 32 * Step(dtype)});
          };
          spec.scaled = true;
          spec.scheduled = false;
          compare();
          spec.scheduled = true;
          // Rows for updates 4, 5, 6 ...
          conditions.push_back(
              RandomTensor(random, {6, OptimizerSpec::kScalars}, kFloat64, 0.1, 1));
          Tensor(conditions.back().SliceAxis(0, 0, 1)).Fill(4);
          compare();
          spec.scaled = spec.scheduled = false;
          conditions.resize(1);
          compare();
        }
      }
    }
  }
}

TEST(CudaOptimizer, MoreTensorsThanOneLaunchTakes) {
  Random random(4);
  std::vector<Tensor> parameters, inputs;
  for (int i = 0; i < 1300; ++i) parameters.push_back(RandomTensor(random, {i % 3}));
  inputs = parameters;
  for (int i = 0; i < 1300; ++i) inputs.push_back(RandomTensor(random, {i % 3}));
  Scalars scalars;
  scalars.v[0] = 0.5;
  CompareWithReference(OptimizerSpec{}, inputs, parameters, scalars,
                       {4 * Step(kFloat32), 4 * Step(kFloat32)});
  CompareWithReference(SumSquareSpec{}, parameters, {Result({}, kFloat64)}, {}, {1e-13, 0});
}

TEST(CudaOptimizer, NextLossScale) {
  Scalars scalars;
  scalars.v = {2, 0.5, 3};
  for (double updates : {0, 2})
    for (double square : {1.0, double{INFINITY}, double{NAN}})
      for (double scale : {5.0, 0x1p-126, 0x1.fp127}) {
        const Tensor state = FromValues({4}, {scale, updates, 1, 1}, kFloat64);
        const Tensor squares = FromValues({2}, {1, square}, kFloat64);
        CompareWithReference(LossScaleSpec{}, {squares, state}, {state}, scalars);
      }
}

TEST(CudaOptimizer, NormOfAllGradients) {
  Random random(5);
  for (DType dtype : kFloats) {
    std::vector<Tensor> tensors;
    for (int64_t n : {3, 0, 5000, 2048}) tensors.push_back(RandomTensor(random, {n}, dtype));
    CompareWithReference(SumSquareSpec{dtype}, tensors, {Result({}, kFloat64)}, {}, {1e-13, 0});
    if (dtype != kFloat32) continue;
    for (DType narrow : {kFloat16, kBFloat16})  // gradients of float32 parameters
      tensors.push_back(RandomTensor(random, {2049}, narrow));
    CompareWithReference(SumSquareSpec{dtype}, tensors, {Result({}, kFloat64)}, {}, {1e-13, 0});
  }
}

}  // namespace
}  // namespace singa::test

// Batch norm on blocked layouts: the results are those on plain tensors, they stay in the layout,
// no reorder happens, and what fills up blocks stays zero.

#include <cstring>

#include "backend/cpu/lane_layouts.h"
#include "model/dispatch/kernel.h"
#include "model/operation/batchnorm/spec.h"
#include "singa/core/device.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

/// One call of each batch norm function on x, dy and z (which may be empty), in their layouts.
struct BatchNormCalls {
  const BatchNormHandle& handle;
  const Tensor& scale;
  const Tensor& bias;
  Activation activation;

  std::vector<Tensor> operator()(const Tensor& x, const Tensor& dy, const Tensor& z,
                                 const Tensor& mean, const Tensor& var) const {
    std::vector<Tensor> results;
    const auto add = [&](const std::vector<Tensor>& more) {
      results.insert(results.end(), more.begin(), more.end());
      results.resize((results.size() + 3) / 4 * 4);
    };
    const bool has_add = !z.empty();
    const Tensor y = BatchNormForwardInference(handle, x, scale, bias, mean, var, z, activation);
    add({y});
    add(BatchNormBackwardInference(handle, dy, x, scale, mean, var, true, true, activation, bias,
                                   has_add ? y : Tensor(), has_add));
    const auto out = BatchNormForwardTraining(handle, x, scale, bias, mean, var, z, activation);
    add(out);
    add(BatchNormBackward(handle, dy, x, scale, out[1], out[2], true, true, activation, bias,
                          has_add ? out[0] : Tensor(), has_add));
    add({mean, var});
    return results;
  }
};

constexpr const char* kBatchNormResults[] = {"frozen y",
                                             "",
                                             "",
                                             "",
                                             "frozen dx",
                                             "frozen dscale",
                                             "frozen dbias",
                                             "frozen dadd",
                                             "y",
                                             "mean",
                                             "var",
                                             "",
                                             "dx",
                                             "dscale",
                                             "dbias",
                                             "dadd",
                                             "running mean",
                                             "running var"};

constexpr Activation kClipped(ActivationKind::kClip, -0.5, 0.75);
constexpr Activation kActivations[] = {false, true, kClipped, ActivationKind::kHardSwish,
                                       ActivationKind::kSilu};

/// Where the slope of an activation jumps.
Vector Kinks(const Activation& activation) {
  switch (activation.kind) {
    case ActivationKind::kRelu:
      return {0};
    case ActivationKind::kClip:
      return {activation.low, activation.high};
    case ActivationKind::kHardSwish:
      return {-3, 3};
    default:
      return {};
  }
}

/// Compares the layout's kernel with the reference. At a kink the last bit of the argument decides,
/// and it may differ, so dy is zero there.
void CheckBatchNorm(Random& random, const Shape& shape, DType dtype, Tag tag, bool has_add,
                    const Activation& activation, bool affine) {
  SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)) +
               (has_add ? " add" : "") + ActivationSuffix(activation));
  const Tensor x = RandomTensor(random, shape, dtype, -1, 3);
  const Tensor z = has_add ? RandomTensor(random, shape, dtype) : Tensor();
  const Tensor scale = affine ? RandomTensor(random, {shape[1]}, kFloat32, 0.5, 2) : Tensor();
  const Tensor bias = random.Coin() ? RandomTensor(random, {shape[1]}) : Tensor();
  const BatchNormHandle handle(0.3, x);
  const Tensor mean = RandomTensor(random, {shape[1]});
  const Tensor var = RandomTensor(random, {shape[1]}, kFloat32, 0.5, 2);
  const Tensor mean_b = mean.Clone(), var_b = var.Clone();
  const Tensor xb = In(x, tag), zb = has_add ? In(z, tag) : z;
  const BatchNormCalls run{handle, scale, bias, activation};

  Vector dy_values(static_cast<size_t>(shape.Count()));
  for (double& v : dy_values) v = random.Real();
  for (bool training : {true, false}) {
    PreferenceScope scope(Preference::kReference);
    const Tensor wide = x.AsType(kFloat32);
    Vector v = Values(training ? BatchNormForwardTraining(handle, wide, scale, bias, {}, {})[0]
                               : BatchNormForwardInference(handle, wide, scale, bias, mean, var));
    const Vector added = has_add ? Values(z) : Vector();
    for (size_t i = 0; i < v.size(); ++i) {
      if (has_add) v[i] += added[i];
      for (double kink : Kinks(activation))
        if (std::abs(v[i] - kink) < (dtype == kFloat32 ? 1e-4 : 1e-2)) dy_values[i] = 0;
    }
  }
  const Tensor dy = FromValues(shape, dy_values, dtype), dyb = In(dy, tag);

  PreferenceScope reference(Preference::kReference);
  const auto want = run(x, dy, z, mean, var);
  PreferenceScope fastest(Preference::kFastest);
  const uint64_t reorders = Reorders();
  const auto got = run(xb, dyb, zb, mean_b, var_b);
  EXPECT_EQ(Reorders(), reorders);
  for (size_t k = 0; k < std::size(kBatchNormResults); ++k) {
    const char* name = kBatchNormResults[k];
    ASSERT_EQ(got[k].empty(), want[k].empty()) << name;
    if (got[k].empty()) continue;
    ExpectSame(got[k], want[k], (activation ? 256 : 64) * 0x1p-23, name);
    if (got[k].rank() == 4) ExpectIn(got[k], tag, name);
  }
}

TEST(BlockedLayouts, BatchNorm) {
  Random random(91);
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Int(0, 3) == 0 ? kBFloat16 : kFloat32;
    Shape shape{random.Int(1, 5), random.Int(2, 40), random.Int(1, 9), random.Int(1, 9)};
    while (shape[0] * shape[2] * shape[3] < 16) ++shape[0];  // gradients of few values cancel
    const bool add = random.Coin();
    const Activation activation = kActivations[random.Int(0, add ? 1 : 4)];
    CheckBatchNorm(random, shape, dtype, tag, add, activation, random.Int(0, 3) > 0);
  }
}

// Covers every path of the kernel: several chunks of rows, several panels of channels, a single
// pixel, results that are written past the caches.
TEST(BlockedLayouts, SlowBatchNormOfEveryKindOfShape) {
  Random random(98);
  for (Tag tag : kTags) {
    for (bool relu : {true, false}) {
      CheckBatchNorm(random, {7, 70, 13, 17}, kFloat32, tag, true, relu, true);
      CheckBatchNorm(random, {3, 2100, 2, 3}, kFloat32, tag, relu, true, true);
      CheckBatchNorm(random, {1, 24, 1, 1}, kFloat32, tag, true, relu, true);
      CheckBatchNorm(random, {130, 20, 1, 1}, kFloat32, tag, true, relu, true);
      CheckBatchNorm(random, {5, 2100, 1, 1}, kFloat32, tag, true, relu, true);
      CheckBatchNorm(random, {9, 50, 11, 7}, kBFloat16, tag, true, relu, true);
    }
    for (const Activation& activation : kActivations) {
      CheckBatchNorm(random, {7, 70, 13, 17}, kFloat32, tag, false, activation, true);
      CheckBatchNorm(random, {130, 20, 1, 1}, kBFloat16, tag, false, activation, true);
    }
    CheckBatchNorm(random, {2, 66, 179, 181}, kFloat32, tag, true, true, true);
  }
  if (HasAvx512())  // elsewhere the reorders take long
    CheckBatchNorm(random, {4, 66, 179, 181}, kBFloat16, Tag::kNChw16c, true, true, true);
}

// NaN and infinity too.
/// Expects the same bits, but for a different order of sums: those of bfloat16 in blocks of 16 are
/// of even and odd pixels.
void ExpectRounded(const Tensor& got, const Tensor& want, bool same_order, const char* what) {
  if (same_order) return ExpectEqual(got, want, what);
  const Vector a = Values(got), b = Values(want.Plain());
  ASSERT_EQ(a.size(), b.size()) << what;
  const double rounding = got.data_type() == kBFloat16 ? 0x1.01p-8 : 0;
  for (size_t i = 0; i < a.size(); ++i)
    if (std::isfinite(b[i])) {
      ASSERT_NEAR(a[i], b[i], rounding * std::abs(b[i]) + 0x1p-16) << what << " " << i;
    } else {
      ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << what << " " << i;
    }
}

TEST(BlockedLayouts, BatchNormOfBFloat16IsThatOfFloat32Rounded) {
  Random random(97);
  const auto wide = [](const Tensor& t, Tag tag) { return In(t.Plain().AsType(kFloat32), tag); };
  for (Tag tag : kTags) {
    // Rows of whole and partial blocks of columns, rows of odd length, single rows, few channels.
    for (const Shape& shape :
         {Shape{3, 21, 5, 7}, Shape{2, 40, 9, 11}, Shape{2, 70, 1, 1}, Shape{1, 33, 1, 1},
          Shape{2, 1, 6, 7}, Shape{2, 21, 8, 17}, Shape{3, 3, 9, 9}, Shape{2, 17, 3, 3},
          Shape{2, 33, 5, 2}, Shape{1, 100, 5, 13}, Shape{2, 64, 3, 23}, Shape{1, 2051, 3, 1}}) {
      for (bool strange : {false, true}) {
        if (strange && (shape[0] < 2 || shape[1] < 6)) continue;
        SCOPED_TRACE(shape.ToString() + " tag " + std::to_string(int(tag)));
        const auto images = [&](double low, double high) {
          const Tensor t = RandomTensor(random, shape, kFloat32, low, high);
          if (strange) {
            t.SliceAxis(1, 1, 2).SliceAxis(0, 1, 2).Fill(kInf);
            t.SliceAxis(1, 2, 3).SliceAxis(0, 0, 1).Fill(-kInf);
            t.SliceAxis(1, 5, 6).Fill(std::nan(""));
          }
          return In(t.AsType(kBFloat16), tag);
        };
        const Tensor x = images(-1, 3), z = images(-1, 1), dy = images(-1, 1);
        const Tensor scale = RandomTensor(random, {shape[1]}),
                     bias = RandomTensor(random, {shape[1]});
        const Tensor mean = RandomTensor(random, {shape[1]});
        const Tensor var = RandomTensor(random, {shape[1]}, kFloat32, 0.5, 2);
        const BatchNormHandle handle(0.3, x);
        for (bool add : {false, true}) {
          const BatchNormCalls run{handle, scale, bias,
                                   add ? Activation(true) : kActivations[random.Int(0, 4)]};
          const auto got = run(x, dy, add ? z : Tensor(), mean.Clone(), var.Clone());
          const auto want = run(wide(x, tag), wide(dy, tag), add ? wide(z, tag) : Tensor(),
                                mean.Clone(), var.Clone());
          for (size_t k = 0; k < std::size(kBatchNormResults); ++k)
            if (!got[k].empty())
              ExpectRounded(got[k], want[k], tag != Tag::kNChw16c || shape.Count(2, 4) % 2 == 1,
                            kBatchNormResults[k]);
        }
      }
    }
  }
}

// Results that are larger than the caches are written past them.
TEST(BlockedLayouts, SlowBatchNormOfMuchBFloat16IsThatOfFloat32Rounded) {
  Random random(96);
  const Shape shape{4, 72, 179, 181};
  const Tensor x = RandomTensor(random, shape).AsType(kBFloat16).AsType(kFloat32);
  const Tensor one = Full({72}, 1), none = Full({72}, 0);
  const BatchNormCalls run{BatchNormHandle(0.1, x), one, none, true};
  for (Tag tag : kTags) {
    SCOPED_TRACE("tag " + std::to_string(int(tag)));
    const Tensor wide = In(x, tag), low = wide.AsType(kBFloat16);
    const auto want = run(wide, wide, wide, none.Clone(), one.Clone());
    const auto got = run(low, low, low, none.Clone(), one.Clone());
    for (size_t k = 0; k < std::size(kBatchNormResults); ++k) {
      if (got[k].empty()) continue;
      const Tensor rounded = want[k].AsType(got[k].data_type());
      ASSERT_TRUE(SameLayout(got[k].layout(), rounded.layout())) << kBatchNormResults[k];
      const size_t bytes = got[k].layout() ? got[k].layout()->bytes() : size_t(got[k].bytes());
      EXPECT_EQ(std::memcmp(got[k].raw_data(), rounded.raw_data(), bytes), 0)
          << kBatchNormResults[k];
    }
  }
}

TEST(BlockedLayouts, BatchNormDoesNotDependOnTheNumberOfThreads) {
  Random random(99);
  for (Tag tag : kTags) {
    for (int64_t channels : {16, 120}) {
      const Shape shape{5, channels, 40, 30};
      const Tensor x = In(RandomTensor(random, shape), tag),
                   z = In(RandomTensor(random, shape), tag);
      const Tensor dy = In(RandomTensor(random, shape), tag);
      const Tensor none = Full({channels}, 0), one = Full({channels}, 1);
      const BatchNormCalls run{BatchNormHandle(0.1, x), one, none, true};
      SameOnThreads({2, 3, 8}, [&] { return ValuesOf(run(x, dy, z, none.Clone(), one.Clone())); });
    }
  }
}

// For data far from zero, an implementation that sums squares would lose the variance.
TEST(BlockedLayouts, BatchNormOfDataFarFromZero) {
  Random random(92);
  for (double deviation : {0.01, 1.7}) {
    const Tensor x =
        RandomTensor(random, {16, 24, 16, 16}, kFloat32, 1000 - deviation, 1000 + deviation);
    const BatchNormHandle handle(0.1, x, 1e-12);
    PreferenceScope reference(Preference::kReference);
    const auto want = BatchNormForwardTraining(handle, x, {}, {}, {}, {});
    PreferenceScope fastest(Preference::kFastest);
    const double mean_error = 0.5 * 1000 * 0x1p-23;  // from rounding the mean to float32
    for (Tag tag : kTags) {
      const auto got = BatchNormForwardTraining(handle, In(x, tag), {}, {}, {}, {});
      const Vector mean = Values(want[1]), var = Values(want[2]);
      ExpectNear(got[1], mean, Vector(mean.size(), mean_error), "mean");
      Vector tolerance(var.size());
      for (size_t c = 0; c < var.size(); ++c) tolerance[c] = 8 * 0x1p-23 * var[c];
      ExpectNear(got[2], var, tolerance, "var");
      ExpectNear(got[0], Values(want[0]),
                 Vector(static_cast<size_t>(x.size()), 2 * mean_error / std::sqrt(var[0])), "y");
    }
  }
}

// 64 rows at a time are summed around the first one. The worst case: all others are far from it.
TEST(BlockedLayouts, BatchNormWhereTheFirstValueIsFarFromTheOthers) {
  Random random(90);
  const Shape shape{4, 16, 16, 16};
  Vector values(static_cast<size_t>(shape.Count()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = (i % 256) % 64 == 0 ? -3e5 : random.Real(-1, 1);
  const Tensor x = FromValues(shape, values);
  const BatchNormHandle handle(0.1, x);
  PreferenceScope reference(Preference::kReference);
  const auto want = BatchNormForwardTraining(handle, x, {}, {}, {}, {});
  PreferenceScope fastest(Preference::kFastest);
  for (Tag tag : kTags) {
    const auto got = BatchNormForwardTraining(handle, In(x, tag), {}, {}, {}, {});
    for (int k : {1, 2}) {
      Vector tolerance = Values(want[k]);
      for (double& v : tolerance) v = 64 * 0x1p-23 * std::abs(v);
      ExpectNear(got[k], Values(want[k]), tolerance, k == 1 ? "mean" : "var");
    }
  }
}

TEST(BlockedLayouts, BatchNormAddsUpTwoGradients) {
  Random random(90);
  // The last one is large enough to be written past the caches.
  for (const Shape& shape : {Shape{3, 20, 7, 5}, Shape{2, 64, 9, 8}, Shape{4, 64, 130, 130}}) {
    const Shape channels{shape[1]};
    const auto values = [&] { return RandomTensor(random, channels, kFloat32, 0.5, 2); };
    for (DType dtype : {kFloat32, kBFloat16}) {
      for (Tag tag : kTags) {
        const bool large = shape.Count() > (1 << 20);
        if (large && (dtype != kFloat32 || tag != Tag::kNChw8c)) continue;
        const LayoutPtr layout = LayoutOf(shape, dtype, tag);
        BatchNormBackwardSpec spec{{.shape = shape, .dtype = dtype, .x_layout = layout}};
        spec.has_y = spec.need_add = true;
        spec.activation = true;
        const auto image = [&] { return In(RandomTensor(random, shape, dtype), tag); };
        const Tensor dy = image(), dy2 = image();
        const std::vector<Tensor> others = {image(), values(), values(), values(), {}, image()};
        const auto run = [&](const Tensor& gradient, const Tensor& second) {
          std::vector<Tensor> in = others;
          in.insert(in.begin(), gradient);
          in.push_back(second);
          std::vector<Tensor> out = {Tensor(DefaultDevice(), layout), Tensor(channels),
                                     Tensor(channels), Tensor(DefaultDevice(), layout)};
          const auto* kernel = FindKernel<BatchNormBackwardSpec>("cpu");
          DefaultDevice()->Exec(spec.op(), kernel->Make(spec).plan(), in, out);
          std::vector<Vector> results;
          for (const Tensor& t : out) results.push_back(Values(t));
          return results;
        };
        const auto want = run(Binary(BinaryOp::kAdd, dy, dy2), Tensor());
        spec.has_dy2 = true;
        const std::string what = shape.ToString() + DTypeName(dtype) + LayoutName(layout);
        EXPECT_TRUE(run(dy, dy2) == want) << what;
      }
    }
  }
}

// Runs outputs in the memory of inputs, as the plan permits.
void CheckBatchNormInPlace(const Shape& shape, DType dtype) {
  Random random(89);
  const Shape channels{shape[1]};
  const auto data = [&] { return RandomTensor(random, shape, dtype); };
  const auto values = [&] { return RandomTensor(random, channels, kFloat32, 0.5, 2); };
  const auto check = [&](const auto& spec, const std::vector<Tensor>& inputs, size_t outputs) {
    const auto* kernel = FindKernel<std::decay_t<decltype(spec)>>("cpu");
    const PlanPtr plan = kernel->Make(spec).plan();
    const auto execute = [&](bool in_place) {
      std::vector<Tensor> in, out;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const LayoutPtr layout = inputs[i].empty() ? nullptr : plan->input_layout(i);
        const Tensor own = inputs[i].empty() ? Tensor() : inputs[i].Clone();
        in.push_back(layout ? own.ToLayout(layout) : own);
      }
      for (size_t i = 0; i < outputs; ++i) {
        const int from = plan->inplace_input(i);
        const LayoutPtr layout = plan->output_layout(i);
        if (in_place && from >= 0) {
          out.push_back(in[static_cast<size_t>(from)]);
        } else if (layout) {
          out.emplace_back(DefaultDevice(), layout);
        } else {
          out.emplace_back(channels);
        }
      }
      in.resize(8);
      out.resize(5);
      DefaultDevice()->Exec(spec.op(), plan, in, out);
      out.resize(outputs);
      std::vector<Vector> results;
      for (const Tensor& t : out) results.push_back(Values(t));
      return results;
    };
    EXPECT_GE(plan->inplace_input(0), 0);
    EXPECT_EQ(execute(true), execute(false)) << plan->Describe();
  };
  for (Tag tag : kTags) {
    const LayoutPtr layout = LayoutOf(shape, dtype, tag);
    for (bool add : {true, false}) {
      for (bool training : {true, false}) {
        const BatchNormFields fields{
            .shape = shape, .dtype = dtype, .training = training, .x_layout = layout};
        BatchNormForwardSpec forward{fields};
        forward.has_add = add;
        forward.activation = true;
        check(forward,
              {data(), values(), values(), training ? Tensor() : values(),
               training ? Tensor() : values(), add ? data() : Tensor()},
              training ? 3 : 1);
        BatchNormBackwardSpec backward{fields};
        backward.has_bias = !add;
        backward.has_y = backward.need_add = add;
        backward.activation = true;
        backward.has_dy2 = add && training;
        check(backward,
              {data(), data(), values(), values(), values(), add ? Tensor() : values(),
               add ? data() : Tensor(), backward.has_dy2 ? data() : Tensor()},
              add ? 4 : 3);
      }
    }
  }
}

// What fills up blocks would not stay zero.
TEST(BlockedLayouts, BatchNormLeavesClipsWithoutZeroToTheReference) {
  const Shape shape{2, 3, 4, 5};
  for (const auto& [low, high] : {std::pair(0.5, 1.0), {-2.0, -1.0}, {-1.0, 1.0}}) {
    BatchNormForwardSpec spec{
        {.shape = shape, .x_layout = LayoutOf(shape, kFloat32, Tag::kNChw8c)}};
    spec.activation = {ActivationKind::kClip, low, high};
    const std::string reason = FindKernel<BatchNormForwardSpec>("cpu")->Make(spec).reason();
    EXPECT_EQ(reason.find("is not zero") != std::string::npos, low > 0 || high < 0) << reason;
  }
}

TEST(BlockedLayouts, BatchNormInPlace) {
  for (DType dtype : {kFloat32, kBFloat16})
    for (int64_t channels : {20, 51, 104}) CheckBatchNormInPlace({3, channels, 7, 5}, dtype);
}

}  // namespace
}  // namespace singa::test

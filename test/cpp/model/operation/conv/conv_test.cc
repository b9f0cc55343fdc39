#include "singa/operation/conv.h"

#include "conv_naive.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/conv/spec.h"
#include "singa/core/device.h"
#include "singa/core/threads.h"
#include "singa/dispatch/plan_cache.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::ExpectError;
using test::ExpectSums;
using test::ForEachProduct;
using test::FromValues;
using test::Numbers;
using test::Random;
using test::RandomTensor;
using test::Sums;
using test::Values;
using Ints = std::vector<int64_t>;

Recorder Conv(const Shape& input, const Ints& kernel, const Ints& stride, const Ints& padding,
              int64_t out, bool bias, const Ints& dilation = {1, 1}, int64_t group = 1) {
  return ConvRecorder("Conv", input, kernel, stride, padding, out, bias, dilation, group);
}

using ConvTest = test::EachPreference;
INSTANTIATE_TEST_SUITE_P(Implementations, ConvTest,
                         testing::Values(Preference::kReference, Preference::kFastest),
                         [](const auto& info) { return std::string(PreferenceName(info.param)); });

struct Expected {
  Sums y, dx, dw, db;
  Expected(const Recorder& g, const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& dy)
      : y(g.output_shape().Count()),
        dx(g.input_shape().Count()),
        dw(g.weight_shape().Count()),
        db(g.out_channels) {
    const std::vector<double> xs = Values(x), ws = Values(w), dys = Values(dy);
    ForEachProduct(g, [&](int64_t xi, int64_t wi, int64_t yi) {
      y.Add(yi, xs[xi] * ws[wi]);
      dx.Add(xi, dys[yi] * ws[wi]);
      dw.Add(wi, dys[yi] * xs[xi]);
    });
    const std::vector<double> bs = b.empty() ? std::vector<double>() : Values(b);
    for (int64_t i = 0; i < g.output_shape().Count(); ++i) {
      const int64_t channel = i / g.col_width % g.out_channels;
      if (!bs.empty()) y.Add(i, bs[channel]);
      db.Add(channel, dys[i]);
    }
  }
};

/// y + add, then ReLU if asked for, which does not increase errors.
Sums Followed(const Sums& y, const Tensor& add, bool relu) {
  Sums result = y;
  const std::vector<double> adds = add.empty() ? std::vector<double>() : Values(add);
  for (size_t i = 0; i < adds.size(); ++i) result.Add(i, adds[i]);
  for (size_t i = 0; relu && i < result.value.size(); ++i)
    result.value[i] = std::max(result.value[i], 0.0);
  return result;
}

/// Compares all passes, each alone and all together, with the definition.
void CheckGeometry(Random& random, const Recorder& g, DType dtype) {
  SCOPED_TRACE(g.ToString() + " " + DTypeName(dtype));
  const Tensor x = AnyTensor(random, g.input_shape(), dtype);
  const Tensor w = AnyTensor(random, g.weight_shape(), dtype);
  const Tensor b = g.bias ? AnyTensor(random, {g.out_channels}, dtype) : Tensor();
  const Tensor dy = AnyTensor(random, g.output_shape(), dtype);
  const Expected expected(g, x, w, b, dy);
  const ConvHandle handle(g);

  const Tensor y = ConvForward(x, w, b, handle);
  ASSERT_EQ(y.data_type(), dtype);
  ExpectSums(y, g.output_shape(), expected.y, "y");
  const Tensor add =
      random.Int(0, 2) ? AnyTensor(random, g.output_shape(), dtype, -3, 3) : Tensor();
  const bool relu = add.empty() || random.Coin();
  ExpectSums(ConvForward(x, w, b, handle, add, relu), g.output_shape(),
             Followed(expected.y, add, relu), "y with add or ReLU");
  ExpectSums(ConvBackwardX(dy, w, handle), g.input_shape(), expected.dx, "dx alone");
  ExpectSums(ConvBackwardX(dy, w, handle, g.input_shape()), g.input_shape(), expected.dx,
             "dx with shape");
  ExpectSums(ConvBackwardW(dy, x, handle), g.weight_shape(), expected.dw, "dW alone");
  ExpectSums(ConvBackwardB(dy, handle), {g.out_channels}, expected.db, "db alone");

  const bool need_x = random.Coin(), need_w = random.Coin(), need_b = g.bias && random.Coin();
  const std::vector<Tensor> some = ConvBackward(dy, x, w, handle, need_x, need_w, need_b);
  ASSERT_EQ(some.size(), 3u);
  ASSERT_EQ(some[0].empty(), !need_x);
  ASSERT_EQ(some[1].empty(), !need_w);
  ASSERT_EQ(some[2].empty(), !need_b);
  if (need_x) ExpectSums(some[0], g.input_shape(), expected.dx, "dx");
  if (need_w) ExpectSums(some[1], g.weight_shape(), expected.dw, "dW");
  if (need_b) ExpectSums(some[2], {g.out_channels}, expected.db, "db");
}

TEST_P(ConvTest, Grid) {
  Random random(1);
  for (const Ints& kernel : {Ints{1, 1}, Ints{3, 3}, Ints{2, 5}})
    for (const Ints& stride : {Ints{1, 1}, Ints{2, 1}})
      for (const Ints& padding : {Ints{0, 0}, Ints{1, 2}, Ints{0, 1, 1, 0}})
        for (const int64_t channels : {1, 3, 16, 18})
          CheckGeometry(random,
                        Conv({2, channels, 7, 6}, kernel, stride, padding,
                             channels == 3 ? 16 : channels, random.Coin()),
                        kFloat32);
}

TEST_P(ConvTest, RandomGeometries) {
  Random random(2);
  int done = 0, grouped = 0, dilated = 0, uneven = 0;
  while (done < 220) {
    int64_t group = 1, channels = random.Int(1, 20), filters = random.Int(1, 20);
    switch (random.Int(0, 4)) {
      case 0:  // depthwise
        group = random.Int(1, 35);
        channels = filters = 1;
        break;
      case 1:  // depthwise with several filters per channel
        group = random.Int(1, 20);
        channels = 1;
        filters = random.Int(1, 3);
        break;
      case 2:
        group = random.Int(2, 4);
        break;
      case 3:  // whole blocks
        channels = 16 * random.Int(1, 2);
        filters = 16 * random.Int(1, 2);
        break;
      default:
        break;
    }
    const Shape input = {random.Int(1, 3), group * channels, random.Int(1, 11), random.Int(1, 11)};
    const Ints kernel = {random.Int(1, 4), random.Int(1, 4)};
    const Ints stride = {random.Int(1, 3), random.Int(1, 3)};
    const Ints dilation = {random.Coin() ? 1 : random.Int(1, 3),
                           random.Coin() ? 1 : random.Int(1, 3)};
    Ints padding;
    for (int i = 0, n = random.Coin() ? 2 : 4; i < n; ++i) padding.push_back(random.Int(0, 3));
    Recorder g;
    try {
      g = Conv(input, kernel, stride, padding, group * filters, random.Coin(), dilation, group);
    } catch (const std::invalid_argument&) {
      continue;  // no window fits
    }
    const DType dtypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
    CheckGeometry(random, g, dtypes[done % 5]);
    if (HasFatalFailure()) return;
    ++done;
    grouped += group > 1;
    dilated += dilation[0] > 1 || dilation[1] > 1;
    uneven += padding.size() == 4;
  }
  EXPECT_GT(grouped, 50);
  EXPECT_GT(dilated, 50);
  EXPECT_GT(uneven, 50);
}

TEST_P(ConvTest, GroupsNarrowerThanAVector) {
  Random random(15);
  const DType dtypes[] = {kFloat32, kBFloat16, kFloat32, kFloat16};
  size_t done = 0;
  for (const auto& [in, out] : {std::pair{4, 4}, {8, 8}, {4, 8}, {8, 4}, {2, 6}, {12, 4}, {3, 3}})
    for (const int64_t groups : {4, 8, 32})
      for (const int64_t stride : {1, 2})
        CheckGeometry(random,
                      Conv({2, in * groups, 6, 7}, {3, 3}, {stride, stride}, {1, 1}, out * groups,
                           random.Coin(), {1, 1}, groups),
                      dtypes[done++ % 4]);
  CheckGeometry(random, Conv({2, 32, 40}, {5}, {1}, {2}, 32, true, {1}, 8), kFloat32);
  CheckGeometry(random,
                Conv({2, 16, 5, 6, 4}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, 16, true, {1, 1, 1}, 4),
                kFloat32);
}

TEST_P(ConvTest, OneDimensional) {
  Random random(3);
  CheckGeometry(random, Conv({2, 5, 1, 700}, {1, 7}, {1, 3}, {0, 3}, 9, true, {1, 2}), kFloat32);
  CheckGeometry(random, Conv({1, 3, 1, 2500}, {1, 4}, {1, 1}, {0, 0, 0, 3}, 2, true), kFloat64);
}

TEST_P(ConvTest, SignalsAndVolumes) {
  Random random(14);
  for (int done = 0; done < 120 && !HasFatalFailure();) {
    const int spatial = random.Coin() ? 1 : 3;
    const int64_t group = random.Int(0, 2) ? 1 : random.Int(2, 4);
    const int64_t block = random.Int(0, 3) ? 1 : 16;
    const int64_t channels = block * random.Int(1, 3), filters = block * random.Int(1, 3);
    Shape input = {random.Int(1, 3), group * channels};
    for (int i = 0; i < spatial; ++i) input.push_back(random.Int(1, spatial == 1 ? 40 : 6));
    Recorder g;
    try {
      g = Conv(input, Numbers(random, spatial, 1, 4), Numbers(random, spatial, 1, 3),
               Numbers(random, random.Coin() ? spatial : 2 * spatial, 0, 2), group * filters,
               random.Coin(), Numbers(random, random.Coin() ? 0 : spatial, 1, 2), group);
    } catch (const std::invalid_argument&) {
      continue;  // no window fits
    }
    const DType dtypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
    CheckGeometry(random, g, dtypes[done++ % 5]);
  }
}

// Contents of memory that the allocator reuses must not matter.
TEST_P(ConvTest, ImagesNarrowerThanTheStride) {
  Random random(12);
  for (const DType dtype : {kFloat32, kBFloat16, kFloat16})
    for (const int64_t width : {1, 2})
      for (const int64_t stride : {2, 3}) {
        {
          std::vector<Tensor> dirt;
          for (int64_t count = 64; count < 1 << 20; count += count / 8)
            dirt.push_back(Full({count}, 3e4, nullptr, dtype));
        }
        CheckGeometry(random, Conv({2, 16, 3, width}, {2, 4}, {2, stride}, {1, 2, 1, 2}, 17, false),
                      dtype);
      }
}

TEST_P(ConvTest, ImagesNarrowerThanThePadding) {
  Random random(13);
  for (const int64_t width : {1, 2})
    for (const int64_t kernel : {5, 7}) {
      {
        std::vector<Tensor> dirt;
        for (int64_t count = 64; count < 1 << 22; count += count / 8)
          dirt.push_back(Full({count}, 3e4, nullptr, kBFloat16));
      }
      const Ints padding = {kernel / 2, kernel / 2};
      CheckGeometry(random,
                    Conv({3, 640, width, width}, {kernel, kernel}, {1, 1}, padding, 32, false),
                    kBFloat16);
    }
}

TEST_P(ConvTest, ManyChannelsAndPixels) {  // several pieces and blocks of the im2col matrix
  Random random(4);
  CheckGeometry(random, Conv({1, 70, 33, 33}, {3, 3}, {1, 1}, {1, 1}, 8, true), kFloat32);
  CheckGeometry(random, Conv({2, 3, 40, 40}, {5, 5}, {1, 1}, {2, 2}, 40, true), kFloat32);
}

TEST_P(ConvTest, OneHandleServesEveryInputSize) {
  Random random(5);
  const ConvHandle handle(RandomTensor(random, {8, 3, 16, 16}), {3, 3}, {1, 1}, {1, 1}, 3, 20);
  const Tensor w = RandomTensor(random, {20, 3, 3, 3});
  for (const Shape& shape : {Shape{8, 3, 16, 16}, Shape{1, 3, 9, 30}, Shape{5, 3, 16, 16}}) {
    const Tensor x = RandomTensor(random, shape);
    const Recorder g = WithInput("test", handle.recorder, shape);
    const Tensor dy = RandomTensor(random, g.output_shape());
    const Expected expected(g, x, w, Tensor(), dy);
    ExpectSums(ConvForward(x, w, Tensor(), handle), g.output_shape(), expected.y, "y");
    ExpectSums(ConvBackwardX(dy, w, handle, shape), shape, expected.dx, "dx");
    ExpectSums(ConvBackwardW(dy, x, handle), g.weight_shape(), expected.dw, "dW");
  }
}

TEST_P(ConvTest, PlansAreReusedWhenBatchSizesAlternate) {
  const ConvHandle handle(Tensor({8, 4, 10, 10}), {3, 3}, {1, 1}, {1, 1}, 4, 8);
  const Tensor w = Full({8, 4, 3, 3}, 0.5), b = Full({8}, 1);
  auto round = [&] {
    for (int64_t batch : {8, 3, 16}) {
      const Tensor x = Full({batch, 4, 10, 10}, 1), dy = Full({batch, 8, 10, 10}, 1);
      ConvForward(x, w, b, handle);
      ConvBackward(dy, x, w, handle, true, true, true);
    }
  };
  round();
  const uint64_t misses = GetPlanCacheStats().misses;
  round();
  round();
  EXPECT_EQ(GetPlanCacheStats().misses, misses);
}

/// The end of a residual block, in the layout that convolutions pass on.
TEST_P(ConvTest, AddAndReluKeepLayouts) {
  Random random(7);
  for (const int64_t channels : {32, 20, 3}) {
    const Recorder g = Conv({2, channels, 9, 8}, {3, 3}, {1, 1}, {1, 1}, channels, true);
    const ConvHandle handle(g);
    const Tensor w = RandomTensor(random, g.weight_shape()), b = RandomTensor(random, {channels});
    const Tensor x = ConvForward(RandomTensor(random, g.input_shape()), w, b, handle, {}, true);
    const std::vector<double> before = Values(x);
    EXPECT_GE(*std::min_element(before.begin(), before.end()), 0);
    Expected expected(g, x, w, b, x);
    const Tensor y = ConvForward(x, w, b, handle, x, true);
    ExpectSums(y, x.shape(), Followed(expected.y, x, true), "y");
    EXPECT_TRUE(SameLayout(y.layout(), x.layout())) << LayoutName(y.layout());
    EXPECT_EQ(Values(x), before);  // eager execution does not reuse its memory
  }
}

/// If a plan allows it, y reuses the memory of `add`, as in a recorded step.
TEST_P(ConvTest, AddsInPlace) {
  Random random(8);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    ConvSpec spec;
    spec.dtype = dtype;
    spec.geometry = Conv({2, 32, 6, 7}, {1, 1}, {1, 1}, {0, 0}, 48, random.Coin());
    spec.has_add = spec.relu = true;
    const Recorder& g = spec.geometry;
    const DevicePtr device = DefaultDevice();
    const PlanPtr plan = FindPlan(*device, spec);
    std::vector<Tensor> inputs(spec.add_input() + 1);
    inputs[0] = RandomTensor(random, g.input_shape(), dtype);
    inputs[1] = RandomTensor(random, g.weight_shape(), dtype);
    if (g.bias) inputs[2] = RandomTensor(random, {48}, dtype);
    inputs.back() = RandomTensor(random, g.output_shape(), dtype);
    const Expected expected(g, inputs[0], inputs[1], g.bias ? inputs[2] : Tensor(), inputs.back());
    const Sums sums = Followed(expected.y, inputs.back(), true);
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = InPlanLayout(*plan, i, inputs[i]);
    const int taken = plan->inplace_input(0);
    EXPECT_TRUE(taken == -1 || taken == static_cast<int>(spec.add_input())) << plan->Describe();
    const Tensor y = taken < 0 ? NewOutput(*plan, 0, g.output_shape(), device, dtype)
                               : inputs[static_cast<size_t>(taken)];
    singa::Run(spec, device, plan, inputs, {{y}});
    ExpectSums(y, g.output_shape(), sums, "y");
  }
}

/// The images of a batch that does not fit into the caches are computed a few at a time.
TEST_P(ConvTest, ReluOfMoreThanCachesHold) {
  Random random(9);
  const Recorder g = Conv({12, 8, 56, 50}, {1, 1}, {1, 1}, {0, 0}, 70, true);
  const ConvHandle handle(g);
  for (const DType dtype : {kFloat32, kBFloat16}) {
    std::vector<double> values = Values(RandomTensor(random, g.input_shape(), dtype));
    values[7 * values.size() / 12] = std::numeric_limits<double>::quiet_NaN();  // in one pixel
    const Tensor x = FromValues(g.input_shape(), values, dtype);
    const Tensor w = RandomTensor(random, g.weight_shape(), dtype);
    const Tensor b = RandomTensor(random, {70}, dtype);
    const Tensor z = RandomTensor(random, g.output_shape(), dtype);
    for (const Tensor& add : {Tensor(), z}) {
      const std::vector<double> got = Values(ConvForward(x, w, b, handle, add, true));
      const std::vector<double> sums = Values(ConvForward(x, w, b, handle, add));
      int64_t nans = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        nans += std::isnan(got[i]);
        if (std::isnan(sums[i]))
          ASSERT_TRUE(std::isnan(got[i])) << i;
        else
          ASSERT_NEAR(got[i], std::max(sums[i], 0.0), 0x1p-7 * std::abs(sums[i]) + 0x1p-20) << i;
      }
      EXPECT_EQ(nans, 70);
    }
  }
}

TEST_P(ConvTest, EmptyBatch) {
  const ConvHandle handle(Tensor({2, 3, 8, 8}), {3, 3}, {1, 1}, {0, 0}, 3, 5);
  const Tensor x({0, 3, 8, 8}), w = Full({5, 3, 3, 3}, 1), b = Full({5}, 1), dy({0, 5, 6, 6});
  EXPECT_EQ(ConvForward(x, w, b, handle).shape(), Shape({0, 5, 6, 6}));
  EXPECT_EQ(ConvForward(x, w, b, handle, dy, true).shape(), Shape({0, 5, 6, 6}));
  const std::vector<Tensor> gradients = ConvBackward(dy, x, w, handle, true, true, true);
  EXPECT_EQ(gradients[0].shape(), Shape({0, 3, 8, 8}));
  EXPECT_EQ(Values(gradients[1]), std::vector<double>(5 * 27, 0.0));
  EXPECT_EQ(Values(gradients[2]), std::vector<double>(5, 0.0));
  EXPECT_EQ(ConvBackwardX(dy, w, handle).shape(), Shape({0, 3, 8, 8}));
  EXPECT_EQ(Values(ConvBackwardB(dy, handle)), std::vector<double>(5, 0.0));
}

TEST(ConvReferenceTest, SameBitsForAnyNumberOfThreads) {
  Random random(6);
  const Recorder g = Conv({3, 24, 20, 20}, {3, 3}, {1, 1}, {1, 1}, 48, true, {1, 1}, 2);
  const ConvHandle handle(g, size_t{1} << 30, "reference");
  const Tensor x = RandomTensor(random, g.input_shape()),
               w = RandomTensor(random, g.weight_shape());
  const Tensor b = RandomTensor(random, {48}), dy = RandomTensor(random, g.output_shape());
  const int before = NumThreads();
  std::vector<std::vector<double>> first;
  for (int threads : {1, 2, 3, 7}) {
    SetNumThreads(threads);
    std::vector<std::vector<double>> results{Values(ConvForward(x, w, b, handle))};
    for (const Tensor& t : ConvBackward(dy, x, w, handle, true, true, true))
      results.push_back(Values(t));
    if (first.empty()) first = results;
    EXPECT_EQ(results, first) << threads << " threads";
  }
  SetNumThreads(before);
}

TEST_P(ConvTest, PreferenceOfTheHandle) {
  const Tensor x({1, 2, 5, 5});
  EXPECT_EQ(
      ConvHandle(x, {3, 3}, {1, 1}, {0, 0}, 2, 4, true, 1, {1, 1}, 1 << 20, "reference").preference,
      Preference::kReference);
  EXPECT_EQ(ConvHandle(x, {3, 3}, {1, 1}, {0, 0}, 2, 4).preference, GetParam());
  ExpectError<std::invalid_argument>(
      [&] {
        ConvHandle(x, {3, 3}, {1, 1}, {0, 0}, 2, 4, true, 1, {1, 1}, 1 << 20, "best");
      },
      "'best'");
}

TEST_P(ConvTest, WrongCalls) {
  const Tensor x({2, 4, 8, 8}), w({6, 4, 3, 3}), b({6}), dy({2, 6, 8, 8});
  const ConvHandle handle(x, {3, 3}, {1, 1}, {1, 1}, 4, 6);
  using E = std::invalid_argument;
  ExpectError<E>([&] { ConvForward(Tensor(), w, b, handle); }, "[ConvForward] x is an empty");
  ExpectError<E>([&] { ConvForward(x, Tensor(), b, handle); }, "W is an empty");
  ExpectError<E>([&] { ConvForward(Tensor({2, 5, 8, 8}), w, b, handle); }, "(2, 5, 8, 8)");
  ExpectError<E>([&] { ConvForward(Tensor({2, 4, 8}), w, b, handle); }, "(2, 4, 8)");
  ExpectError<E>([&] { ConvForward(Tensor({2, 4, 0, 8}), w, b, handle); }, "(2, 4, 0, 8)");
  ExpectError<E>(
      [&] {
        ConvForward(x, Tensor({6, 3, 3, 3}), b, handle);
      },
      "W must have shape (6, 4, 3, 3), got (6, 3, 3, 3)");
  ExpectError<E>([&] { ConvForward(x, w, Tensor({5}), handle); }, "b must have shape (6,)");
  ExpectError<TypeError>([&] { ConvForward(x.AsType(kInt32), w, b, handle); }, "x must be of a");
  ExpectError<TypeError>([&] { ConvForward(x, w.AsType(kFloat64), b, handle); }, "W must have");
  ExpectError<TypeError>([&] { ConvForward(x, w, b.AsType(kFloat16), handle); }, "b must have");
  const DevicePtr other = CreateCpuDevice();
  ExpectError<E>([&] { ConvForward(x, w.ToDevice(other), b, handle); }, "[ConvForward] W is on ");
  ExpectError<E>([&] { ConvForward(x, w, b, handle, x); },
                 "[ConvForward] add must have shape (2, 6, 8, 8), got (2, 4, 8, 8)");
  ExpectError<E>([&] { ConvForward(x, w, b, handle, Tensor({1, 6, 1, 1})); }, "add must have");
  ExpectError<TypeError>([&] { ConvForward(x, w, b, handle, dy.AsType(kFloat64)); },
                         "add must have the type of x, float32, got");
  ExpectError<E>([&] { ConvForward(x, w, b, handle, dy.ToDevice(other)); }, "add is on ");
  ExpectError<E>(
      [&] {
        ConvBackwardX(Tensor({2, 6, 7, 8}), w, handle);
      },
      "[ConvBackwardX] dy must have shape (2, 6, 8, 8), got (2, 6, 7, 8)");
  ExpectError<E>([&] { ConvBackwardX(dy, w, handle, {2, 4, 20, 20}); }, "dy must have shape");
  ExpectError<E>([&] { ConvBackwardX(Tensor({2, 6}), w, handle); }, "dy must have shape");
  ExpectError<E>([&] { ConvBackwardW(dy, Tensor({3, 4, 8, 8}), handle); }, "dy must have shape");
  ExpectError<E>([&] { ConvBackwardB(Tensor({2, 5, 8, 8}), handle); }, "dy must be (N, 6, H, W)");
  ExpectError<E>([&] { ConvBackward(dy, x, Tensor(), handle, true, false, false); }, "W is an");
  EXPECT_NO_THROW(ConvBackward(dy, x, Tensor(), handle, false, true, true));
}

}  // namespace
}  // namespace singa

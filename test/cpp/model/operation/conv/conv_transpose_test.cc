#include <memory>

#include "conv_naive.h"
#include "singa/core/device.h"
#include "singa/dispatch/plan_cache.h"
#include "singa/operation/conv.h"
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
using test::Sums;
using test::Values;
using Ints = std::vector<int64_t>;

using ConvTransposeTest = test::EachPreference;
INSTANTIATE_TEST_SUITE_P(Implementations, ConvTransposeTest,
                         testing::Values(Preference::kReference, Preference::kFastest),
                         [](const auto& info) { return PreferenceName(info.param); });

/// Checks y = Σ x · W over the products of the convolution from y to x.
void CheckHandle(Random& random, const ConvTransposeHandle& handle, const Shape& x_shape,
                 bool has_b, DType dtype) {
  const Recorder& g = handle.recorder;
  SCOPED_TRACE(g.ToString() + " " + DTypeName(dtype));
  const Tensor x = AnyTensor(random, x_shape, dtype);
  const Tensor w = AnyTensor(random, g.weight_shape(), dtype);
  const Tensor b = has_b ? AnyTensor(random, {g.in_channels}, dtype) : Tensor();
  const Tensor dy = AnyTensor(random, g.input_shape(), dtype);
  const std::vector<double> xs = Values(x), ws = Values(w), dys = Values(dy);
  Sums y(dy.size()), dx(x.size()), dw(w.size()), db(g.in_channels);
  ForEachProduct(g, [&](int64_t yi, int64_t wi, int64_t xi) {
    y.Add(yi, xs[xi] * ws[wi]);
    dx.Add(xi, dys[yi] * ws[wi]);
    dw.Add(wi, dys[yi] * xs[xi]);
  });
  const std::vector<double> bs = has_b ? Values(b) : std::vector<double>();
  for (int64_t i = 0; i < dy.size(); ++i) {
    const int64_t channel = i / g.pixels() % g.in_channels;
    if (has_b) y.Add(i, bs[channel]);
    db.Add(channel, dys[i]);
  }
  ExpectSums(ConvTransposeForward(x, w, b, handle), g.input_shape(), y, "y");
  const bool need_x = random.Coin(), need_w = random.Coin(), need_b = random.Coin();
  const std::vector<Tensor> gradients =
      ConvTransposeBackward(dy, x, w, handle, need_x, need_w, need_b);
  ASSERT_EQ(gradients.size(), 3u);
  ASSERT_EQ(gradients[0].empty(), !need_x);
  ASSERT_EQ(gradients[1].empty(), !need_w);
  ASSERT_EQ(gradients[2].empty(), !need_b);
  if (need_x) ExpectSums(gradients[0], x_shape, dx, "dx");
  if (need_w) ExpectSums(gradients[1], g.weight_shape(), dw, "dW");
  if (need_b) ExpectSums(gradients[2], {g.in_channels}, db, "db");
}

TEST_P(ConvTransposeTest, ByHand) {
  // Each pixel adds a copy of the kernel; two copies overlap by one column.
  const Tensor x = FromValues({1, 1, 1, 2}, {1, 10}), w = FromValues({1, 1, 1, 3}, {1, 2, 3});
  const ConvTransposeHandle handle(x, {1, 3}, {1, 2}, {0, 0}, {0, 1}, 1, 1);
  EXPECT_EQ(Values(ConvTransposeForward(x, w, FromValues({1}, {100}), handle)),
            (std::vector<double>{101, 102, 113, 120, 130, 100}));
}

TEST_P(ConvTransposeTest, RandomGeometries) {
  Random random(1);
  int done = 0, grouped = 0, extended = 0;
  while (done < 210) {
    const int64_t group = random.Coin() ? 1 : random.Int(2, 5);
    int64_t in = random.Int(1, 18), out = random.Int(1, 18);
    if (random.Int(0, 3) == 0) in = out = 1;
    if (random.Int(0, 3) == 0) in = out = 16;
    const Shape x_shape = {random.Int(1, 3), group * in, random.Int(1, 8), random.Int(1, 8)};
    const Ints kernel = {random.Int(1, 4), random.Int(1, 4)};
    const Ints stride = {random.Int(1, 3), random.Int(1, 3)};
    const Ints dilation = {random.Int(1, 2), random.Int(1, 2)};
    const Ints extra = {random.Int(0, stride[0] - 1), random.Int(0, stride[1] - 1)};
    Ints padding;
    for (int i = 0, n = random.Coin() ? 2 : 4; i < n; ++i) padding.push_back(random.Int(0, 2));
    std::unique_ptr<ConvTransposeHandle> handle;
    try {
      handle =
          std::make_unique<ConvTransposeHandle>(Tensor(x_shape), kernel, stride, padding, extra,
                                                group * in, group * out, true, group, dilation);
    } catch (const std::invalid_argument&) {
      continue;  // the padding leaves nothing
    }
    const DType dtypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
    CheckHandle(random, *handle, x_shape, random.Coin(), dtypes[done % 5]);
    if (HasFatalFailure()) return;
    ++done;
    grouped += group > 1;
    extended += extra[0] + extra[1] > 0;
  }
  EXPECT_GT(grouped, 50);
  EXPECT_GT(extended, 50);
}

/// Strides that are the kernel: patches do not overlap.
TEST_P(ConvTransposeTest, Patches) {
  Random random(5);
  const DType dtypes[] = {kFloat32, kBFloat16, kFloat32, kFloat16};
  size_t done = 0;
  for (const Ints& kernel : {Ints{2, 2}, Ints{3, 2}, Ints{1, 4}})
    for (const auto& [in, out] : {std::pair{32, 16}, {16, 64}, {20, 48}, {24, 20}, {3, 8}, {1, 1}})
      for (int i = 0; i < 4 && !HasFatalFailure(); ++i) {
        const Shape x_shape = {random.Int(1, 3), in, random.Int(1, 9), random.Int(1, 9)};
        const bool bias = random.Coin();
        const ConvTransposeHandle handle(Tensor(x_shape), kernel, kernel, {0, 0}, {0, 0}, in, out,
                                         bias);
        CheckHandle(random, handle, x_shape, bias, dtypes[done++ % 4]);
      }
  const Shape signal = {2, 32, 11};
  CheckHandle(random, ConvTransposeHandle(Tensor(signal), {2}, {2}, {0}, {0}, 32, 16, true), signal,
              true, kFloat32);
}

TEST_P(ConvTransposeTest, SignalsAndVolumes) {
  Random random(3);
  for (int done = 0; done < 100 && !HasFatalFailure();) {
    const int spatial = random.Coin() ? 1 : 3;
    const int64_t group = random.Coin() ? 1 : random.Int(2, 3);
    const int64_t block = random.Int(0, 3) ? 1 : 16;
    const int64_t in = block * random.Int(1, 3), out = block * random.Int(1, 3);
    Shape x_shape = {random.Int(1, 3), group * in};
    for (int i = 0; i < spatial; ++i) x_shape.push_back(random.Int(1, spatial == 1 ? 20 : 4));
    const Ints stride = Numbers(random, spatial, 1, 3);
    Ints extra;
    for (const int64_t step : stride) extra.push_back(random.Int(0, step - 1));
    std::unique_ptr<ConvTransposeHandle> handle;
    try {
      handle = std::make_unique<ConvTransposeHandle>(
          Tensor(x_shape), Numbers(random, spatial, 1, 4), stride,
          Numbers(random, random.Coin() ? spatial : 2 * spatial, 0, 2), extra, group * in,
          group * out, true, group, Numbers(random, random.Coin() ? 0 : spatial, 1, 2));
    } catch (const std::invalid_argument&) {
      continue;  // the padding leaves nothing
    }
    const DType dtypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
    CheckHandle(random, *handle, x_shape, random.Coin(), dtypes[done++ % 5]);
  }
}

TEST_P(ConvTransposeTest, OneHandleServesEveryInputSizeAndNone) {
  Random random(2);
  const ConvTransposeHandle handle(Tensor({4, 5, 6, 6}), {3, 3}, {2, 2}, {1, 1}, {1, 1}, 5, 7);
  EXPECT_EQ(handle.recorder.input_shape(), Shape({4, 7, 12, 12}));
  const Tensor w = AnyTensor(random, {5, 7, 3, 3});
  const Tensor y = ConvTransposeForward(AnyTensor(random, {1, 5, 3, 9}), w, Tensor(), handle);
  EXPECT_EQ(y.shape(), Shape({1, 7, 6, 18}));
  const Tensor none({0, 5, 6, 6}), dy({0, 7, 12, 12});
  EXPECT_EQ(ConvTransposeForward(none, w, Tensor(), handle).shape(), Shape({0, 7, 12, 12}));
  const std::vector<Tensor> gradients =
      ConvTransposeBackward(dy, none, w, handle, true, true, true);
  EXPECT_EQ(gradients[0].shape(), none.shape());
  EXPECT_EQ(Values(gradients[1]), std::vector<double>(5 * 7 * 9, 0.0));
  EXPECT_EQ(Values(gradients[2]), std::vector<double>(7, 0.0));
}

TEST_P(ConvTransposeTest, WrongCalls) {
  using E = std::invalid_argument;
  const Tensor x({2, 4, 5, 5}), w({4, 3, 3, 3}), dy({2, 6, 5, 5});
  auto make = [&](const Ints& kernel, const Ints& stride, const Ints& padding, const Ints& extra,
                  int64_t in = 4, int64_t out = 6, int64_t group = 2, Ints dilation = {1, 1}) {
    return ConvTransposeHandle(x, kernel, stride, padding, extra, in, out, true, group, dilation);
  };
  ExpectError<E>([&] { make({3, 3}, {1, 1}, {1, 1}, {1, 0}); }, "smaller than the stride (1, 1)");
  ExpectError<E>([&] { make({3, 3}, {1, 1}, {1, 1}, {-1, 0}); }, "output_padding (-1, 0)");
  ExpectError<E>([&] { make({3, 3}, {1, 1}, {1, 1}, {0}); }, "output_padding must be (h, w)");
  ExpectError<E>([&] { make({3}, {1, 1}, {1, 1}, {0, 0}); }, "kernel and dilation must be");
  ExpectError<E>([&] { make({0, 3}, {1, 1}, {1, 1}, {0, 0}); }, "kernel 0");
  ExpectError<E>([&] { make({3, 3}, {0, 1}, {1, 1}, {0, 0}); }, "stride must be between 1");
  ExpectError<E>([&] { make({3, 3}, {1, 1}, {4, 1}, {0, 0}); }, "padding 8 leaves nothing");
  ExpectError<E>([&] { make({3, 3}, {1, 1}, {1, 1}, {0, 0}, 5); }, "4 channels; expected 5");
  ExpectError<E>([&] { make({3, 3}, {1, 1}, {1, 1}, {0, 0}, 4, 6, 4); }, "group 4");
  ExpectError<E>([&] { make({3, 3}, {1, 1}, {1, 1}, {0, 0}, 4, 0, 1); }, "out_channels must be");
  ExpectError<E>(
      [&] {
        make({1 << 30, 3}, {1, 1}, {1, 1}, {0, 0}, 4, 6, 2, {4, 1});
      },
      "is out of range");
  const ConvTransposeHandle handle = make({3, 3}, {1, 1}, {1, 1}, {0, 0});
  ExpectError<E>([&] { ConvTransposeForward(Tensor(), w, Tensor(), handle); }, "x is an empty");
  ExpectError<E>([&] { ConvTransposeForward(dy, w, Tensor(), handle); }, "6 channels; expected 4");
  ExpectError<E>([&] { ConvTransposeForward(x, dy, Tensor(), handle); },
                 "[ConvTransposeForward] W must have shape (4, 3, 3, 3), got (2, 6, 5, 5)");
  ExpectError<E>([&] { ConvTransposeForward(x, w, Tensor({4}), handle); }, "shape (6,)");
  ExpectError<TypeError>([&] { ConvTransposeForward(x, w.AsType(kFloat64), Tensor(), handle); },
                         "W must have the type of x");
  ExpectError<E>([&] { ConvTransposeBackward(x, x, w, handle, true, true, true); },
                 "[ConvTransposeBackward] dy must have shape (2, 6, 5, 5)");
}

}  // namespace
}  // namespace singa

// Pooling on blocked layouts: the results are those on plain tensors, they stay in the layout, no
// reorder happens, and what fills up blocks stays zero.

#include "backend/cpu/lane_layouts.h"
#include "model/operation/pooling/spec.h"
#include "singa/operation/lrn.h"
#include "singa/operation/pooling.h"
#include "support.h"

namespace singa::test {
namespace {

struct Pool {
  std::vector<int64_t> kernel, stride, padding, dilation;
  int mode;
  bool ceil_mode;
};

Pool RandomPool(Random& random, const Shape& shape) {
  for (;;) {
    Pool p;
    p.kernel = {random.Int(1, 4), random.Int(1, 4)};
    p.stride = {random.Int(1, 3), random.Int(1, 3)};
    p.dilation = random.Int(0, 4) ? std::vector<int64_t>{1, 1}
                                  : std::vector<int64_t>{random.Int(1, 2), random.Int(1, 2)};
    const int64_t h = p.dilation[0] * (p.kernel[0] - 1), w = p.dilation[1] * (p.kernel[1] - 1);
    p.padding = {random.Int(0, h), random.Int(0, w), random.Int(0, h), random.Int(0, w)};
    p.mode = static_cast<int>(random.Int(0, 2));
    p.ceil_mode = random.Coin();
    if (shape[2] + p.padding[0] + p.padding[2] > h && shape[3] + p.padding[1] + p.padding[3] > w)
      return p;
  }
}

TEST(BlockedLayouts, Pooling) {
  Random random(93);
  int averages = 0;
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Int(0, 3) == 0 ? kBFloat16 : kFloat32;
    const Shape shape{random.Int(1, 4), random.Int(2, 50), random.Int(2, 12), random.Int(1, 12)};
    const Pool p = RandomPool(random, shape);
    SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)) +
                 " mode " + std::to_string(p.mode));
    const Tensor x = RandomTensor(random, shape, dtype);
    const PoolingHandle handle(x, p.kernel, p.stride, p.padding, p.mode == 0, p.ceil_mode,
                               p.mode == 2, p.dilation);
    const Tensor dy = RandomTensor(random, handle.recorder.output_shape(), dtype);
    const Tensor xb = In(x, tag), dyb = In(dy, tag);
    const auto run = [&](const Tensor& x, const Tensor& dy) {
      const auto out = PoolingForward(handle, x);
      return std::vector<Tensor>{out[0], out[1], PoolingBackward(handle, dy, x, out[0], out[1]),
                                 PoolingBackward(handle, dy, x, {}, {})};
    };
    PreferenceScope reference(Preference::kReference);
    const auto want = run(x, dy);
    PreferenceScope fastest(Preference::kFastest);
    const uint64_t reorders = Reorders();
    const auto got = run(xb, dyb);
    const bool willing =
        Refusal(PoolingForwardSpec{{handle.recorder, handle.mode, dtype, xb.layout()}, false})
            .empty() &&
        Refusal(PoolingBackwardSpec{
                    {handle.recorder, handle.mode, dtype, xb.layout()}, true, dyb.layout()})
            .empty();
    const double exact = p.mode == 0 ? 0 : 32 * 0x1p-23;
    const char* names[] = {"y", "saved", "dx", "dx, nothing saved"};
    EXPECT_TRUE(!willing || Reorders() == reorders);
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_EQ(got[k].empty(), want[k].empty()) << names[k];
      if (got[k].empty()) continue;
      ExpectSame(got[k], want[k], k < 2 ? exact : 32 * 0x1p-23, names[k]);
      if (willing) ExpectIn(got[k], tag, names[k]);
    }
    EXPECT_TRUE(willing || p.mode != 0) << "a maximum was refused";
    averages += willing && p.mode != 0;
  }
  EXPECT_TRUE(averages > 30 || !HasAvx512()) << averages;
}

/// Windows of signals and volumes, or adaptive ones.
Recorder RandomWindows(Random& random, const Shape& shape, bool adaptive, bool ceil_mode) {
  const auto spatial = static_cast<size_t>(shape.rank() - 2);
  for (;;) {
    std::vector<int64_t> kernel, stride, dilation, padding, output;
    for (size_t i = 0; i < spatial; ++i) {
      kernel.push_back(random.Int(1, 3));
      stride.push_back(random.Int(1, 3));
      dilation.push_back(random.Int(0, 3) ? 1 : 2);
      padding.push_back(random.Int(0, dilation[i] * (kernel[i] - 1)));
      output.push_back(random.Int(1, 6));
    }
    if (adaptive) return AdaptivePoolRecorder("test", shape, output);
    try {
      return PoolRecorder("test", shape, kernel, stride, padding, dilation, ceil_mode);
    } catch (const std::invalid_argument&) {
      continue;  // no window fits
    }
  }
}

TEST(BlockedLayouts, PoolingOfSignalsAndVolumesAndByAdaptiveWindows) {
  Random random(96);
  int taken = 0;
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Int(0, 3) == 0 ? kBFloat16 : kFloat32;
    const bool adaptive = random.Coin();
    const int spatial = adaptive ? static_cast<int>(random.Int(1, 3)) : random.Coin() ? 1 : 3;
    Shape shape{random.Int(1, 3), random.Int(2, 40)};
    for (int axis = 0; axis < spatial; ++axis)
      shape.push_back(random.Int(2, spatial == 3 ? 6 : 12));
    const auto mode = static_cast<PoolMode>(random.Int(0, 2));
    const Recorder g = RandomWindows(random, shape, adaptive, random.Coin());
    SCOPED_TRACE(g.ToString() + " " + DTypeName(dtype) + " tag " + std::to_string(int(tag)) +
                 " mode " + std::to_string(int(mode)));
    PoolingHandle handle(Tensor({1, 1, 1}), {1}, {1}, {0});
    handle.mode = mode;
    const Tensor x = RandomTensor(random, shape, dtype);
    const Tensor dy = RandomTensor(random, g.output_shape(), dtype);
    const auto run = [&](const Tensor& x, const Tensor& dy, Preference preference) {
      PreferenceScope scope(preference);
      handle.recorder = g;
      const bool max = mode == PoolMode::kMax;
      if (adaptive) {
        const auto out = AdaptivePoolForward(x, g.Along(&Recorder::Axis::windows), max);
        return std::vector<Tensor>{out[0], AdaptivePoolBackward(dy, shape, max, x, out[1])};
      }
      const auto out = PoolingForward(handle, x);
      return std::vector<Tensor>{out[0], PoolingBackward(handle, dy, x, out[0], out[1])};
    };
    const auto want = run(x, dy, Preference::kReference);
    const Tensor xb = In(x, tag), dyb = In(dy, tag);
    const uint64_t reorders = Reorders();
    const auto got = run(xb, dyb, Preference::kFastest);
    const bool blocked = xb.is_blocked();  // not where that is row-major
    EXPECT_TRUE(!blocked || Reorders() == reorders);
    const double exact = mode == PoolMode::kMax ? 0 : 64 * 0x1p-23;
    ExpectSame(got[0], want[0], exact, "y");
    ExpectSame(got[1], want[1], 64 * 0x1p-23, "dx");
    if (blocked) ExpectIn(got[0], tag, "y"), ExpectIn(got[1], tag, "dx");
    taken += blocked;
  }
  EXPECT_GT(taken, 100);
}

TEST(BlockedLayouts, MaximumOfNanAndInfinity) {
  for (Tag tag : kTags) {
    Vector values(2 * 20 * 16, -kInf);
    for (size_t i = 5; i < values.size(); i += 16) values[i] = std::nan("");
    const Tensor x = In(FromValues({2, 20, 4, 4}, values), tag);
    const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
    const auto out = PoolingForward(handle, x);
    EXPECT_TRUE(out[0].is_blocked());
    const Vector y = Values(out[0]), saved = Values(out[1]);
    for (size_t o = 0; o < y.size(); ++o) {
      // Position 5 is in the first of four windows; the others find their first element.
      EXPECT_TRUE(o % 4 == 0 ? std::isnan(y[o]) : y[o] == -kInf) << y[o] << " at " << o;
      EXPECT_EQ(saved[o], Vector({5, 2, 8, 10})[o % 4]) << o;
    }
  }
}

// What forward saved is read even when a tensor has become plain in between.
TEST(BlockedLayouts, SavedOutlivesALayout) {
  Random random(94);
  const Tensor x = RandomTensor(random, {2, 32, 8, 8}), dy = RandomTensor(random, {2, 32, 4, 4});
  const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
  const auto plain = PoolingForward(handle, x);
  const Vector want = Values(PoolingBackward(handle, dy, x, plain[0], plain[1]));
  const Tensor xb = In(x, Tag::kNChw16c);
  const auto out = PoolingForward(handle, xb);
  ASSERT_TRUE(out[1].is_blocked());
  EXPECT_EQ(Values(PoolingBackward(handle, dy, xb, out[0], out[1].Plain())), want);
  EXPECT_EQ(Values(PoolingBackward(handle, dy, xb.Plain(), out[0], out[1])), want);

  const Tensor g = RandomTensor(random, {2, 32, 8, 8});
  const auto lrn = LrnForward(x, 5, 1);
  const Tensor want_lrn = LrnBackward(g, x, lrn[0], lrn[1], 5, 1, 0.75, 1);
  const auto lrn_b = LrnForward(xb, 5, 1);
  for (const Tensor& at : {xb, xb.Plain()})
    for (const Tensor& saved : {lrn_b[1], lrn_b[1].Plain()})
      ExpectSame(LrnBackward(g, at, lrn_b[0], saved, 5, 1, 0.75, 1), want_lrn, 64 * 0x1p-23, "dx");
}

// Overlapping windows of a gradient of which every sum is exact in float32, and few in bfloat16: it
// is rounded once. NaN and infinity reach the pixels that their windows read, and no other.
TEST(BlockedLayouts, AverageGradientsOfBFloat16AreRoundedOnce) {
  Random random(99);
  for (Tag tag : kTags) {
    for (int64_t channels : {3, 16, 21, 40}) {
      for (bool strange : {false, true}) {
        SCOPED_TRACE("tag " + std::to_string(int(tag)) + " channels " + std::to_string(channels));
        const Shape shape{2, channels, 9, 11};
        const PoolingHandle handle(
            Tensor(shape), {4, 4}, {1, 2}, {3, 3, 2, 2}, false, false, true,
            random.Coin() ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{2, 1});
        const Shape output = handle.recorder.output_shape();
        Vector values(static_cast<size_t>(output.Count()));
        for (double& v : values) v = static_cast<double>(random.Int(-255, 255));
        if (strange) values[17] = std::nan(""), values[40] = kInf, values[61] = -kInf;
        const Tensor dy = FromValues(output, values, kBFloat16);
        PreferenceScope reference(Preference::kReference);
        const Tensor wide = PoolingBackward(handle, dy.AsType(kFloat32), Tensor(shape), {}, {});
        const Vector want = Values(wide.AsType(kBFloat16));
        PreferenceScope fastest(Preference::kFastest);
        const Tensor dyb = In(dy, tag);
        const uint64_t reorders = Reorders();
        const Tensor dx = PoolingBackward(handle, dyb, {}, {}, {});
        EXPECT_EQ(Reorders(), reorders);
        ExpectIn(dx, tag, "dx");
        const Vector got = Values(dx);
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
              << "dx[" << i << "] is " << got[i] << ", expected " << want[i];
      }
    }
  }
}

TEST(BlockedLayouts, MaxPoolingOfNaNAndInfinity) {
  Random random(94);
  const double strange[] = {std::nan(""), kInf, -kInf, 0, -0.0, 1};
  for (Tag tag : kTags) {
    for (DType dtype : {kFloat32, kBFloat16}) {
      for (int64_t channels : {3, 16, 33}) {
        const Shape shape{2, channels, 8, 6};
        SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)));
        const auto image = [&](const Shape& shape) {
          Vector values(static_cast<size_t>(shape.Count()));
          for (double& v : values) v = strange[random.Int(0, 5)];
          return FromValues(shape, values, dtype);
        };
        const Tensor x = image(shape);
        const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});  // no gradient is a sum
        const Tensor dy = image(handle.recorder.output_shape());
        const auto run = [&](const Tensor& x, const Tensor& dy, Preference preference) {
          PreferenceScope scope(preference);
          const auto out = PoolingForward(handle, x);
          return std::vector<Tensor>{out[0], PoolingBackward(handle, dy, x, out[0], out[1])};
        };
        const auto want = run(x, dy, Preference::kReference);
        const auto got = run(In(x, tag), In(dy, tag), Preference::kFastest);
        ExpectEqual(got[0], want[0], "y");
        ExpectEqual(got[1], want[1], "dx");
      }
    }
  }
}

// Windows of any size and distance, with values that compare in their own way. Gradients are small
// integers, so that their sums are exact.
TEST(BlockedLayouts, MaximaOfStrangeValuesInAnyWindows) {
  Random random(97);
  const double strange[] = {std::nan(""), kInf, -kInf, -kInf, 0, -0.0, 1, -1};
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Coin() ? kBFloat16 : kFloat32;
    const Shape shape{random.Int(1, 2), random.Int(2, 37), random.Int(2, 9), random.Int(1, 21)};
    const Pool p = RandomPool(random, shape);
    SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)));
    const PoolingHandle handle(Tensor(shape, nullptr, dtype), p.kernel, p.stride, p.padding, true,
                               p.ceil_mode, false, p.dilation);
    const Shape output = handle.recorder.output_shape();
    Vector values(static_cast<size_t>(shape.Count())), gradients(output.Count());
    const int64_t kinds = random.Int(0, 7);  // of values; 0: NaN alone
    for (double& v : values) v = strange[random.Int(0, kinds)];
    for (double& v : gradients) v = static_cast<double>(random.Int(-4, 4));
    const Tensor x = test::FromValues(shape, values, dtype);
    const Tensor dy = test::FromValues(output, gradients, dtype);
    const auto run = [&](const Tensor& x, const Tensor& dy, Preference preference) {
      PreferenceScope scope(preference);
      const auto out = PoolingForward(handle, x);
      return std::vector<Tensor>{out[0], out[1], PoolingForward(handle, x, false)[0],
                                 PoolingBackward(handle, dy, x, out[0], out[1]),
                                 PoolingBackward(handle, dy, x, {}, {})};
    };
    const auto want = run(x, dy, Preference::kReference);
    const auto got = run(In(x, tag), In(dy, tag), Preference::kFastest);
    const char* names[] = {"y", "saved", "y of inference", "dx", "dx, nothing saved"};
    for (size_t k = 0; k < want.size(); ++k) {
      ExpectEqual(got[k], want[k], names[k]);
      ExpectIn(got[k], tag, names[k]);
    }
  }
}

// Results that are written past the caches.
TEST(BlockedLayouts, MaximaOfLargeImages) {
  const Tensor x({1, 96, 256, 254}), dy({1, 96, 255, 253});
  for (const Tensor* t : {&x, &dy}) {
    uint32_t bits = 1;
    for (int64_t i = 0; i < t->size(); ++i)
      static_cast<float*>(t->raw_data())[i] =
          static_cast<float>((bits = bits * 1664525 + 1013904223) >> 24);
  }
  const PoolingHandle handle(x, {2, 2}, {1, 1}, {0, 0});
  const auto run = [&](const Tensor& x, const Tensor& dy, Preference preference) {
    PreferenceScope scope(preference);
    const auto out = PoolingForward(handle, x);
    return std::vector<Tensor>{out[0], out[1], PoolingBackward(handle, dy, x, out[0], out[1])};
  };
  const auto want = run(x, dy, Preference::kReference);
  for (Tag tag : kTags) {
    const auto got = run(In(x, tag), In(dy, tag), Preference::kFastest);
    for (size_t k = 0; k < want.size(); ++k) {
      const Tensor plain = got[k].Plain();
      EXPECT_EQ(std::memcmp(plain.raw_data(), want[k].raw_data(),
                            static_cast<size_t>(plain.size()) * sizeof(float)),
                0)
          << "tag " << int(tag) << ", result " << k;
    }
  }
}

TEST(BlockedLayouts, GlobalAveragePool) {
  Random random(95);
  for (Tag tag : kTags) {
    for (int64_t channels : {17, 64}) {
      const Tensor x = RandomTensor(random, {3, channels, 7, 7});
      const Tensor dy = RandomTensor(random, {3, channels, 1, 1});
      const uint64_t reorders = Reorders();
      const Tensor xb = In(x, tag);
      const Tensor y = GlobalAveragePoolForward(xb);
      EXPECT_TRUE(Reorders() == reorders + 1 || !HasAvx512());
      ExpectSame(y, GlobalAveragePoolForward(x), 32 * 0x1p-23, "y");
      const PoolingHandle handle(x, {7, 7}, {1, 1}, {0, 0}, false);
      const Tensor dx = PoolingBackward(handle, dy, xb, {}, {});
      const Tensor beside_x = GlobalAveragePoolBackward(dy, x.shape(), xb);
      if (HasAvx512()) ExpectIn(dx, tag, "dx"), ExpectIn(beside_x, tag, "dx");
      ExpectSame(dx, GlobalAveragePoolBackward(dy, x.shape()), 8 * 0x1p-23, "dx");
      ExpectSame(beside_x, dx, 0, "dx");
    }
  }
}

}  // namespace
}  // namespace singa::test

#include "singa/operation/recorder.h"

#include "support.h"

namespace singa::test {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kHuge = int64_t{1} << 40;

Recorder Conv(const Shape& input, const Ints& kernel, const Ints& stride, const Ints& padding,
              int64_t out, const Ints& dilation = {1, 1}, int64_t group = 1) {
  return ConvRecorder("Conv", input, kernel, stride, padding, out, true, dilation, group);
}

Recorder Pool(const Shape& input, const Ints& kernel, const Ints& stride, const Ints& padding,
              bool ceil_mode = false, const Ints& dilation = {1, 1}) {
  return PoolRecorder("Pool", input, kernel, stride, padding, dilation, ceil_mode);
}

TEST(Recorder, KnownConvolutions) {
  const Recorder stem = Conv({32, 3, 224, 224}, {7, 7}, {2, 2}, {3, 3}, 64);
  EXPECT_EQ(stem.output_shape(), Shape({32, 64, 112, 112}));
  EXPECT_EQ(stem.weight_shape(), Shape({64, 3, 7, 7}));
  EXPECT_EQ(stem.col_height, 3 * 7 * 7);
  EXPECT_EQ(stem.col_width, 112 * 112);
  EXPECT_EQ(stem.imagesize, 3 * 224 * 224);

  const Recorder grouped = Conv({2, 8, 9, 7}, {3, 2}, {2, 1}, {1, 0}, 12, {2, 3}, 4);
  EXPECT_EQ(grouped.output_shape(), Shape({2, 12, 4, 4}));
  EXPECT_EQ(grouped.weight_shape(), Shape({12, 2, 3, 2}));
  EXPECT_EQ(grouped.col_height, 2 * 3 * 2);

  // SAME_UPPER for a kernel of 4: one element before and two after.
  const Recorder same = Conv({1, 1, 8, 8}, {4, 4}, {1, 1}, {1, 1, 2, 2}, 1);
  EXPECT_EQ(same.output_shape(), Shape({1, 1, 8, 8}));
  EXPECT_EQ(same.pad_top(), 1);
  EXPECT_EQ(same.pad_left(), 1);
  EXPECT_EQ(same.pad_bottom(), 2);
  EXPECT_EQ(same.pad_right(), 2);
}

TEST(Recorder, SetupRecorderKeepsItsArguments) {
  const Tensor x({4, 6, 10, 12});
  const Recorder r = SetupRecorder(x, {3, 5}, {1, 2}, {1, 2}, 6, 9, false, {2, 1}, 3);
  EXPECT_EQ(r.batchsize, 4);
  EXPECT_EQ(r.in_channels, 6);
  EXPECT_EQ(r.out_channels, 9);
  EXPECT_EQ(r.height(), 10);
  EXPECT_EQ(r.width(), 12);
  EXPECT_EQ(r.kernel_h(), 3);
  EXPECT_EQ(r.kernel_w(), 5);
  EXPECT_EQ(r.stride_h(), 1);
  EXPECT_EQ(r.stride_w(), 2);
  EXPECT_EQ(r.pad_top(), 1);
  EXPECT_EQ(r.pad_right(), 2);
  EXPECT_EQ(r.dilation_h(), 2);
  EXPECT_EQ(r.group, 3);
  EXPECT_FALSE(r.bias);
  EXPECT_NE(r.ToString().find("kernel (3, 5)"), std::string::npos) << r.ToString();
}

/// Counts windows one by one: those inside the padded input and, in ceil mode, those that reach
/// beyond its end but start before the padding there.
int64_t CountByHand(int64_t size, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                    int64_t dilation, bool ceil_mode) {
  const int64_t span = dilation * (kernel - 1) + 1;
  int64_t count = 0;
  bool past_end = false;  // the first window that reaches the end is the last one
  for (int64_t start = -before; !past_end; start += stride) {
    past_end = start + span >= size + after;
    const bool fits = start + span <= size + after;
    if (fits || (ceil_mode && start < size)) ++count;
  }
  return count;
}

TEST(Recorder, OutputSizesByCounting) {
  Random random(11);
  int ceil_differs = 0;
  for (int i = 0; i < 3000; ++i) {
    const int64_t size = random.Int(1, 12), kernel = random.Int(1, 5), stride = random.Int(1, 4);
    const int64_t dilation = random.Int(1, 3);
    const int64_t span = dilation * (kernel - 1) + 1;
    const int64_t before = random.Int(0, span - 1), after = random.Int(0, span - 1);
    const bool ceil_mode = random.Coin();
    if (size + before + after < span) continue;
    const Recorder r = Pool({1, 1, size, 20}, {kernel, 1}, {stride, 1}, {before, 0, after, 0},
                            ceil_mode, {dilation, 1});
    const int64_t expected = CountByHand(size, kernel, stride, before, after, dilation, ceil_mode);
    ASSERT_EQ(r.conv_height(), expected) << r.ToString();
    ceil_differs += expected != CountByHand(size, kernel, stride, before, after, dilation, false);
    if (!ceil_mode) {
      const Recorder c =
          Conv({1, 1, 20, size}, {1, kernel}, {1, stride}, {0, before, 0, after}, 1, {1, dilation});
      ASSERT_EQ(c.conv_width(), expected) << c.ToString();
    }
  }
  EXPECT_GT(ceil_differs, 100);
}

TEST(Recorder, SignalsAndVolumes) {
  const Recorder signal = Conv({4, 6, 100}, {5}, {2}, {1, 2}, 8, {3}, 2);
  EXPECT_EQ(signal.spatial, 1);
  EXPECT_EQ(signal.input_shape(), Shape({4, 6, 100}));
  EXPECT_EQ(signal.weight_shape(), Shape({8, 3, 5}));
  EXPECT_EQ(signal.output_shape(), Shape({4, 8, (100 + 3 - 13) / 2 + 1}));
  EXPECT_EQ(signal.height(), 1);
  EXPECT_EQ(signal.kernel_h(), 1);
  EXPECT_EQ(signal.pad_left(), 1);
  EXPECT_EQ(signal.pad_right(), 2);
  EXPECT_EQ(signal.col_height, 3 * 5);
  EXPECT_EQ(signal.imagesize, 600);
  EXPECT_NE(signal.ToString().find("kernel (5,), stride (2,), padding (1, 2)"), std::string::npos);

  const Recorder volume =
      Conv({2, 3, 8, 9, 10}, {2, 3, 4}, {1, 2, 3}, {0, 1, 2, 3, 4, 5}, 7, {}, 1);
  EXPECT_EQ(volume.spatial, 3);
  EXPECT_EQ(volume.weight_shape(), Shape({7, 3, 2, 3, 4}));
  EXPECT_EQ(volume.output_shape(),
            Shape({2, 7, 8 + 3 - 2 + 1, (9 + 5 - 3) / 2 + 1, (10 + 7 - 4) / 3 + 1}));
  EXPECT_EQ(volume.pad_front(), 0);
  EXPECT_EQ(volume.pad_back(), 3);
  EXPECT_EQ(volume.pad_right(), 5);
  EXPECT_EQ(volume.col_height, 3 * 2 * 3 * 4);
  EXPECT_EQ(volume.Along(&Recorder::Axis::kernel), Ints({2, 3, 4}));
  EXPECT_EQ(WithInput("Op", volume, {5, 3, 4, 9, 10}).output_shape(), Shape({5, 7, 6, 6, 5}));

  // One axis of each is counted; the others have one window.
  Random random(12);
  for (int i = 0; i < 500; ++i) {
    const int64_t size = random.Int(1, 12), kernel = random.Int(1, 4), stride = random.Int(1, 3);
    const bool ceil_mode = random.Coin();
    if (size < kernel) continue;
    const int64_t expected = CountByHand(size, kernel, stride, 0, 0, 1, ceil_mode);
    EXPECT_EQ(Pool({1, 2, size}, {kernel}, {stride}, {0}, ceil_mode, {}).conv_width(), expected);
    const Recorder d =
        Pool({1, 2, size, 1, 1}, {kernel, 1, 1}, {stride, 1, 1}, {0, 0, 0}, ceil_mode, {});
    EXPECT_EQ(d.conv_depth(), expected);
  }

  using E = std::invalid_argument;
  const Shape image = {1, 2, 8}, box = {1, 2, 8, 8, 8};
  EXPECT_ERROR(E, "input must be (N, C, L)", Conv(box, {3}, {1}, {0}, 1, {}));
  EXPECT_ERROR(E, "input must be (N, C, D, H, W)", Conv(image, {3, 3, 3}, {1}, {0}, 1, {}));
  EXPECT_ERROR(E, "stride must be (w); got (1, 1)", Conv(image, {3}, {1, 1}, {0}, 1, {}));
  EXPECT_ERROR(E, "(front, top, left, back, bottom, right)",
               Conv(box, {3, 3, 3}, {1, 1, 1}, {0, 0}, 1, {}));
  EXPECT_ERROR(E, "along the depth", Conv({1, 2, 2, 8, 8}, {3, 3, 3}, {1, 1, 1}, {0, 0, 0}, 1, {}));
  EXPECT_ERROR(E, "input must be (N, C, L)", WithInput("Op", signal, {4, 6, 1, 100}));
  // A missing axis is no axis.
  using Axis = Recorder::Axis;
  for (auto [axis, number] :
       {std::pair{0, &Axis::kernel}, {1, &Axis::stride}, {0, &Axis::before}}) {
    Recorder broken = signal;
    broken.axes[static_cast<size_t>(axis)].*number += 1;
    EXPECT_ERROR(E, "not one that SetupRecorder made",
                 WithInput("Op", broken, signal.input_shape()));
  }
}

TEST(Recorder, AdaptivePooling) {
  for (int64_t in = 1; in <= 14; ++in) {
    for (int64_t out = 1; out <= 14; ++out) {
      int64_t largest = 0;
      for (int64_t o = 0; o < out; ++o) {
        const auto begin = static_cast<int64_t>(std::floor(double(o) * double(in) / double(out)));
        const auto end = static_cast<int64_t>(std::ceil(double(o + 1) * double(in) / double(out)));
        largest = std::max(largest, end - begin);
      }
      const Recorder r = AdaptivePoolRecorder("Op", {2, 3, in}, {out});
      EXPECT_EQ(r.output_shape(), Shape({2, 3, out}));
      EXPECT_EQ(r.kernel_w(), largest) << in << " to " << out;
      EXPECT_EQ(r.adaptive, in % out != 0);
    }
  }
  // Windows of one size are those of an ordinary pooling.
  EXPECT_EQ(AdaptivePoolRecorder("Op", {2, 3, 8, 9}, {4, 3}),
            Pool({2, 3, 8, 9}, {2, 3}, {2, 3}, {0, 0}));
  EXPECT_TRUE(AdaptivePoolRecorder("Op", {2, 3, 8, 9}, {4, 4}).adaptive);
  using E = std::invalid_argument;
  EXPECT_ERROR(E, "[Op] output_size must be (h, w); got (4,)",
               AdaptivePoolRecorder("Op", {2, 3, 8, 9}, {4}));
  EXPECT_ERROR(E, "output_size must be between", AdaptivePoolRecorder("Op", {2, 3, 8}, {0}));
  EXPECT_ERROR(E, "got shape (2, 3)", AdaptivePoolRecorder("Op", {2, 3}, {1}));
}

TEST(Recorder, CeilMode) {
  EXPECT_EQ(Pool({1, 1, 112, 112}, {3, 3}, {2, 2}, {0, 0}, true).conv_height(), 56);
  EXPECT_EQ(Pool({1, 1, 112, 112}, {3, 3}, {2, 2}, {0, 0}, false).conv_height(), 55);
  // A window that would start in the padding after the input does not count.
  EXPECT_EQ(Pool({1, 1, 2, 2}, {2, 2}, {3, 3}, {1, 1}, true).conv_height(), 1);
  // Like PyTorch, allows a window that is larger than the input.
  EXPECT_EQ(Pool({1, 1, 1, 1}, {2, 2}, {2, 2}, {0, 0}, true).conv_height(), 1);
}

TEST(Recorder, WithInputFollowsTheInput) {
  const Recorder r = Conv({32, 3, 224, 224}, {3, 3}, {2, 2}, {1, 1}, 8);
  const Recorder other = WithInput("Op", r, {7, 3, 65, 33});
  EXPECT_EQ(other.output_shape(), Shape({7, 8, 33, 17}));
  EXPECT_EQ(other.col_width, 33 * 17);
  EXPECT_EQ(WithInput("Op", other, r.input_shape()), r);
  EXPECT_EQ(WithInput("Op", r, {0, 3, 224, 224}).output_shape(), Shape({0, 8, 112, 112}));
  EXPECT_ERROR(std::invalid_argument, "[Op] input has 4 channels; the handle was made for 3",
               WithInput("Op", r, {32, 4, 224, 224}));
  EXPECT_ERROR(std::invalid_argument, "(32, 3, 224)", WithInput("Op", r, {32, 3, 224}));
  // Fields that the caller has set to 0 do not cause a division by zero.
  const auto expect_refused = [&](const Recorder& broken) {
    EXPECT_ERROR(std::invalid_argument, "not one that SetupRecorder made",
                 WithInput("Op", broken, r.input_shape()));
  };
  for (auto field : {&Recorder::group, &Recorder::out_channels}) {
    Recorder broken = r;
    broken.*field = 0;
    expect_refused(broken);
  }
  using Axis = Recorder::Axis;
  for (auto number : {&Axis::stride, &Axis::kernel, &Axis::dilation}) {
    Recorder broken = r;
    broken.axes[2].*number = 0;
    expect_refused(broken);
  }
  EXPECT_ERROR(std::invalid_argument, "(1, 0", WithInput("Op", Recorder(), {1, 0, 1, 1}));
}

TEST(Recorder, RefusesWhatIsNoConvolution) {
  const Shape input = {2, 4, 8, 8};
  struct Case {
    Shape input;
    Ints kernel, stride, padding;
    int64_t out;
    Ints dilation;
    int64_t group;
    const char* message;
  };
  const Case cases[] = {
      {{4, 8, 8}, {3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "input must be (N, C, H, W); got shape (4"},
      {{2, 4, 0, 8}, {3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "(2, 4, 0, 8)"},
      {{2, 4, -8, 8}, {3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "(2, 4, -8, 8)"},
      {{2, 0, 8, 8}, {3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "(2, 0, 8, 8)"},
      {input, {3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "kernel must be (h, w); got (3,)"},
      {input, {3, 3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "kernel must be (h, w)"},
      {input, {0, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "kernel must be between 1"},
      {input, {-3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "got (-3, 3)"},
      {input, {3, 3}, {0, 1}, {0, 0}, 4, {1, 1}, 1, "stride must be between 1"},
      {input, {3, 3}, {1, 1, 1}, {0, 0}, 4, {1, 1}, 1, "stride must be (h, w)"},
      {input, {3, 3}, {1, 1}, {-1, 0}, 4, {1, 1}, 1, "padding must be between 0"},
      {input, {3, 3}, {1, 1}, {1, 1, 1}, 4, {1, 1}, 1, "(top, left, bottom, right)"},
      {input, {3, 3}, {1, 1}, {0, 0}, 4, {1, 0}, 1, "dilation must be between 1"},
      {input, {3, 3}, {1, 1}, {0, 0}, 0, {1, 1}, 1, "out_channels must be"},
      {input, {3, 3}, {1, 1}, {0, 0}, -4, {1, 1}, 1, "out_channels must be"},
      {input, {3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 0, "group must be at least 1"},
      {input, {3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 3, "group 3 must divide in_channels 4"},
      {input, {3, 3}, {1, 1}, {0, 0}, 6, {1, 1}, 4, "out_channels 6"},
      {input, {9, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "kernel 9"},
      {input, {3, 9}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "along the width"},
      {input, {3, 3}, {1, 1}, {0, 0}, 4, {4, 1}, 1, "spans 9 > 8"},
      {input, {kHuge, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "kernel must be"},
      {input, {3, 3}, {kHuge, 1}, {0, 0}, 4, {1, 1}, 1, "stride must be"},
      {input, {3, 3}, {1, 1}, {0, kHuge}, 4, {1, 1}, 1, "padding must be"},
      {input, {3, 3}, {1, 1}, {0, 0}, kHuge, {1, 1}, 1, "out_channels must be"},
      {{kHuge, kHuge, 8, 8}, {3, 3}, {1, 1}, {0, 0}, 4, {1, 1}, 1, "(1099511627776, "},
      {{2, 4, 1 << 20, 1 << 20}, {3, 3}, {1, 1}, {0, 0}, 1 << 30, {1, 1}, 1, "(2, 1073741824"},
      {input, {1, 1}, {1, 1}, {0, 2147483647}, 2147483647, {1, 1}, 1, "[Conv]"},
      {input, {2147483647, 2147483647}, {1, 1}, {2147483647, 2147483647}, 1, {1, 1}, 1, "[Conv]"},
  };
  for (const Case& c : cases)
    EXPECT_ERROR(std::invalid_argument, c.message,
                 Conv(c.input, c.kernel, c.stride, c.padding, c.out, c.dilation, c.group));

  const Tensor x(input);
  EXPECT_ERROR(
      std::invalid_argument,
      "[SetupRecorder] input has 4 channels but in_channels is 3; input shape (2, 4, 8, 8)",
      SetupRecorder(x, {3, 3}, {1, 1}, {0, 0}, 3, 4, true));
  EXPECT_ERROR(std::invalid_argument, "empty tensor",
               SetupRecorder(Tensor(), {3, 3}, {1, 1}, {0, 0}, 3, 4, true));
  EXPECT_ERROR(std::invalid_argument, "outside the input", Pool(input, {2, 2}, {2, 2}, {2, 0}));
  EXPECT_ERROR(std::invalid_argument, "kernel 9", Pool(input, {9, 9}, {2, 2}, {0, 0}));
}

}  // namespace
}  // namespace singa::test

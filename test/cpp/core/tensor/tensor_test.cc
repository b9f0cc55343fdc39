#include "singa/core/tensor.h"

#include <algorithm>
#include <map>
#include <random>

#include "core/layout/blocked_layout.h"
#include "singa/core/device.h"
#include "singa/core/half.h"
#include "singa/core/stats.h"
#include "support.h"

namespace singa::test {
namespace {

TEST(Tensor, ViewsShareMemoryAndReadTheRightElements) {
  const Tensor t = Iota({2, 3, 4});
  const Tensor transposed = t.Transpose({2, 0, 1});
  EXPECT_EQ(transposed.shape(), Shape({4, 2, 3}));
  EXPECT_EQ(transposed.block(), t.block());
  const std::vector<float> values = Floats(transposed);
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 2; ++j)
      for (int k = 0; k < 3; ++k) EXPECT_EQ(values[(i * 2 + j) * 3 + k], j * 12 + k * 4 + i);
}

/// Channels-last.
LayoutPtr Nhwc(const Shape& shape) { return BlockedLayoutNamed("nhwc", shape, kFloat32); }

TEST(Tensor, TransposingAChannelsLastImageReordersNothing) {
  const Tensor plain = Iota({2, 3, 4, 5});
  const Tensor image = plain.ToLayout(Nhwc(plain.shape()));
  const uint64_t reorders = GetReorderStats().count;
  const Tensor rows = image.Transpose({0, 2, 3, 1});
  EXPECT_TRUE(rows.is_contiguous());
  EXPECT_TRUE(image.is_blocked());
  std::vector<int64_t> axes = {0, 1, 2, 3};
  do {
    EXPECT_EQ(Floats(image.Transpose(axes)), Floats(plain.Transpose(axes)));
  } while (std::next_permutation(axes.begin(), axes.end()));
  EXPECT_EQ(GetReorderStats().count, reorders);
  Tensor(rows).Fill(7);  // the image has memory of its own
  EXPECT_EQ(Floats(image), Floats(plain));
}

TEST(Tensor, RowsOfFeaturesAreAChannelsLastImage) {
  const Tensor rows = Iota({4, 4, 5, 3});
  const uint64_t reorders = GetReorderStats().count;
  for (const auto& [first, last] : {std::pair(0, 4), std::pair(1, 3), std::pair(3, 4)}) {
    const Tensor view = rows.SliceAxis(0, first, last).Transpose({0, 3, 1, 2});
    const Tensor image = view.ToLayout(Nhwc(view.shape()));
    EXPECT_TRUE(image.is_blocked());
    EXPECT_EQ(Floats(image), Floats(view));
  }
  EXPECT_EQ(GetReorderStats().count, reorders + 3);  // those of Floats
  const Tensor every_second = rows.SliceAxis(2, 0, 5, 2).Transpose({0, 3, 1, 2});
  EXPECT_EQ(Floats(every_second.ToLayout(Nhwc(every_second.shape()))), Floats(every_second));
  const Tensor other_order = rows.Transpose({0, 3, 2, 1});
  EXPECT_EQ(Floats(other_order.ToLayout(Nhwc(other_order.shape()))), Floats(other_order));
}

TEST(Tensor, SliceFollowsPython) {
  const Tensor t = Iota({10});
  EXPECT_EQ(Floats(t.SliceAxis(0, 2, 8, 3)), (std::vector<float>{2, 5}));
  EXPECT_EQ(Floats(t.SliceAxis(0, -3, 100)), (std::vector<float>{7, 8, 9}));
  EXPECT_EQ(Floats(t.SliceAxis(0, 8, 2, -2)), (std::vector<float>{8, 6, 4}));
  EXPECT_EQ(Floats(t.SliceAxis(0, 100, -100, -4)), (std::vector<float>{9, 5, 1}));
  EXPECT_EQ(t.SliceAxis(0, 5, 5).size(), 0);
  EXPECT_EQ(t.SliceAxis(0, 7, 3).size(), 0);
  EXPECT_THROW(t.SliceAxis(0, 0, 5, 0), std::invalid_argument);
  EXPECT_THROW(t.SliceAxis(1, 0, 5), std::invalid_argument);
}

TEST(Tensor, ReshapeIsAViewWhereStridesAllow) {
  const Tensor t = Iota({4, 6});
  EXPECT_EQ(t.Reshape({2, 2, 3, 2}).block(), t.block());
  EXPECT_EQ(t.Reshape({-1}).shape(), Shape({24}));
  // Of every second row: the rows cannot be merged, but each can be split.
  const Tensor rows = t.SliceAxis(0, 0, 4, 2);
  EXPECT_EQ(rows.Reshape({2, 3, 2}).block(), t.block());
  const Tensor merged = rows.Reshape({12});
  EXPECT_NE(merged.block(), t.block());
  EXPECT_EQ(Floats(merged), (std::vector<float>{0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17}));
  EXPECT_THROW(t.Reshape({5, 5}), std::invalid_argument);
  EXPECT_THROW(t.Reshape({-1, -1}), std::invalid_argument);
  EXPECT_THROW(t.Reshape({0, -1}), std::invalid_argument);
  EXPECT_EQ(Tensor(Shape{0, 3}).Reshape({3, 0}).shape(), Shape({3, 0}));
}

TEST(Tensor, ReshapeOfBackwardsViews) {
  // Rows go forwards and columns backwards, so they do not merge into one axis.
  const Tensor t = Iota({2, 2, 3});
  const Tensor back = t.SliceAxis(2, INT64_MAX, INT64_MIN, -1);
  EXPECT_EQ(Floats(back.Reshape({2, 6})),
            (std::vector<float>{2, 1, 0, 5, 4, 3, 8, 7, 6, 11, 10, 9}));
  const Tensor all = t.Reshape({12}).SliceAxis(0, INT64_MAX, INT64_MIN, -1);
  EXPECT_EQ(all.Reshape({3, 4}).block(), t.block());
  EXPECT_EQ(Floats(all.Reshape({3, 4})),
            (std::vector<float>{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}));
}

TEST(Tensor, RandomViewsReshapeToTheSameElements) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    Tensor t = Iota({4, 6, 2, 3});
    for (int step = 0; step < 3; ++step) {
      const int axis = static_cast<int>(random() % 4);
      if (random() % 2) {
        std::vector<int64_t> order{0, 1, 2, 3};
        std::shuffle(order.begin(), order.end(), random);
        t = t.Transpose(order);
      } else {
        t = t.SliceAxis(axis, random() % 2, 100, 1 + random() % 2);
      }
    }
    if (t.size() == 0) continue;
    // The reshaped tensor has the same elements in the same order, whether it is a view or not.
    Shape target{-1};
    for (int64_t divisor : {2, 3, 4})
      if (t.size() % divisor == 0) target.push_back(divisor), target = Shape{-1, divisor};
    EXPECT_EQ(Floats(t.Reshape(target)), Floats(t));
  }
}

TEST(Tensor, BroadcastAndUnsqueeze) {
  const Tensor t = Iota({3, 1});
  const Tensor wide = t.Broadcast({2, 3, 2});
  EXPECT_EQ(Floats(wide), (std::vector<float>{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
  EXPECT_THROW(t.Broadcast({3}), std::invalid_argument);
  EXPECT_THROW(t.Broadcast({4, 2}), std::invalid_argument);
  EXPECT_EQ(t.Unsqueeze({0, -1}).shape(), Shape({1, 3, 1, 1}));
  EXPECT_EQ(t.Squeeze().shape(), Shape({3}));
  EXPECT_THROW(t.Squeeze({0}), std::invalid_argument);
}

TEST(Tensor, WritesThroughAViewAreSeenByItsOwnerAndCounted) {
  const Tensor t = Iota({2, 3});
  const uint64_t before = t.version();
  Tensor column = t.SliceAxis(1, 1, 2);
  column.Fill(-1);
  EXPECT_EQ(Floats(t), (std::vector<float>{0, -1, 2, 3, -1, 5}));
  EXPECT_GT(t.version(), before);
}

TEST(Tensor, ConvertsTypes) {
  const float values[] = {-1.75f, 0.f, 2.5f, 300.f};
  Tensor t(Shape{4});
  t.CopyFromHost(values, sizeof(values));
  int32_t integers[4];
  t.AsType(kInt).CopyToHost(integers, sizeof(integers));
  EXPECT_EQ(integers[0], -1);
  EXPECT_EQ(integers[2], 2);
  const std::vector<float> back = Floats(t.AsType(kBFloat16).AsType(kFloat32));
  EXPECT_EQ(back, (std::vector<float>{-1.75f, 0.f, 2.5f, 300.f}));
}

TEST(Tensor, RefusesWhatCannotBe) {
  EXPECT_THROW(Tensor(Shape{2, -1}), std::invalid_argument);
  EXPECT_THROW(Tensor(Shape{int64_t{1} << 40, int64_t{1} << 40}), std::invalid_argument);
  EXPECT_THROW(Tensor(Shape{int64_t{1} << 45}), std::bad_alloc);
  EXPECT_THROW(Tensor().Clone(), std::invalid_argument);
  EXPECT_THROW(Iota({2}).Item(), std::invalid_argument);
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), std::invalid_argument);
}

TEST(Tensor, FillsWithWhatItsTypeHasOnly) {
  Tensor bytes({2}, nullptr, kChar), words({2}, nullptr, kInt64), pixels({2}, nullptr, kUChar);
  for (double value : {128.0, -129.0, std::nan(""), HUGE_VAL})
    EXPECT_THROW(bytes.Fill(value), std::invalid_argument) << value;
  for (double value : {9223372036854775808.0, -9223372036854777856.0, std::nan("")})
    EXPECT_THROW(words.Fill(value), std::invalid_argument) << value;
  for (double value : {-1.0, 256.0}) EXPECT_THROW(pixels.Fill(value), std::invalid_argument);
  bytes.Fill(-128.9);  // truncated
  EXPECT_EQ(bytes.SliceAxis(0, 0, 1).Item(), -128);
  pixels.Fill(255.5);
  EXPECT_EQ(pixels.SliceAxis(0, 0, 1).Item(), 255);
  words.Fill(-9223372036854775808.0);
  EXPECT_EQ(words.SliceAxis(0, 0, 1).Item(), -9223372036854775808.0);
}

TEST(Tensor, BroadcastViewsAreNotWrittenTo) {
  const Tensor row = Full({1, 3}, 1);
  EXPECT_THROW(row.Broadcast({2, 3}).CopyFrom(Full({2, 3}, 5)), std::invalid_argument);
  row.Broadcast({1, 3}).CopyFrom(Full({1, 3}, 5));
  EXPECT_EQ(row.SliceAxis(1, 0, 1).Item(), 5);
}

TEST(Tensor, WithoutMemoryNamesShapeAndType) {
  try {
    Tensor({int64_t{1} << 40, 2}, nullptr, kDouble);
    FAIL() << "16 TiB were there";
  } catch (const OutOfMemory& error) {
    const std::string what = error.what();
    ExpectPart(what, "(1099511627776, 2) float64");
    EXPECT_EQ(what.rfind("[memory] "), 0u) << what;
  }
  const int64_t big = int64_t{1} << 40;
  EXPECT_THROW(Tensor({big, big, big}), std::invalid_argument);  // its strides overflow
}

TEST(Tensor, OfAClosedDeviceSaysSo) {
  const DevicePtr device = CreateCpuDevice();
  const Tensor t(Shape{8}, device);
  device->Close();
  float values[8];
  EXPECT_THROW(t.CopyToHost(values, sizeof(values)), Unavailable);
  EXPECT_THROW(Tensor(Shape{8}, device), Unavailable);
  EXPECT_THROW(DefaultDevice()->Close(), std::invalid_argument);
}

TEST(Tensor, AnEmptyOneAnswersQuestionsAndRefusesTheRest) {
  const Tensor empty;
  EXPECT_TRUE(empty.empty());
  EXPECT_EQ(empty.size(), 0);
  EXPECT_EQ(empty.bytes(), 0);
  EXPECT_EQ(empty.device(), nullptr);
  EXPECT_EQ(empty.layout(), nullptr);
  EXPECT_FALSE(empty.is_contiguous());
  EXPECT_EQ(empty.ToString(), "empty tensor");
  float value = 0;
  Tensor full(Shape{1});
  const std::map<std::string, std::function<void()>> calls = {
      {"transpose", [&] { empty.Transpose(); }},
      {"broadcast", [&] { empty.Broadcast({}); }},
      {"slice", [&] { empty.SliceAxis(0, 0, 1); }},
      {"squeeze", [&] { empty.Squeeze(); }},
      {"unsqueeze", [&] { empty.Unsqueeze({0}); }},
      {"reshape", [&] { empty.Reshape({}); }},
      {"clone", [&] { empty.Clone(); }},
      {"contiguous", [&] { empty.Contiguous(); }},
      {"as_type", [&] { empty.AsType(kFloat32); }},
      {"to_device", [&] { empty.ToDevice(DefaultDevice()); }},
      {"to_layout", [&] { empty.ToLayout(nullptr); }},
      {"to_layout ", [&] { empty.Plain(); }},
      {"fill", [&] { Tensor().Fill(0); }},
      {"copy", [&] { Tensor().CopyFrom(full); }},
      {"copy ", [&] { full.CopyFrom(empty); }},
      {"copy_from_host", [&] { Tensor().CopyFromHost(&value, 0); }},
      {"copy_to_host", [&] { empty.CopyToHost(&value, 0); }},
      {"item", [&] { empty.Item(); }},
  };
  for (const auto& [name, call] : calls) {
    const std::string op = name.substr(0, name.find(' '));
    try {
      call();
      ADD_FAILURE() << name << " took an empty tensor";
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), "[" + op + "] the tensor is empty");
    }
  }
  EXPECT_THROW(Tensor(DefaultDevice(), nullptr), std::invalid_argument);
  EXPECT_THROW(full.On(nullptr), std::invalid_argument);
}

TEST(Half, RoundsToNearestEvenOverAllValues) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = static_cast<float>(half);
    if (value != value) continue;
    EXPECT_EQ(Float16(value).bits, half.bits);
    BFloat16 brain;
    brain.bits = static_cast<uint16_t>(bits);
    const float wide = static_cast<float>(brain);
    if (wide == wide) {
      EXPECT_EQ(BFloat16(wide).bits, brain.bits);
    }
  }
  EXPECT_EQ(static_cast<float>(Float16(2049.f)), 2048.f);  // a tie goes to even
  EXPECT_EQ(static_cast<float>(Float16(2051.f)), 2052.f);
  EXPECT_EQ(static_cast<float>(Float16(65519.f)), 65504.f);
  EXPECT_TRUE(std::isinf(static_cast<float>(Float16(65520.f))));
  EXPECT_EQ(static_cast<float>(Float16(0x1p-25f)), 0.f);
  EXPECT_EQ(static_cast<float>(Float16(0x1.8p-25f)), 0x1p-24f);
}

}  // namespace
}  // namespace singa::test

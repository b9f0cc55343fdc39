// Elements are read where they lie, in all layouts, and samples find what differs.

#include "model/dispatch/spot/sampler.h"

#include <cstring>

#include "core/layout/blocked_layout.h"
#include "support.h"

namespace singa::spot {
namespace {

using namespace test;

/// Checks the position of every element of Iota(shape), which lies as in `t`.
void ExpectPositions(const Tensor& t, const Shape& shape) {
  const Operand operand(t);
  const auto* data = static_cast<const float*>(operand.tensor().raw_data());
  Shape index = shape;
  for (int64_t flat = 0; flat < shape.Count(); ++flat) {
    for (int64_t i = shape.rank() - 1, left = flat; i >= 0; left /= shape[static_cast<int>(i--)])
      index[static_cast<int>(i)] = left % shape[static_cast<int>(i)];
    ASSERT_EQ(data[operand.At(index)], static_cast<float>(flat)) << index << " of " << t;
  }
}

struct Named {
  const char* name;
  Shape shape;
};

TEST(Sampler, PositionsInBlockedLayoutsAreThoseOfPack) {
  const Named layouts[] = {{"nhwc", {2, 5, 3, 4}},           {"nChw16c", {2, 20, 3, 2}},
                           {"nChw8c", {1, 9, 2, 3}},         {"ndhwc", {2, 3, 2, 2, 3}},
                           {"OIhw16i16o", {20, 18, 3, 1}},   {"OIhw4i16o4i", {17, 21, 1, 2}},
                           {"OIhw16i16o2i", {18, 40, 2, 1}}, {"gOIhw4i4o/2", {12, 5, 2, 3}},
                           {"Goihw16g/18", {18, 1, 3, 3}}};
  for (const Named& named : layouts) {
    const LayoutPtr layout = BlockedLayoutNamed(named.name, named.shape, kFloat32);
    ASSERT_NE(layout, nullptr) << named.name;
    const Tensor plain = Iota(named.shape);
    const Tensor t(plain.device(), layout);
    layout->Pack(plain.raw_data(), t.raw_data());
    ExpectPositions(t, named.shape);
  }
}

TEST(Sampler, PositionsInViewsFollowStrides) {
  const Tensor t = Iota({4, 6});
  const Operand operand(t.Transpose().SliceAxis(0, 1, 6, 2));  // (3, 4)
  const auto* data = static_cast<const float*>(operand.tensor().raw_data());
  EXPECT_EQ(data[operand.At({2, 3})], 3 * 6 + 5);
  EXPECT_EQ(data[operand.At({0, 1})], 6 + 1);
}

/// A plan that is as exact as it says.
class Inexact final : public Plan {
 public:
  explicit Inexact(bool spreads = false, double factor_error = 0)
      : Plan("inexact"), spreads_(spreads), factor_error_(factor_error) {}
  void Run(const Execution&) const override {}
  bool spreads_error() const override { return spreads_; }
  double factor_error() const override { return factor_error_; }

 private:
  bool spreads_;
  double factor_error_;
};

/// What a comparison of `y` with the sum of x's row finds.
Finding SumsOfRows(const Tensor& x, const Tensor& y, int64_t products = 1 << 20,
                   const Inexact& plan = Inexact(), uint32_t turn = 0) {
  const Tensor inputs[] = {x}, outputs[] = {y};
  Sampler sampler(inputs, outputs, products, turn, 7, plan);
  sampler.Check(0, "y", y.shape(), x.shape(1), [&](std::span<Place> places) {
    for (Place& place : places) {
      const Operand& rows = sampler.input(0);
      sampler.AddTerms(rows.Along(0, 1, rows.At(0, place.index[0])), x.shape(1), 1, &place);
    }
  });
  return sampler.finding();
}

Tensor RowSums(const Tensor& x) {
  Tensor y({x.shape(0)}, nullptr, kFloat32);
  for (int64_t i = 0; i < x.shape(0); ++i) {
    const auto* row = static_cast<const float*>(x.raw_data()) + i * x.shape(1);
    static_cast<float*>(y.raw_data())[i] =
        static_cast<float>(std::accumulate(row, row + x.shape(1), 0.0));
  }
  return y;
}

TEST(Sampler, FindsEachWrongElementOfASmallResult) {
  const Tensor x = Iota({30, 3}), right = RowSums(x);
  EXPECT_EQ(SumsOfRows(x, right).counted, 30);
  EXPECT_LE(SumsOfRows(x, right).ratio, 1);
  for (const int64_t at : {0, 29}) {
    Tensor y = right.Clone();
    static_cast<float*>(y.raw_data())[at] += 1;
    const Finding finding = SumsOfRows(x, y);
    EXPECT_GT(finding.ratio, 1);
    EXPECT_NE(finding.text.find("output y at (" + std::to_string(at) + ",) of (30,): "),
              std::string::npos)
        << finding.text;
  }
}

TEST(Sampler, TakesFourElementsWhereSumsAreLong) {
  const Tensor x = Iota({100, 50});
  EXPECT_EQ(SumsOfRows(x, RowSums(x), 10).counted, 4);
  EXPECT_EQ(SumsOfRows(x, RowSums(x), 500).counted, 10);
}

TEST(Sampler, TakesOneElementWhereSumsAreVeryLong) {
  const Tensor x = Full({100, 5000}, 2), right = RowSums(x);
  for (uint32_t turn = 0; turn < 8; ++turn)
    EXPECT_EQ(SumsOfRows(x, right, 10, Inexact(), turn).counted, 1);
  EXPECT_EQ(SumsOfRows(x, right, 10000).counted, 2);
  for (const int64_t at : {0, 99}) {  // one of four checks comes to each corner
    Tensor y = right.Clone();
    static_cast<float*>(y.raw_data())[at] += 1000;
    int found = 0;
    for (uint32_t turn = 0; turn < 4; ++turn)
      found += SumsOfRows(x, y, 10, Inexact(), turn).ratio > 1;
    EXPECT_GE(found, 1) << at;
  }
}

TEST(Sampler, ZerosDoNotCountAndHaveToBeZero) {
  const Tensor x = Full({8, 3}, 0);
  EXPECT_EQ(SumsOfRows(x, Full({8}, 0)).counted, 0);
  EXPECT_LE(SumsOfRows(x, Full({8}, 0)).ratio, 1);
  EXPECT_GT(SumsOfRows(x, Full({8}, 1e-20)).ratio, 1);
}

TEST(Sampler, ProductsThatUnderflowDoNotCount) {
  const Tensor x = Full({8, 3}, 1e-37);
  EXPECT_EQ(SumsOfRows(x, Full({8}, 0)).counted, 0);
  EXPECT_LE(SumsOfRows(x, Full({8}, 0)).ratio, 1) << "flushed to zero";
  EXPECT_GT(SumsOfRows(x, Full({8}, 1e-20)).ratio, 1);
}

TEST(Sampler, WhatIsNotFiniteIsNotCompared) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Tensor x = Iota({8, 3});
  static_cast<float*>(x.raw_data())[0] = kInfinity;
  Tensor y = RowSums(x);
  EXPECT_EQ(SumsOfRows(x, y).counted, 7);
  // Implementations spread infinity to neighbours.
  static_cast<float*>(y.raw_data())[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(SumsOfRows(x, y).counted, 6);
  EXPECT_LE(SumsOfRows(x, y).ratio, 1);
  // Without an infinite operand NaN is wrong.
  x = Iota({8, 3});
  EXPECT_EQ(SumsOfRows(x, y).ratio, kInfinity);
}

TEST(Sampler, ErrorsThatSpreadAreBoundedByTheLargestOperand) {
  Tensor x = Full({8, 3}, 1e-3);
  Tensor y = RowSums(x);
  static_cast<float*>(x.raw_data())[23] = 1e6;
  static_cast<float*>(y.raw_data())[7] = 1e6;
  static_cast<float*>(y.raw_data())[0] += 1;  // small beside the terms of row 7
  EXPECT_GT(SumsOfRows(x, y).ratio, 1);
  EXPECT_LE(SumsOfRows(x, y, 1 << 20, Inexact(true)).ratio, 1);
  static_cast<float*>(y.raw_data())[0] += 1e5;
  EXPECT_GT(SumsOfRows(x, y, 1 << 20, Inexact(true)).ratio, 1);
}

TEST(Sampler, RoundedFactorsAreAllowedInEachTerm) {
  const Tensor x = Full({8, 3}, 1);
  Tensor y = RowSums(x);
  static_cast<float*>(y.raw_data())[2] += 3 * 0x1p-11f;
  EXPECT_GT(SumsOfRows(x, y).ratio, 1);
  EXPECT_LE(SumsOfRows(x, y, 1 << 20, Inexact(false, 0x1p-10)).ratio, 1);
  EXPECT_GT(SumsOfRows(x, y, 1 << 20, Inexact(false, 0x1p-12)).ratio, 1);
}

}  // namespace
}  // namespace singa::spot

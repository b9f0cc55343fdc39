#include "distributed/collectives/ordered_sum.h"

#include <cstring>

#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

std::string Bytes(const Tensor& t) {
  return {static_cast<const char*>(t.raw_data()), static_cast<size_t>(t.bytes())};
}

TEST(OrderedSum, FloatsHaveTheBitsOfAccumulation) {
  Random random(1);
  for (DType dtype : {kFloat32, kFloat64}) {
    for (int trial = 0; trial < 60; ++trial) {
      const int64_t count = random.Int(1, 5), n = random.Int(1, 5000);
      const double factor = random.Coin() ? 1.0 / static_cast<double>(count) : random.Real();
      std::vector<Tensor> terms;
      std::vector<const void*> from;
      for (int64_t r = 0; r < count; ++r) {
        terms.push_back(RandomTensor(random, {n}, dtype, -1e3, 1e3));
        from.push_back(terms.back().raw_data());
      }
      // What Optimizer.accumulate does: the product of the first, then Axpy.
      const Tensor want = Binary(BinaryOp::kMul, terms[0], Full({}, factor, nullptr, dtype));
      for (int64_t r = 1; r < count; ++r) Axpy(factor, terms[r], want);
      const Tensor got({n}, nullptr, dtype);
      distributed::OrderedSum(dtype, factor, from.data(), count, n, got.raw_data());
      ASSERT_EQ(Bytes(got), Bytes(want)) << DTypeName(dtype) << " " << count << " x " << n;
    }
  }
}

TEST(OrderedSum, HalvesAreAddedInFloatAndRoundedOnce) {
  Random random(2);
  for (DType dtype : {kFloat16, kBFloat16}) {
    const int64_t n = 4099;
    std::vector<Tensor> terms, wide;
    std::vector<const void*> from, from_wide;
    for (int r = 0; r < 7; ++r) {
      terms.push_back(RandomTensor(random, {n}, dtype, -10, 10));
      wide.push_back(terms.back().AsType(kFloat32));
      from.push_back(terms.back().raw_data());
      from_wide.push_back(wide.back().raw_data());
    }
    const Tensor sum({n}, nullptr, kFloat32), got({n}, nullptr, dtype);
    distributed::OrderedSum(kFloat32, 0.3, from_wide.data(), 7, n, sum.raw_data());
    distributed::OrderedSum(dtype, 0.3, from.data(), 7, n, got.raw_data());
    EXPECT_EQ(Bytes(got), Bytes(sum.AsType(dtype))) << DTypeName(dtype);
  }
}

TEST(OrderedSum, IntegersWrapAround) {
  const std::vector<int32_t> a{1, 0x7fffffff}, b{2, 1};
  const void* from[] = {a.data(), b.data()};
  int32_t to[2];
  distributed::OrderedSum(kInt32, 1, from, 2, 2, to);
  EXPECT_EQ(to[0], 3);
  EXPECT_EQ(to[1], -0x7fffffff - 1);
}

TEST(OrderedSum, ResultMayBeATerm) {
  Vector a(3000, 1.5), b(3000, 2);
  const void* from[] = {a.data(), b.data()};
  distributed::OrderedSum(kFloat64, 2, from, 2, 3000, a.data());
  EXPECT_EQ(a, Vector(3000, 7));
}

TEST(OrderedSum, PartsAddUpToItsBits) {
  Random random(3);
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    const int64_t n = random.Int(1, 5000);
    std::vector<Tensor> terms;
    std::vector<const void*> from;
    for (int r = 0; r < 6; ++r) {
      terms.push_back(RandomTensor(random, {n}, dtype, -10, 10));
      from.push_back(terms.back().raw_data());
    }
    const Tensor want({n}, nullptr, dtype), got({n}, nullptr, dtype);
    distributed::OrderedSum(dtype, 0.3, from.data(), 6, n, want.raw_data());
    std::vector<char> sums(static_cast<size_t>(n) * distributed::SumBytes(dtype));
    distributed::AddToSum(dtype, 0.3, from.data(), 3, n, nullptr, sums.data(), nullptr);
    distributed::AddToSum(dtype, 0.3, from.data() + 3, 1, n, sums.data(), sums.data(), nullptr);
    distributed::AddToSum(dtype, 0.3, from.data() + 4, 2, n, sums.data(), nullptr, got.raw_data());
    EXPECT_EQ(Bytes(got), Bytes(want)) << DTypeName(dtype);
  }
}

TEST(OrderedSum, RefusesOtherTypes) {
  const void* from[] = {nullptr};
  EXPECT_ERROR(TypeError, "elements of type bool cannot be added",
               distributed::OrderedSum(kBool, 1, from, 1, 0, nullptr));
}

}  // namespace
}  // namespace singa::test

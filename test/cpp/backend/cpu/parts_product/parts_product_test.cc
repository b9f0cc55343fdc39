// Float32 products by bfloat16 parts, on AMX and by the plain model of it, against float64.

#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/cpu/parts_product/offer.h"
#include "backend/cpu/parts_product/packing.h"
#include "backend/cpu/parts_product/parts_units.h"
#include "core/device/instruction_set.h"
#include "model/dispatch/dispatch.h"

namespace singa::test {
namespace {

using cpu::batch_blocked::kLeastParts;
using cpu::batch_blocked::kMostParts;
using cpu::batch_blocked::MultiplyParts;
using cpu::batch_blocked::PartsError;
using cpu::batch_blocked::PartsUnit;
using cpu::batch_blocked::Session;
using cpu::batch_blocked::Unit;
using cpu::parts_product::HasParts;
using cpu::parts_product::kChunk;
using cpu::parts_product::kChunkSteps;
using cpu::parts_product::kPanel;
using cpu::parts_product::kPanelSums;
using cpu::parts_product::Matrix;
using cpu::parts_product::PackedSize;
using cpu::parts_product::Runs;
using cpu::parts_product::Side;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class PartsProduct : public PartsTest {
 protected:
  /// Two units in the last place of the sum of magnitudes, for any number of terms; and what two
  /// parts leave out.
  const double bound_ = 0x1p-22 + PartsError(GetParam().parts);
};
INSTANTIATE_TEST_SUITE_P(Units, PartsProduct, PartsTest::Units(),
                         [](const auto& by) { return UnitName(by.param); });

Tensor Multiply(const MatMulSpec& spec, const PartsUnit& unit, const std::vector<Tensor>& inputs) {
  EXPECT_EQ(cpu::parts_product::Refuses(spec), "");
  const PlanPtr plan = cpu::parts_product::MakePlan(spec, unit);
  Tensor y({spec.batch_count(), spec.m, spec.n});
  DefaultDevice()->Exec(spec.op(), plan, inputs, {&y, 1});
  return y;
}

MatMulSpec Spec(int64_t m, int64_t n, int64_t k) {
  auto spec = CurrentSpec<MatMulSpec>();
  spec.m = m, spec.n = n, spec.k = k;
  return spec;
}

/// Element (i, j) of a matrix of a batch.
double At(const Vector& values, int64_t first, bool trans, int64_t rows, int64_t cols, int64_t i,
          int64_t j) {
  return values[static_cast<size_t>(first * rows * cols + (trans ? j * rows + i : i * cols + j))];
}

/// The largest error relative to the sum of magnitudes, which float64 computes. Relu is not looked
/// at where the sum is near zero.
double LargestError(const MatMulSpec& s, const std::vector<Tensor>& inputs, const Tensor& y) {
  const Vector a = Values(inputs[0]), b = Values(inputs[1]), got = Values(y);
  const Vector c = s.c_rows > 0 ? Values(inputs[2]) : Vector();
  double worst = 0;
  for (int64_t n = 0; n < s.batch_count(); ++n)
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < s.k; ++k) {
          const double product = At(a, s.a_batch.Count() == 1 ? 0 : n, s.trans_a, s.m, s.k, i, k) *
                                 At(b, s.b_batch.Count() == 1 ? 0 : n, s.trans_b, s.k, s.n, k, j);
          sum += s.alpha * product;
          magnitude += std::abs(s.alpha * product);
        }
        if (s.c_rows > 0) {
          const double added =
              s.beta *
              c[static_cast<size_t>((s.c_rows == 1 ? 0 : i * s.c_cols) + (s.c_cols == 1 ? 0 : j))];
          sum += added;
          magnitude += std::abs(added);
        }
        if (s.relu) sum = std::max(sum, 0.0);
        const double error = std::abs(got[static_cast<size_t>((n * s.m + i) * s.n + j)] - sum);
        EXPECT_TRUE(std::isfinite(error)) << n << " " << i << " " << j;
        if (magnitude > 0) worst = std::max(worst, error / magnitude);
      }
  return worst;
}

TEST_P(PartsProduct, IsTheDefinition) {
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    MatMulSpec s = Spec(random.Int(1, 80), random.Int(1, 80), random.Int(1, 300));
    s.trans_a = random.Coin(), s.trans_b = random.Coin();
    if (random.Coin()) {
      const int64_t count = random.Int(1, 3);
      s.a_batch = {random.Coin() ? count : 1};
      s.b_batch = {s.a_batch[0] == 1 ? count : random.Coin() ? count : 1};
    }
    if (random.Coin()) s.alpha = random.Real(-2, 2);
    if (random.Coin()) {
      s.beta = random.Real(-2, 2);
      s.c_rows = random.Coin() ? s.m : 1;
      s.c_cols = random.Coin() ? s.n : 1;
    }
    s.relu = random.Coin();
    std::vector<Tensor> inputs = {RandomTensor(random, {s.a_batch.Count() * s.m * s.k}),
                                  RandomTensor(random, {s.b_batch.Count() * s.n * s.k})};
    if (s.c_rows > 0) inputs.push_back(RandomTensor(random, {s.c_rows * s.c_cols}));
    EXPECT_LE(LargestError(s, inputs, Multiply(s, GetParam(), inputs)), bound_)
        << s.m << " x " << s.n << " x " << s.k << " " << s.trans_a << s.trans_b;
  }
}

/// Blocks of the result, shared panels, and sums in pieces; on different numbers of threads.
TEST_P(PartsProduct, HasTheSameBitsOnAnyNumberOfThreads) {
  struct Case {
    int64_t m, n, k;
  };
  const ThreadCount scope;
  for (const Case& c : {Case{600, 40, 140}, Case{40, 600, 140}, Case{33, 50, 4200}}) {
    Random random(2);
    MatMulSpec s = Spec(c.m, c.n, c.k);
    s.trans_a = c.k > 4000;
    const std::vector<Tensor> inputs = {RandomTensor(random, {s.m * s.k}),
                                        RandomTensor(random, {s.n * s.k})};
    Vector first;
    for (const int threads : {1, 2, 5}) {
      SetNumThreads(threads);
      s.threads = threads;
      const Tensor y = Multiply(s, GetParam(), inputs);
      if (first.empty()) {
        first = Values(y);
        EXPECT_LE(LargestError(s, inputs, y), bound_);
      }
      EXPECT_EQ(Values(y), first) << threads << " threads";
    }
  }
}

/// Factors of any size, up to those whose parts would be lost, and sums that cancel.
TEST_P(PartsProduct, IsAsExactForAnyExponent) {
  Random random(3);
  const MatMulSpec s = Spec(34, 33, 200);
  for (const int left : {-120, -60, 0, 60, 120})
    for (const int right : {-120, -60, 0, 60, 120}) {
      if (std::abs(left + right) > 110) continue;
      Vector as(static_cast<size_t>(s.m * s.k)), bs(static_cast<size_t>(s.k * s.n));
      for (double& v : as) v = std::ldexp(random.Real(), left);
      for (double& v : bs) v = std::ldexp(random.Real(), right);
      // The second half of a sum takes back the first, but for rounding to float32.
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t k = 0; k < s.k / 2; ++k)
          as[static_cast<size_t>(i * s.k + s.k / 2 + k)] = -as[static_cast<size_t>(i * s.k + k)];
      for (int64_t i = 0; i < s.k / 2 * s.n; ++i)
        bs[static_cast<size_t>(s.k / 2 * s.n + i)] =
            bs[static_cast<size_t>(i)] * (1 + std::ldexp(random.Real(), -12));
      const std::vector<Tensor> inputs = {FromValues({s.m * s.k}, as), FromValues({s.k * s.n}, bs)};
      EXPECT_LE(LargestError(s, inputs, Multiply(s, GetParam(), inputs)), 4 * bound_)
          << left << " " << right;
    }
}

/// Errors of the sums of 512 products, relative to the sums of magnitudes, beside those of a chain
/// of float32 FMAs: three parts are more exact, two have some 16 bits.
TEST_P(PartsProduct, HasTheErrorOfItsParts) {
  Random random(6);
  const MatMulSpec s = Spec(64, 64, 512);
  const std::vector<Tensor> inputs = {RandomTensor(random, {s.m * s.k}),
                                      RandomTensor(random, {s.k * s.n})};
  const Vector a = Values(inputs[0]), b = Values(inputs[1]);
  Vector chain(static_cast<size_t>(s.m * s.n));
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < s.k; ++k)
        sum = std::fma(static_cast<float>(At(a, 0, false, s.m, s.k, i, k)),
                       static_cast<float>(At(b, 0, false, s.k, s.n, k, j)), sum);
      chain[static_cast<size_t>(i * s.n + j)] = sum;
    }
  const double error = LargestError(s, inputs, Multiply(s, GetParam(), inputs));
  if (GetParam().parts == kMostParts) {
    EXPECT_LT(error, LargestError(s, inputs, FromValues({1, s.m, s.n}, chain)));
  } else {
    EXPECT_LT(error, 2e-6);
    EXPECT_GT(error, 5e-7);
  }
}

/// What float32 makes of infinities, NaN and large numbers, in their rows and columns alone.
TEST_P(PartsProduct, TreatsNumbersWithoutPartsAsFloat32Does) {
  const MatMulSpec s = Spec(70, 70, 150);
  Vector as(static_cast<size_t>(s.m * s.k)), bs(static_cast<size_t>(s.k * s.n));
  for (size_t i = 0; i < as.size(); ++i) as[i] = static_cast<double>(i % 7) - 3;
  for (size_t i = 0; i < bs.size(); ++i) bs[i] = static_cast<double>(i % 5) + 1;
  const auto a = [&](int64_t i, int64_t k) -> double& {
    return as[static_cast<size_t>(i * s.k + k)];
  };
  for (int64_t k = 0; k < s.k; ++k) {
    for (const int64_t row : {3, 4, 5, 6, 7}) a(row, k) = 0;
    bs[static_cast<size_t>(k * s.n + 69)] = 0x1p-140;  // denormal
  }
  a(3, 10) = kInfinity;
  a(4, 140) = kNan;
  a(5, 0) = 0x1p127, a(5, 1) = -0x1p127;  // the largest power of two, twice, which cancel
  a(6, 0) = 0x1.fffffep127;               // its nearest bfloat16 number is infinite
  a(7, 149) = 0x1p127;
  const Tensor y =
      Multiply(s, GetParam(), {FromValues({s.m * s.k}, as), FromValues({s.k * s.n}, bs)});
  const Vector got = Values(y);
  const auto at = [&](int64_t i, int64_t j) { return got[static_cast<size_t>(i * s.n + j)]; };
  for (int64_t j = 0; j < s.n - 1; ++j) {
    const auto b = [&](int64_t k) { return bs[static_cast<size_t>(k * s.n + j)]; };
    EXPECT_EQ(at(3, j), kInfinity) << j;
    EXPECT_TRUE(std::isnan(at(4, j))) << j;
    EXPECT_EQ(at(6, j), b(0) == 1 ? 0x1.fffffep127 : kInfinity) << j;
    EXPECT_EQ(at(7, j), b(149) == 1 ? 0x1p127 : kInfinity) << j;
    if (b(0) == 1) {
      EXPECT_EQ(at(5, j), 0) << j;  // b(1) is 1, too
    }
    for (const int64_t i : {0, 2, 8, 69}) {
      double sum = 0;
      for (int64_t k = 0; k < s.k; ++k) sum += a(i, k) * b(k);
      EXPECT_EQ(at(i, j), sum) << i << " " << j;
    }
  }
  EXPECT_EQ(at(6, 69), 0x1.fffffep127 * 0x1p-140);
  EXPECT_EQ(at(7, 69), 0x1p-13);
}

/// Panels of every shape: fewer rows, terms that do not fill a run, both orders in memory.
TEST(PartsProductPacking, OfVectorsHasTheBitsOfThePlainOne) {
  if (AllowedInstructionSet() < InstructionSet::kAvx512Bf16)
    GTEST_SKIP() << "this CPU has no AVX-512 with bfloat16";
  Random random(4);
  for (int i = 0; i < 200; ++i) {
    const bool along = random.Coin();
    const int64_t rows = random.Coin() ? kPanel : random.Int(1, kPanel);
    const int64_t terms = random.Coin() ? kChunk : random.Int(1, kChunk);
    const int64_t steps = (terms + 31) / 32;
    std::vector<float> values(static_cast<size_t>(rows * terms));
    for (float& v : values)
      v = std::ldexp(static_cast<float>(random.Real()), static_cast<int>(random.Int(-100, 100)));
    const Matrix matrix(values.data(), along ? terms : rows, along, rows, terms);
    Runs runs;
    matrix.Locate(0, 0, 0, &runs);
    const Side side = random.Coin() ? Side::kLeft : Side::kRight;
    const int64_t parts = random.Coin() ? kMostParts : kLeastParts;
    alignas(64) static BFloat16 vectors[PackedSize(kMostParts)], plain[PackedSize(kMostParts)];
    for (BFloat16* packed : {vectors, plain})
      std::fill_n(packed, PackedSize(kMostParts), BFloat16(1));
    EXPECT_EQ(Pack({Unit::kAmx, parts}, side, along, runs, steps, vectors, runs),
              Pack({Unit::kPlain, parts}, side, along, runs, steps, plain, runs));
    ASSERT_EQ(std::memcmp(vectors, plain, sizeof(plain)), 0)
        << along << " " << static_cast<int>(side) << " " << rows << " " << terms;
  }
}

/// The model is what tests elsewhere rely on: AMX has its bits.
TEST(PartsProductModel, HasTheBitsOfAmx) {
  if (!cpu::batch_blocked::IsThere(Unit::kAmx)) GTEST_SKIP() << "this CPU has no AMX";
  Random random(5);
  constexpr int64_t kPacked = PackedSize(kMostParts);
  alignas(64) static BFloat16 left[kPacked], right[kPacked];
  alignas(64) static float amx[kPanelSums], plain[kPanelSums];
  for (const int spread : {1, 30, 80}) {  // products of 2^-160 become zeros
    for (auto* factor : {left, right})
      for (int64_t i = 0; i < kPacked; ++i)
        factor[i] = BFloat16(std::ldexp(static_cast<float>(random.Real()),
                                        static_cast<int>(random.Int(-spread, spread / 2))));
    for (const int64_t parts : {kMostParts, kLeastParts})
      for (int64_t steps = 1; steps <= kChunkSteps; ++steps) {
        {
          const Session session(Unit::kAmx);
          MultiplyParts({Unit::kAmx, parts}, left, right, steps, amx);
        }
        MultiplyParts({Unit::kPlain, parts}, left, right, steps, plain);
        for (int64_t i = 0; i < kPanelSums; ++i)
          ASSERT_EQ(amx[i], plain[i]) << i << ", " << parts << " parts, exponents up to " << spread;
      }
  }
}

TEST(PartsProductRange, LeavesOutWhatHasNoParts) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  EXPECT_TRUE(HasParts(bits(1), bits(1)));
  EXPECT_TRUE(HasParts(0, bits(1)));
  EXPECT_TRUE(HasParts(bits(0x1p100f), bits(0x1p-80f)));
  EXPECT_FALSE(HasParts(bits(kInfinity), bits(1)));
  EXPECT_FALSE(HasParts(0, bits(kNan)));
  EXPECT_FALSE(HasParts(bits(0x1p127f), bits(0x1p-80f)));
  EXPECT_FALSE(HasParts(bits(0x1p60f), bits(0x1p60f)));
  EXPECT_FALSE(HasParts(bits(0x1p-91f), bits(1)));
  EXPECT_FALSE(HasParts(bits(0x1p-60f), bits(0x1p-60f)));
}

/// The number of parts follows the precision and strict mode, in all plans' names and errors.
TEST(PartsProductOffer, FollowsThePrecision) {
  const auto made = [] { return cpu::parts_product::MakePlan(Spec(40, 40, 40)); };
  const PrecisionScope precision(Float32Precision::kHighest);
  EXPECT_EQ(made()->factor_error(), 0);
  EXPECT_EQ(made()->Describe().find("high"), std::string::npos);
  SetFloat32Precision(Float32Precision::kHigh);
  EXPECT_EQ(made()->factor_error(), 0x1.8p-15);
  EXPECT_NE(made()->Describe().find("parts, high precision"), std::string::npos);
  const StrictScope strict(true);
  EXPECT_EQ(made()->factor_error(), 0);
  EXPECT_NE(cpu::parts_product::IsOff().find("high precision computes as highest"),
            std::string::npos);
}

/// It is chosen for large products, and not in strict mode or where packing takes longest.
TEST(PartsProductOffer, IsForLargeProductsWithoutStrictMode) {
  if (!cpu::batch_blocked::IsThere(Unit::kAmx)) GTEST_SKIP() << "this CPU has no AMX";
  if (!cpu::parts_product::IsOff().empty()) GTEST_SKIP() << cpu::parts_product::IsOff();
  const Kernel* kernel = FindKernel<MatMulSpec>("amx");
  ASSERT_NE(kernel, nullptr);
  const auto offered = [&](const MatMulSpec& spec) {
    return static_cast<bool>(kernel->Make(SpecRef(spec)));
  };
  EXPECT_TRUE(offered(Spec(512, 512, 512)));
  EXPECT_FALSE(offered(Spec(96, 96, 512)));
  EXPECT_FALSE(offered(Spec(8, 512, 512)));
  EXPECT_FALSE(offered(Spec(512, 512, 16)));
  MatMulSpec wide = Spec(512, 512, 512);
  wide.dtype = kFloat64;
  EXPECT_FALSE(offered(wide));
  {
    const PrecisionScope precision(Float32Precision::kHigh);
    EXPECT_TRUE(offered(Spec(512, 512, 512)));
    EXPECT_TRUE(offered(Spec(96, 96, 512)));  // three products save more
    EXPECT_FALSE(offered(Spec(8, 512, 512)));
  }
  const StrictScope strict(true);
  EXPECT_FALSE(offered(Spec(512, 512, 512)));
}

}  // namespace
}  // namespace singa::test

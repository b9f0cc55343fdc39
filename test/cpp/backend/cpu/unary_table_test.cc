// Functions that are looked up give the bits of `reference`, for every bfloat16.

#include <cstring>

#include "model/dispatch/dispatch.h"
#include "model/formula/vector_unary.h"
#include "model/operation/elementwise/spec.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

constexpr int64_t kArguments = 1 << 16;

Tensor EveryNumber() {
  Tensor x({kArguments}, nullptr, kBFloat16);
  auto* bits = static_cast<uint16_t*>(x.raw_data());
  for (int64_t i = 0; i < kArguments; ++i) bits[i] = static_cast<uint16_t>(i);
  return x;
}

std::vector<uint16_t> Bits(const Tensor& t) {
  const Tensor plain = t.Contiguous();
  std::vector<uint16_t> bits(static_cast<size_t>(t.size()));
  std::memcpy(bits.data(), plain.raw_data(), bits.size() * sizeof(uint16_t));
  for (uint16_t& b : bits)
    if ((b & 0x7fff) > 0x7f80) b = 0x7fc0;  // any NaN
  return bits;
}

/// Expects run() to give the same bits by `reference` and by default.
template <class Run>
void ExpectSameBits(const Run& run, const std::string& what) {
  const std::vector<uint16_t> found = Bits(run());
  const PreferenceScope scope(Preference::kReference);
  EXPECT_EQ(found, Bits(run())) << what;
}

template <class F>
void ForEachFunction(const F& f) {
  for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i)
    if (formula::HasVectorForm(static_cast<UnaryOp>(i))) f(static_cast<UnaryOp>(i));
}

TEST(UnaryTable, EveryNumberHasTheBitsOfReference) {
  const Tensor x = EveryNumber();
  Random random(1);
  const Tensor dy = RandomTensor(random, {kArguments}, kBFloat16, -3, 3);
  ForEachFunction([&](UnaryOp op) {
    const UnarySpec spec{op, kBFloat16};
    EXPECT_EQ(FindPlan(*DefaultDevice(), spec)->Describe(), "cpu table") << UnaryName(op);
    ExpectSameBits([&] { return Unary(op, x); }, UnaryName(op));
    ExpectSameBits([&] { return UnaryBackward(op, dy, x, {}); }, UnaryBackwardName(op));
  });
}

TEST(UnaryTable, ViewsAndThreads) {
  Random random(2);
  for (const int threads : {1, 2}) {
    const ThreadCount scope(threads);
    ForEachFunction([&](UnaryOp op) {
      const Shape shape = {random.Int(1, 40), random.Int(1, 60), random.Int(1, 50)};
      const Tensor x = AnyTensor(random, shape, kBFloat16, -5, 5);
      const Tensor dy = AnyTensor(random, shape, kBFloat16);
      const Tensor out = RandomView(random, shape, kBFloat16);
      ExpectSameBits([&] { return Unary(op, x); }, UnaryName(op));
      ExpectSameBits([&] { return UnaryInto(op, x, out), out; }, UnaryName(op));
      ExpectSameBits([&] { return UnaryBackward(op, dy, x, {}); }, UnaryBackwardName(op));
    });
  }
}

/// The result takes over the memory of its argument.
TEST(UnaryTable, InPlace) {
  Random random(3);
  const Tensor x = RandomTensor(random, {1000}, kBFloat16, -5, 5);
  const std::vector<uint16_t> wanted = Bits(Unary(UnaryOp::kGelu, x));
  UnaryInto(UnaryOp::kGelu, x, x);
  EXPECT_EQ(Bits(x), wanted);
}

}  // namespace
}  // namespace singa::test

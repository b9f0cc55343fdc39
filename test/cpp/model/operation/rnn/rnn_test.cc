#include "singa/operation/rnn.h"

#include <algorithm>

#include "rnn_case.h"
#include "singa/core/device.h"
#include "support.h"

namespace singa::test {
namespace {

struct Arguments {
  RnnHandle handle;
  Tensor x, hx, cx, w, seq_lengths;
  std::vector<int64_t> lengths;

  Arguments(Random& random, const RnnCase& c, DType dtype, double dropout = 0)
      : handle(Tensor({c.steps, c.batch, c.input}, nullptr, dtype), c.hidden, c.mode, c.layers,
               c.bias, dropout, c.directions == 2),
        x(AnyTensor(random, {c.steps, c.batch, c.input}, dtype)),
        w(RandomTensor(random, {handle.weights_size}, dtype, -0.8, 0.8)),
        lengths(c.batch, c.steps) {
    const Shape state{c.layers * c.directions, c.batch, c.hidden};
    if (c.states) hx = AnyTensor(random, state, dtype);
    if (c.states && c.mode == RnnMode::kLstm) cx = AnyTensor(random, state, dtype);
    if (!c.lengths) return;
    for (int64_t& length : lengths) length = random.Int(0, c.steps);
    seq_lengths = FromValues({c.batch}, Vector(lengths.begin(), lengths.end()), kInt32);
  }

  std::vector<Tensor> Forward(bool training = true) const {
    return RnnForward(handle, x, hx, cx, w, seq_lengths, training);
  }
};

// Σ dy·y + Σ dhy·hy + Σ dcy·cy
double Loss(const std::vector<Tensor>& out, const Tensor& dy, const Tensor& dhy,
            const Tensor& dcy) {
  double loss = 0;
  const auto add = [&](const Tensor& value, const Tensor& weight) {
    if (value.empty() || weight.empty()) return;
    const Vector v = Values(value), w = Values(weight);
    for (size_t i = 0; i < v.size(); ++i) loss += v[i] * w[i];
  };
  add(out[0], dy);
  add(out[1], dhy);
  add(out[2], dcy);
  return loss;
}

// Compares all gradients with central differences.
void ExpectGradients(Random& random, Arguments& a, const RnnCase& c, double dropout) {
  const auto state = DefaultDevice()->random_state();
  const auto out = a.Forward();
  const bool lstm = c.mode == RnnMode::kLstm;
  const Tensor dy = random.Int(0, 3) > 0 ? AnyTensor(random, out[0].shape(), kFloat64) : Tensor();
  const Tensor dhy = random.Coin() ? AnyTensor(random, out[1].shape(), kFloat64) : Tensor();
  const Tensor dcy = lstm && random.Coin() ? AnyTensor(random, out[2].shape(), kFloat64) : Tensor();
  const auto grads =
      RnnBackward(a.handle, dy, dhy, dcy, a.x, a.hx, a.cx, a.w, out[0], a.seq_lengths, out[3]);
  ASSERT_EQ(grads[2].empty(), !lstm);
  const auto check = [&](Tensor& argument, const Tensor& gradient, const char* name) {
    if (argument.empty()) return;
    ASSERT_EQ(gradient.shape(), argument.shape());
    const Tensor kept = argument;
    const Vector values = Values(argument), analytic = Values(gradient);
    for (int trial = 0; trial < 12; ++trial) {
      const size_t i = random.Int(0, static_cast<int64_t>(values.size()) - 1);
      constexpr double kStep = 1e-5;
      double loss[2];
      for (int side : {0, 1}) {
        Vector moved = values;
        moved[i] += side == 0 ? -kStep : kStep;
        argument = FromValues(kept.shape(), moved, kFloat64);
        if (dropout > 0) DefaultDevice()->set_random_state(state);
        loss[side] = Loss(a.Forward(), dy, dhy, dcy);
      }
      argument = kept;
      ASSERT_NEAR(analytic[i], (loss[1] - loss[0]) / (2 * kStep), 1e-7) << name << " " << i;
    }
  };
  check(a.x, grads[0], "x");
  check(a.hx, grads[1], "hx");
  check(a.cx, grads[2], "cx");
  check(a.w, grads[3], "W");
}

TEST(Rnn, GradientsOfRandomNetworksAgreeWithDifferences) {
  Random random(42);
  for (int round = 0; round < 160; ++round) {
    const RnnCase c = RandomRnnCase(random, round, 4);
    Arguments a(random, c, kFloat64);
    SCOPED_TRACE("round " + std::to_string(round) + " mode " +
                 std::to_string(static_cast<int>(c.mode)));
    ExpectGradients(random, a, c, 0);
  }
}

TEST(Rnn, DropoutBetweenLayers) {
  Random random(43);
  for (int round = 0; round < 12; ++round) {
    RnnCase c = RandomRnnCase(random, round, 4);
    c.layers = 2 + round % 2;
    Arguments a(random, c, kFloat64, 0.4);
    SCOPED_TRACE("round " + std::to_string(round));
    ExpectGradients(random, a, c, 0.4);
  }
  // In a relu network with identity weights, dropout is the only change.
  const RnnCase c{RnnMode::kRelu, 10, 20, 1, 8, 2, 1, false, false, false};
  Arguments a(random, c, kFloat32, 0.25);
  a.x = Full({10, 20, 1}, 1);
  a.w = Full({a.handle.weights_size}, 0);
  a.w.SliceAxis(0, 0, 8).Fill(1);  // layer 0: h = x
  for (int64_t j = 0; j < 8; ++j) a.w.SliceAxis(0, 72 + 9 * j, 73 + 9 * j).Fill(1);  // identity
  DefaultDevice()->SetRandSeed(5);
  const Vector y = Values(a.Forward()[0]);
  const auto dropped = std::count(y.begin(), y.end(), 0.0);
  EXPECT_NEAR(static_cast<double>(dropped), 1600 * 0.25, 3 * std::sqrt(1600 * 0.25 * 0.75));
  for (double v : y)
    if (v != 0) {
      EXPECT_FLOAT_EQ(static_cast<float>(v), 1 / 0.75f);
    }
  EXPECT_EQ(DefaultDevice()->random_state(), (std::vector<uint64_t>{5, 1600}));
  EXPECT_NE(Values(a.Forward()[0]), y);
  DefaultDevice()->SetRandSeed(5);
  EXPECT_EQ(Values(a.Forward()[0]), y);
  for (double v : Values(a.Forward(false)[0])) EXPECT_EQ(v, 1);  // inference drops nothing
}

TEST(Rnn, LargeNetworksHaveTheSameBitsForAnyNumberOfThreads) {
  Random random(44);
  for (const RnnMode mode : {RnnMode::kLstm, RnnMode::kGru}) {
    const RnnCase c{mode, 9, 37, 40, 48, 2, 2, true, true, true};
    const Arguments a(random, c, kFloat32, 0.3);
    const Tensor dy = RandomTensor(random, {9, 37, 96});
    SameOnThreads({2, 5}, [&] {
      DefaultDevice()->SetRandSeed(1);
      const auto out = a.Forward();
      const auto grads = RnnBackward(a.handle, dy, Tensor(), Tensor(), a.x, a.hx, a.cx, a.w, out[0],
                                     a.seq_lengths, out[3]);
      return ValuesOf({out[0], out[1], grads[0], grads[1], grads[3]});
    });
  }
}

TEST(Rnn, SixteenBitTypesAreComputedInFloat32) {
  Random random(46);
  for (const DType dtype : {kBFloat16, kFloat16}) {
    const RnnCase c{RnnMode::kLstm, 4, 3, 5, 6, 1, 1, true, true, false};
    const Arguments a(random, c, dtype);
    const auto out = a.Forward();
    EXPECT_EQ(out[0].data_type(), dtype);
    EXPECT_EQ(out[3].data_type(), kFloat32);
    const Tensor dy = RandomTensor(random, out[0].shape(), dtype);
    const auto grads = RnnBackward(a.handle, dy, Tensor(), Tensor(), a.x, a.hx, a.cx, a.w, out[0],
                                   Tensor(), out[3]);
    // Results equal rounded float32 results.
    const auto wide = [](const Tensor& t) { return t.AsType(kFloat32); };
    const auto forward =
        RnnForward(a.handle, wide(a.x), wide(a.hx), wide(a.cx), wide(a.w), Tensor());
    const auto backward = RnnBackward(a.handle, wide(dy), Tensor(), Tensor(), wide(a.x), wide(a.hx),
                                      wide(a.cx), wide(a.w), forward[0], Tensor(), forward[3]);
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(Values(out[i]), Values(forward[i].AsType(dtype)));
    EXPECT_EQ(Values(out[3]), Values(forward[3]));
    for (size_t i = 0; i < grads.size(); ++i)
      EXPECT_EQ(Values(grads[i]), Values(backward[i].AsType(dtype)));
  }
}

TEST(Rnn, NoSequences) {
  const Tensor x({3, 0, 2});
  const RnnHandle handle(x, 4, RnnMode::kGru);
  const Tensor w = Full({handle.weights_size}, 1);
  const auto out = RnnForward(handle, x, Tensor(), Tensor(), w, Tensor());
  EXPECT_EQ(out[0].shape(), Shape({3, 0, 4}));
  const auto grads = RnnBackward(handle, out[0], Tensor(), Tensor(), x, Tensor(), Tensor(), w,
                                 out[0], Tensor(), out[3]);
  EXPECT_EQ(Values(grads[3]), Vector(handle.weights_size, 0));
}

}  // namespace
}  // namespace singa::test

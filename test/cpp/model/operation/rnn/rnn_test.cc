#include "singa/operation/rnn.h"

#include <algorithm>

#include "rnn_case.h"
#include "singa/core/device.h"
#include "singa/core/threads.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::ExpectError;
using test::FromValues;
using test::kRnnModes;
using test::Random;
using test::RandomRnnCase;
using test::RandomTensor;
using test::RnnCase;
using test::Values;

using Doubles = std::vector<double>;

int64_t Gates(RnnMode mode) {
  return mode == RnnMode::kLstm ? 4 : mode == RnnMode::kRelu || mode == RnnMode::kTanh ? 1 : 3;
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Result {
  Doubles y, hy, cy;
};

// The network by its formulas, one number at a time. Weights are taken from the flat vector in the
// order that RnnHandle documents.
Result Naive(const RnnCase& c, const Doubles& x, const Doubles& hx, const Doubles& cx,
             const Doubles& w, const std::vector<int64_t>& lengths) {
  const int64_t H = c.hidden, G = Gates(c.mode), N = c.batch, T = c.steps, D = c.directions;
  struct Part {
    const double *w_ih, *w_hh, *b_ih = nullptr, *b_hh = nullptr;
  };
  std::vector<Part> parts;
  const double* next = w.data();
  for (int64_t part = 0; part < c.layers * D; ++part) {
    const int64_t in = part < D ? c.input : D * H;
    parts.push_back({next, next + G * H * in});
    next += G * H * (in + H);
  }
  if (c.bias) {
    for (Part& part : parts) {
      part.b_ih = next;
      part.b_hh = next + G * H;
      next += 2 * G * H;
    }
  }
  EXPECT_EQ(next, w.data() + w.size());

  Result r{{}, Doubles(c.layers * D * N * H), Doubles(c.layers * D * N * H)};
  Doubles input = x;
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const int64_t in = layer == 0 ? c.input : D * H;
    Doubles output(T * N * D * H, 0);
    for (int64_t d = 0; d < D; ++d) {
      const Part& p = parts[layer * D + d];
      for (int64_t n = 0; n < N; ++n) {
        const size_t state = ((layer * D + d) * N + n) * H;
        Doubles h(hx.begin() + state, hx.begin() + state + H);
        Doubles cell(cx.begin() + state, cx.begin() + state + H);
        for (int64_t s = 0; s < lengths[n]; ++s) {
          const int64_t t = d == 0 ? s : lengths[n] - 1 - s;
          const auto from_x = [&](int64_t gate, int64_t j) {
            double sum = c.bias ? p.b_ih[gate * H + j] : 0;
            for (int64_t i = 0; i < in; ++i)
              sum += p.w_ih[(gate * H + j) * in + i] * input[(t * N + n) * in + i];
            return sum;
          };
          const auto from_h = [&](int64_t gate, int64_t j) {
            double sum = c.bias ? p.b_hh[gate * H + j] : 0;
            for (int64_t i = 0; i < H; ++i) sum += p.w_hh[(gate * H + j) * H + i] * h[i];
            return sum;
          };
          Doubles fresh(H);
          for (int64_t j = 0; j < H; ++j) {
            const auto gate = [&](int64_t g) { return from_x(g, j) + from_h(g, j); };
            if (c.mode == RnnMode::kRelu) {
              fresh[j] = std::max(0.0, gate(0));
            } else if (c.mode == RnnMode::kTanh) {
              fresh[j] = std::tanh(gate(0));
            } else if (c.mode == RnnMode::kLstm) {
              cell[j] = Sigmoid(gate(1)) * cell[j] + Sigmoid(gate(0)) * std::tanh(gate(2));
              fresh[j] = Sigmoid(gate(3)) * std::tanh(cell[j]);
            } else if (c.mode == RnnMode::kGruResetBefore) {
              double sum = c.bias ? p.b_hh[2 * H + j] : 0;
              for (int64_t i = 0; i < H; ++i) {
                const double r = Sigmoid(from_x(0, i) + from_h(0, i));
                sum += p.w_hh[(2 * H + j) * H + i] * r * h[i];
              }
              const double z = Sigmoid(gate(1));
              fresh[j] = (1 - z) * std::tanh(from_x(2, j) + sum) + z * h[j];
            } else {
              const double z = Sigmoid(gate(1));
              const double candidate = std::tanh(from_x(2, j) + Sigmoid(gate(0)) * from_h(2, j));
              fresh[j] = (1 - z) * candidate + z * h[j];
            }
          }
          h = fresh;
          for (int64_t j = 0; j < H; ++j) output[((t * N + n) * D + d) * H + j] = h[j];
        }
        std::copy(h.begin(), h.end(), r.hy.begin() + state);
        std::copy(cell.begin(), cell.end(), r.cy.begin() + state);
      }
    }
    input = output;
  }
  r.y = input;
  return r;
}

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
    seq_lengths = FromValues({c.batch}, Doubles(lengths.begin(), lengths.end()), kInt32);
  }

  std::vector<Tensor> Forward(bool training = true) const {
    return RnnForward(handle, x, hx, cx, w, seq_lengths, training);
  }
};

Doubles OrZeros(const Tensor& t, int64_t size) { return t.empty() ? Doubles(size, 0) : Values(t); }

void ExpectNear(const Doubles& actual, const Doubles& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
}

TEST(Rnn, RandomNetworksAgreeWithTheFormulas) {
  Random random(41);
  for (int round = 0; round < 240; ++round) {
    const RnnCase c = RandomRnnCase(random, round, 4);
    const DType dtype = random.Coin() ? kFloat64 : kFloat32;
    const Arguments a(random, c, dtype);
    SCOPED_TRACE("round " + std::to_string(round));
    const int64_t states = c.layers * c.directions * c.batch * c.hidden;
    const Result expected =
        Naive(c, Values(a.x), OrZeros(a.hx, states), OrZeros(a.cx, states), Values(a.w), a.lengths);
    // All activations but relu are contractions, so errors do not grow from step to step.
    const double tolerance = test::Epsilon(dtype) * (c.mode == RnnMode::kRelu ? 4000 : 200);
    for (const bool training : {true, false}) {
      const auto out = a.Forward(training);
      ASSERT_EQ(out[0].shape(), Shape({c.steps, c.batch, c.directions * c.hidden}));
      ASSERT_EQ(out[1].shape(), Shape({c.layers * c.directions, c.batch, c.hidden}));
      ExpectNear(Values(out[0]), expected.y, tolerance);
      ExpectNear(Values(out[1]), expected.hy, tolerance);
      ASSERT_EQ(out[2].empty(), c.mode != RnnMode::kLstm);
      if (!out[2].empty()) ExpectNear(Values(out[2]), expected.cy, tolerance);
      ASSERT_EQ(out[3].empty(), !training);
    }
  }
}

// Σ dy·y + Σ dhy·hy + Σ dcy·cy
double Loss(const std::vector<Tensor>& out, const Tensor& dy, const Tensor& dhy,
            const Tensor& dcy) {
  double loss = 0;
  const auto add = [&](const Tensor& value, const Tensor& weight) {
    if (value.empty() || weight.empty()) return;
    const Doubles v = Values(value), w = Values(weight);
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
    const Doubles values = Values(argument), analytic = Values(gradient);
    for (int trial = 0; trial < 12; ++trial) {
      const size_t i = random.Int(0, static_cast<int64_t>(values.size()) - 1);
      constexpr double kStep = 1e-5;
      double loss[2];
      for (int side : {0, 1}) {
        Doubles moved = values;
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
  const Doubles y = Values(a.Forward()[0]);
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
  const int before = NumThreads();
  for (const RnnMode mode : {RnnMode::kLstm, RnnMode::kGru}) {
    const RnnCase c{mode, 9, 37, 40, 48, 2, 2, true, true, true};
    const Arguments a(random, c, kFloat32, 0.3);
    const Tensor dy = RandomTensor(random, {9, 37, 96});
    std::vector<Doubles> first;
    for (int threads : {1, 2, 5}) {
      SetNumThreads(threads);
      DefaultDevice()->SetRandSeed(1);
      const auto out = a.Forward();
      const auto grads = RnnBackward(a.handle, dy, Tensor(), Tensor(), a.x, a.hx, a.cx, a.w, out[0],
                                     a.seq_lengths, out[3]);
      std::vector<Doubles> all{Values(out[0]), Values(out[1])};
      for (int i : {0, 1, 3}) all.push_back(Values(grads[i]));
      if (first.empty()) first = all;
      EXPECT_EQ(all, first) << "threads " << threads;
    }
  }
  SetNumThreads(before);
}

TEST(Rnn, LargeNetworkAgreesWithTheFormulas) {
  Random random(45);
  for (const RnnMode mode : kRnnModes) {
    const RnnCase c{mode, 6, 35, 30, 24, 2, 2, true, true, true};
    const Arguments a(random, c, kFloat64);
    const Result expected =
        Naive(c, Values(a.x), Values(a.hx), OrZeros(a.cx, 4 * 35 * 24), Values(a.w), a.lengths);
    const auto out = a.Forward();
    // Values of relu networks grow, so the tolerance is relative to the largest one.
    double scale = 1;
    for (double v : expected.hy) scale = std::max(scale, std::abs(v));
    ExpectNear(Values(out[0]), expected.y, 1e-12 * scale);
    ExpectNear(Values(out[1]), expected.hy, 1e-12 * scale);
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
    const Result expected =
        Naive(c, Values(a.x), Values(a.hx), Values(a.cx), Values(a.w), a.lengths);
    ExpectNear(Values(out[0]), expected.y, test::Epsilon(dtype));
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
  EXPECT_EQ(Values(grads[3]), Doubles(handle.weights_size, 0));
}

TEST(Rnn, Errors) {
  const Tensor x({3, 2, 5});
  const RnnHandle lstm(x, 4, RnnMode::kLstm, 2, true, 0, true);
  EXPECT_EQ(lstm.weights_size, 2 * 16 * (5 + 4) + 2 * 16 * (8 + 4) + 4 * 2 * 16);
  const Tensor w = Full({lstm.weights_size}, 0.1);
  const Tensor none;
  const auto forward = [&](const Tensor& x, const Tensor& hx, const Tensor& w,
                           const Tensor& lengths) {
    return RnnForward(lstm, x, hx, none, w, lengths);
  };
  ExpectError<std::invalid_argument>(
      [&] {
        RnnHandle(Tensor({3, 2}), 4, RnnMode::kGru);
      },
      "[RnnHandle] x must be (seq, batch, input), got");
  ExpectError<std::invalid_argument>(
      [&] {
        RnnHandle(Tensor({3, 2, 0}), 4, RnnMode::kGru);
      },
      "features");
  ExpectError<std::invalid_argument>([&] { RnnHandle(x, 0, RnnMode::kGru); }, "hidden_size");
  ExpectError<std::invalid_argument>([&] { RnnHandle(x, 4, RnnMode::kGru, 0); }, "num_layers");
  ExpectError<std::invalid_argument>([&] { RnnHandle(x, 4, static_cast<RnnMode>(5)); },
                                     "unknown mode 5");
  ExpectError<std::invalid_argument>([&] { RnnHandle(x, 4, RnnMode::kGru, 1, true, 1.0); },
                                     "dropout must be in [0, 1), got 1");
  ExpectError<std::invalid_argument>(
      [&] {
        forward(Tensor({3, 2, 4}), none, w, none);
      },
      "[RnnForward] x must be (seq > 0, batch, 5), got");
  ExpectError<std::invalid_argument>([&] { forward(Tensor({0, 2, 5}), none, w, none); }, "seq > 0");
  ExpectError<std::invalid_argument>(
      [&] {
        forward(x, Tensor({4, 2, 5}), w, none);
      },
      "hx must have shape (4, 2, 4), got");
  ExpectError<std::invalid_argument>([&] { forward(x, none, Tensor({7}), none); }, "W must have");
  ExpectError<std::invalid_argument>([&] { forward(x, none, Tensor(), none); }, "W is an empty");
  ExpectError<TypeError>([&] { forward(x, none, w.AsType(kFloat64), none); }, "W must be float32");
  ExpectError<TypeError>([&] { forward(x.AsType(kInt32), none, w, none); }, "float type");
  ExpectError<TypeError>([&] { forward(x, none, w, Full({2}, 1)); }, "seq_lengths must be int32");
  ExpectError<std::invalid_argument>([&] { forward(x, none, w, Full({2}, 4, nullptr, kInt32)); },
                                     "[RnnForward] seq_lengths[0] = 4 is outside [0, 3]");
  const RnnHandle gru(x, 4, RnnMode::kGru);
  ExpectError<std::invalid_argument>(
      [&] {
        RnnForward(gru, x, none, Tensor({1, 2, 4}), Tensor({gru.weights_size}), none);
      },
      "only an LSTM has a cx");
  const auto inference = RnnForward(lstm, x, none, none, w, none, false);
  ExpectError<std::invalid_argument>(
      [&] {
        RnnBackward(lstm, inference[0], none, none, x, none, none, w, inference[0], none,
                    inference[3]);
      },
      "[RnnBackward] saved (forward with training = true makes it) is an empty");
}

}  // namespace
}  // namespace singa

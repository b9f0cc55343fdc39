// Recurrent networks by panels, with vectors of both widths, on any CPU and any number of threads,
// against `reference` in float64.

#include "backend/cpu/rnn/rnn.h"

#include <algorithm>
#include <csignal>
#include <mutex>
#include <stdexcept>

#include "backend/cpu/rnn/network.h"
#include "backend/cpu/rnn/team.h"
#include "core/device/parallel.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/rnn/rnn_case.h"
#include "singa/core/device.h"

namespace singa::test {
namespace {

using Tensors = std::vector<Tensor>;

class CpuRnn : public testing::TestWithParam<int64_t> {
 protected:
  const ThreadCount threads_;
};
INSTANTIATE_TEST_SUITE_P(Lanes, CpuRnn, testing::Values(8, 16));

RnnFields FieldsOf(const RnnCase& c, double dropout = 0) {
  return {c.mode,   kFloat32,     c.steps, c.batch, c.input, c.hidden,
          c.layers, c.directions, c.bias,  dropout, true};
}

/// Arguments of both passes. Weights are so small that values of relu networks do not grow.
struct Arguments {
  Arguments(Random& random, const RnnCase& c, double dropout = 0) : fields(FieldsOf(c, dropout)) {
    const double limit = 1 / std::sqrt(static_cast<double>(c.hidden));
    const Shape state{c.layers * c.directions, c.batch, c.hidden};
    const Shape output{c.steps, c.batch, c.directions * c.hidden};
    const bool cells = c.states && fields.has_cells();
    x = RandomTensor(random, {c.steps, c.batch, c.input});
    w = RandomTensor(random, {fields.weights_size()}, kFloat32, -limit, limit);
    if (c.states) hx = RandomTensor(random, state), dhy = RandomTensor(random, state);
    if (cells) cx = RandomTensor(random, state), dcy = RandomTensor(random, state);
    if (!c.states || random.Coin()) dy = RandomTensor(random, output);
    if (!c.lengths) return;
    Vector values;
    for (int64_t n = 0; n < c.batch; ++n)
      values.push_back(static_cast<double>(random.Int(0, c.steps)));
    lengths = FromValues({c.batch}, values, kInt32);
  }

  RnnFields fields;
  Tensor x, hx, cx, w, lengths, dy, dhy, dcy;
};

Tensor As(const Tensor& t, DType dtype) {
  return t.empty() || t.data_type() == kInt32 ? t : t.AsType(dtype);
}

/// {y, hy, cy, saved} by a plan. Outputs begin with numbers that show what is not written.
Tensors Forward(const Arguments& a, RnnForwardSpec spec, const PlanPtr& plan) {
  const auto fresh = [&](const Shape& shape) { return Full(shape, kNan, nullptr, spec.dtype); };
  const Shape state{spec.layers * spec.directions, spec.batch, spec.hidden};
  const Tensors outputs{fresh({spec.steps, spec.batch, spec.width()}), fresh(state),
                        spec.has_cells() ? fresh(state) : Tensor(),
                        spec.training ? fresh({spec.saved_size()}) : Tensor()};
  Scalars scalars;
  scalars.seed = 7, scalars.offset = 11;
  Tensors inputs;
  for (const Tensor& t : {a.x, a.hx, a.cx, a.w, a.lengths}) inputs.push_back(As(t, spec.dtype));
  inputs[3] = InPlanLayout(*plan, 3, inputs[3]);
  DefaultDevice()->Exec(spec.op(), plan, inputs, outputs, scalars);
  return outputs;
}

/// {dx, dhx, dcx, dw}
Tensors Backward(const Arguments& a, const RnnBackwardSpec& spec, const PlanPtr& plan,
                 const Tensor& saved) {
  const auto like = [&](const Shape& shape) { return Full(shape, 77, nullptr, spec.dtype); };
  const Shape state{spec.layers * spec.directions, spec.batch, spec.hidden};
  const Tensors outputs{like(a.x.shape()), like(state), spec.has_cells() ? like(state) : Tensor(),
                        like(a.w.shape())};
  Tensors inputs;
  for (const Tensor& t : {a.dy, a.dhy, a.dcy, a.x, a.hx, a.cx, a.w, a.lengths, saved})
    inputs.push_back(As(t, spec.dtype));
  DefaultDevice()->Exec(spec.op(), plan, inputs, outputs);
  return outputs;
}

template <class Spec>
PlanPtr ReferencePlan(const Spec& spec) {
  return FindKernel<Spec>("reference")->Make(spec).plan();
}

/// Errors relative to the largest element: each step's sums add some roundings to those of its
/// state.
void ExpectClose(const Tensor& got, const Tensor& want, int64_t terms, const std::string& what) {
  ASSERT_EQ(got.empty(), want.empty()) << what;
  if (got.empty()) return;
  const Vector values = Values(got), wanted = Values(want);
  double largest = 1;
  for (const double v : wanted) largest = std::max(largest, std::abs(v));
  const double tolerance = 16 * Epsilon(kFloat32) * largest * std::sqrt(static_cast<double>(terms));
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], wanted[i], tolerance) << what << "[" << i << "]";
}

void CheckCase(Random& random, const RnnCase& c, int64_t lanes, double dropout = 0) {
  const Arguments a(random, c, dropout);
  RnnForwardSpec forward{a.fields}, wide = forward;
  RnnBackwardSpec backward{a.fields}, wide_backward = backward;
  wide.dtype = wide_backward.dtype = kFloat64;
  const Tensors want = Forward(a, wide, ReferencePlan(wide));
  const Tensors gradients = Backward(a, wide_backward, ReferencePlan(wide_backward), want[3]);
  const auto check = [&](const Tensors& got, const Tensors& wanted, size_t count, int64_t terms) {
    const char* names[] = {"0", "1", "2", "3"};
    for (size_t i = 0; i < count; ++i) ExpectClose(got[i], wanted[i], terms, names[i]);
  };
  std::vector<Vector> first;
  for (const int threads : {1, 2, 5}) {
    SCOPED_TRACE("threads " + std::to_string(threads));
    SetNumThreads(threads);
    const Tensors out = Forward(a, forward, cpu::rnn::MakePlan(forward, lanes));
    check(out, want, 3, forward.sum_length());
    const Tensors back = Backward(a, backward, cpu::rnn::MakePlan(backward, lanes), out[3]);
    check(back, gradients, 4, backward.sum_length());
    std::vector<Vector> all;
    for (const Tensors* results : {&out, &back})
      for (size_t i = 0; i < 3; ++i)
        if (!(*results)[i].empty()) all.push_back(Values((*results)[i]));
    all.push_back(Values(back[3]));
    if (first.empty()) first = all;
    EXPECT_EQ(all, first);
    if (dropout > 0) continue;  // is for training
    RnnForwardSpec inference = forward;
    inference.training = false;
    const Tensors inferred = Forward(a, inference, cpu::rnn::MakePlan(inference, lanes));
    for (size_t i = 0; i < 3; ++i)
      if (!out[i].empty()) {
        EXPECT_EQ(Values(inferred[i]), Values(out[i]));
      }
  }
}

std::string Describe(const RnnCase& c) {
  std::string text = "mode " + std::to_string(static_cast<int>(c.mode));
  for (const int64_t size : {c.steps, c.batch, c.input, c.hidden, c.layers, c.directions})
    text += " " + std::to_string(size);
  return text + (c.bias ? " bias" : "") + (c.states ? " states" : "") +
         (c.lengths ? " lengths" : "");
}

TEST_P(CpuRnn, RandomNetworksAgreeWithReference) {
  Random random(51);
  for (int round = 0; round < 60; ++round) {
    RnnCase c = RandomRnnCase(random, round, 70);
    c.batch = random.Int(1, 20);
    SCOPED_TRACE(Describe(c));
    CheckCase(random, c, GetParam());
    if (HasFatalFailure()) return;
  }
}

TEST_P(CpuRnn, LargeNetworksAgreeWithReference) {
  Random random(52);
  for (const RnnMode mode : kRnnModes)
    for (const int64_t batch : {1, 21}) {
      // Several threads are worth their start here.
      const RnnCase c{mode, 5, batch, 100, 150, 2, 1 + batch % 4 / 2, true, true, batch > 1};
      SCOPED_TRACE(Describe(c));
      CheckCase(random, c, GetParam());
      if (HasFatalFailure()) return;
    }
}

TEST_P(CpuRnn, DropoutIsThatOfReference) {
  Random random(53);
  for (int round = 0; round < 10; ++round) {
    RnnCase c = RandomRnnCase(random, round, 30);
    c.layers = 2 + round % 2;
    SCOPED_TRACE(Describe(c));
    CheckCase(random, c, GetParam(), 0.4);
    if (HasFatalFailure()) return;
  }
}

TEST_P(CpuRnn, NotANumberStaysInItsSequence) {
  Random random(54);
  for (const RnnMode mode : kRnnModes) {
    const RnnCase c{mode, 4, 7, 20, 40, 2, 1, true, false, false};
    Arguments a(random, c);
    const Tensor clean = a.x.Clone();
    a.x = clean.Clone();
    a.x.SliceAxis(0, 1, 2).SliceAxis(1, 3, 4).Fill(kNan);
    RnnForwardSpec spec{a.fields};
    spec.training = false;
    const PlanPtr plan = cpu::rnn::MakePlan(spec, GetParam());
    const Vector y = Values(Forward(a, spec, plan)[0]);
    a.x = clean;
    const Vector without = Values(Forward(a, spec, plan)[0]);
    for (size_t i = 0; i < y.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / c.hidden;
      if (row % c.batch == 3 && row / c.batch >= 1) {
        ASSERT_TRUE(std::isnan(y[i])) << i;
      } else {
        ASSERT_EQ(y[i], without[i]) << i;
      }
    }
  }
}

TEST_P(CpuRnn, PackedWeightsComeBack) {
  Random random(55);
  for (int round = 0; round < 40; ++round) {
    const Arguments a(random, RandomRnnCase(random, round, 40));
    const LayoutPtr layout = cpu::rnn::PackedLayout(a.fields, GetParam());
    const Tensor packed = a.w.ToLayout(layout);
    ASSERT_EQ(packed.layout(), layout);
    EXPECT_EQ(Values(packed.ToLayout(nullptr)), Values(a.w));
  }
  const RnnFields fields = FieldsOf({RnnMode::kLstm, 2, 3, 4, 5, 1, 1, true, true, false});
  RnnFields longer = fields, wider = fields;
  longer.steps = 9, wider.input = 5;
  const LayoutPtr layout = cpu::rnn::PackedLayout(fields, GetParam());
  EXPECT_TRUE(layout->Equals(*cpu::rnn::PackedLayout(longer, GetParam())));
  EXPECT_FALSE(layout->Equals(*cpu::rnn::PackedLayout(wider, GetParam())));
  EXPECT_FALSE(layout->Equals(*cpu::rnn::PackedLayout(fields, 24 - GetParam())));
}

TEST_P(CpuRnn, StepsBeyondALengthGiveZeros) {
  Random random(56);
  const RnnCase c{RnnMode::kGru, 6, 3, 5, 33, 1, 2, true, true, true};
  Arguments a(random, c);
  a.lengths = FromValues({3}, {0, 2, 6}, kInt32);
  RnnForwardSpec spec{a.fields};
  spec.training = false;
  const Tensors out = Forward(a, spec, cpu::rnn::MakePlan(spec, GetParam()));
  const Vector y = Values(out[0]);
  const int64_t lengths[] = {0, 2, 6};
  for (size_t i = 0; i < y.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / 66;
    if (row / 3 >= lengths[row % 3]) {
      ASSERT_EQ(y[i], 0) << i;
    }
  }
  const Vector hx = Values(a.hx), hy = Values(out[1]);
  for (size_t j = 0; j < 33; ++j) EXPECT_EQ(hy[j], hx[j]);  // the sequence without steps
}

/// Runs steps and expects that all parts of a step end before one of the next begins.
void ExpectInStep(const cpu::rnn::Division& division, int64_t steps) {
  std::vector<std::vector<int64_t>> ends(static_cast<size_t>(division.groups));
  std::mutex mutex;
  cpu::rnn::RunInStep(division, steps, [&](int64_t group, int64_t part, int64_t step) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto& done = ends[static_cast<size_t>(group)];
    EXPECT_GE(static_cast<int64_t>(done.size()), step * division.parts);
    EXPECT_LT(part, division.parts);
    done.push_back(step * division.parts + part);
  });
  for (auto& done : ends) {
    std::sort(done.begin(), done.end());
    ASSERT_EQ(static_cast<int64_t>(done.size()), steps * division.parts);
    for (size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i], static_cast<int64_t>(i));
  }
}

TEST(CpuRnnTeam, AllPartsOfAStepEndBeforeTheNext) {
  const ThreadCount scope;
  for (const int threads : {1, 2, 4})
    for (const int64_t groups : {1, 3})
      for (const int64_t parts : {1, 4}) {
        SetNumThreads(threads);
        ExpectInStep({groups, parts}, 50);
        // Inside a parallel region there is one thread, which does everything.
        ForEachThread(2, [&](int64_t) { ExpectInStep({groups, parts}, 5); });
      }
}

/// The other threads would wait for ever.
TEST(CpuRnnTeam, AnExceptionEndsTheProgram) {
  const ThreadCount scope;
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SetNumThreads(2);
  const auto run = [] {
    cpu::rnn::RunInStep({1, 2}, 3, [](int64_t, int64_t part, int64_t) {
      if (part == 1) throw std::runtime_error("a part failed");
    });
  };
  EXPECT_EXIT(run(), testing::KilledBySignal(SIGABRT), "a part failed");
}

}  // namespace
}  // namespace singa::test

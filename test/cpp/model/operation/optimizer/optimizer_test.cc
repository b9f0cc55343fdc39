#include "singa/operation/optimizer.h"

#include "model/operation/optimizer/spec.h"
#include "model/operation/padded_layout.h"
#include "singa/core/stats.h"
#include "support.h"

namespace singa::test {
namespace {

/// Sizes that end inside a piece of the loop, at its end, and after it.
const Shape kShapes[] = {{3}, {16384}, {16385}, {2, 3, 4}, {0}, {40000}};

struct Step {
  std::vector<Tensor> params, grads, a, b;
  Vector decay;
};

Step MakeStep(DType dtype, uint64_t seed) {
  Random random(seed);
  Step step;
  const DType state = dtype == kFloat64 ? kFloat64 : kFloat32;
  for (const Shape& shape : kShapes) {
    step.params.push_back(RandomTensor(random, shape, dtype));
    step.grads.push_back(RandomTensor(random, shape, dtype));
    step.a.push_back(RandomTensor(random, shape, state, 0.1, 1));
    step.b.push_back(RandomTensor(random, shape, state, 0.1, 1));
    step.decay.push_back(step.decay.size() % 2 ? 0.0 : 0.01);
  }
  return step;
}

void ExpectClose(const Tensor& got, const Vector& want) {
  const Vector values = Values(got);
  ASSERT_EQ(values.size(), want.size());
  const double eps = 8 * Epsilon(got.data_type());
  for (size_t i = 0; i < want.size(); ++i)
    ASSERT_NEAR(values[i], want[i], eps * (1 + std::abs(want[i]))) << i;
}

/// Runs `update` on a step and compares parameters and states with `formula(p, g, a, b)` in
/// float64.
template <class Update, class Formula>
void Compare(const Update& update, const Formula& formula) {
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    Step step = MakeStep(dtype, 3);
    std::vector<Vector> p, a, b;
    for (size_t i = 0; i < step.params.size(); ++i) {
      p.push_back(Values(step.params[i]));
      a.push_back(Values(step.a[i]));
      b.push_back(Values(step.b[i]));
      const Vector g = Values(step.grads[i]);
      for (size_t j = 0; j < g.size(); ++j) formula(p[i][j], g[j], a[i][j], b[i][j], step.decay[i]);
    }
    update(step);
    for (size_t i = 0; i < step.params.size(); ++i) {
      ExpectClose(step.params[i], p[i]);
      ExpectClose(step.a[i], a[i]);
      ExpectClose(step.b[i], b[i]);
    }
  }
}

TEST(Optimizer, SgdFollowsItsFormula) {
  for (bool nesterov : {false, true})
    for (double dampening : {0.0, 0.3}) {
      if (nesterov && dampening > 0) continue;
      Compare(
          [&](Step& s) {
            SgdUpdate(s.params, s.grads, s.a, s.decay, 0.1, 0.9, dampening, nesterov, false);
          },
          [&](double& p, double g, double& m, double&, double decay) {
            g += decay * p;
            m = 0.9 * m + (1 - dampening) * g;
            p -= 0.1 * (nesterov ? g + 0.9 * m : m);
          });
    }
  Compare([](Step& s) { SgdUpdate(s.params, s.grads, {}, s.decay, 0.1, 0, 0, false, false); },
          [](double& p, double g, double&, double&, double decay) { p -= 0.1 * (g + decay * p); });
}

TEST(Optimizer, FirstStepIgnoresTheBuffer) {
  const Tensor p = FromValues({2}, {1, 2}), g = FromValues({2}, {0.5, -1});
  const Tensor m = FromValues({2}, {kNan, 7});
  SgdUpdate({p}, {g}, {m}, {0}, 0.1, 0.9, 0.5, false, true);
  EXPECT_EQ(Values(m), (Vector{0.5, -1}));
  EXPECT_NEAR(Values(p)[0], 0.95, 1e-6);
  EXPECT_NEAR(Values(p)[1], 2.1, 1e-6);
}

TEST(Optimizer, RmsPropAdaGradAndAdamFollowTheirFormulas) {
  Compare([](Step& s) { RmsPropUpdate(s.params, s.grads, s.a, s.decay, 0.01, 0.9, 1e-8); },
          [](double& p, double g, double& v, double&, double decay) {
            g += decay * p;
            v = 0.9 * v + 0.1 * g * g;
            p -= 0.01 * g / std::sqrt(v + 1e-8);
          });
  Compare([](Step& s) { AdaGradUpdate(s.params, s.grads, s.a, s.decay, 0.01, 1e-8); },
          [](double& p, double g, double& v, double&, double decay) {
            g += decay * p;
            v += g * g;
            p -= 0.01 * g / std::sqrt(v + 1e-8);
          });
  for (bool decoupled : {false, true})
    Compare(
        [&](Step& s) {
          AdamUpdate(s.params, s.grads, s.a, s.b, s.decay, 0.01, 0.9, 0.999, 1e-8, 4, decoupled);
        },
        [&](double& p, double g, double& m, double& v, double decay) {
          if (decoupled) {
            p *= 1 - 0.01 * decay;
          } else {
            g += decay * p;
          }
          m = 0.9 * m + 0.1 * g;
          v = 0.999 * v + 0.001 * g * g;
          const double m_hat = m / (1 - std::pow(0.9, 4)), v_hat = v / (1 - std::pow(0.999, 4));
          p -= 0.01 * m_hat / (std::sqrt(v_hat) + 1e-8);
        });
}

TEST(Optimizer, ThreadsDoNotChangeABit) {
  SameOnThreads({2, 5}, [] {
    Step s = MakeStep(kFloat32, 11);
    AdamUpdate(s.params, s.grads, s.a, s.b, s.decay, 0.01, 0.9, 0.999, 1e-8, 1, true);
    return std::pair(GlobalNorm(s.params), ValuesOf(s.params));
  });
}

// 1 − beta and lr / (1 − beta^step) must be computed in float64: in float32, 1 − 0.999 has an error
// of 5e-5.
TEST(Optimizer, ConstantsAreNotRoundedTooEarly) {
  const Tensor p = Full({1}, 0), g = Full({1}, 1), m = Full({1}, 0), v = Full({1}, 0);
  AdamUpdate({p}, {g}, {m}, {v}, {0}, 0.1, 0.9, 0.999, 1e-8, 1, false);
  EXPECT_FLOAT_EQ(static_cast<float>(Values(m)[0]), 0.1f);
  EXPECT_FLOAT_EQ(static_cast<float>(Values(v)[0]), 0.001f);
  EXPECT_FLOAT_EQ(static_cast<float>(Values(p)[0]), -0.1f);
  const Tensor average = Full({1}, 0);
  RmsPropUpdate({p}, {g}, {average}, {0}, 0.1, 0.999, 1e-8);
  EXPECT_FLOAT_EQ(static_cast<float>(Values(average)[0]), 0.001f);
}

TEST(Optimizer, GradientsOfAnotherType) {
  Random random(5);
  const Shape shape{3, 1000};
  for (const DType dtype : {kFloat32, kBFloat16, kFloat64}) {
    for (const DType gradient : {kBFloat16, kFloat16, kFloat32, kFloat64}) {
      const Tensor p = RandomTensor(random, shape, dtype), q = p.Clone();
      const DType wide = dtype == kFloat64 ? kFloat64 : kFloat32;
      const Tensor m = Full(shape, 0.5, nullptr, wide), n = m.Clone();
      const Tensor g = RandomView(random, shape, gradient);
      SgdUpdate({p}, {g}, {m}, {0.1}, 0.1, 0.9, 0, true, false);
      SgdUpdate({q}, {g.AsType(wide)}, {n}, {0.1}, 0.1, 0.9, 0, true, false);
      EXPECT_EQ(Values(p), Values(q));
      EXPECT_EQ(Values(m), Values(n));
    }
  }
}

TEST(Optimizer, InfinityStaysWithoutDecay) {
  const Tensor p = FromValues({2}, {kInf, 1}), g = FromValues({2}, {1, kInf}), m = Full({2}, 0);
  SgdUpdate({p}, {g}, {m}, {0}, 0.1, 0.9, 0, false, false);
  EXPECT_EQ(Values(p), (Vector{kInf, -kInf}));
}

// Parameters keep their layout, states change to it, and later updates reorder nothing.
TEST(Optimizer, WorksInTheParametersLayout) {
  Random random(6);
  const Shape shape{4, 3, 5};
  const auto steps = [&](const auto& update) {
    const Tensor p = RandomTensor(random, shape), g = RandomTensor(random, shape);
    const Tensor a = RandomTensor(random, shape, kFloat32, 0, 1);
    const Tensor b = RandomTensor(random, shape, kFloat32, 0, 1);
    const Tensor pp = PaddedLayout::Of(p), pg = PaddedLayout::Of(g);
    const Tensor pa = a.Clone(), pb = b.Clone();
    for (int step = 0; step < 3; ++step) {
      update(p, g, a, b);
      update(pp, step == 1 ? g : pg, pa, pb);
      EXPECT_TRUE(IsPaddedWithZeros(pp));
      EXPECT_EQ(Values(pp), Values(p));
      EXPECT_EQ(Values(pa), Values(a));
      EXPECT_EQ(Values(pb), Values(b));
    }
    EXPECT_TRUE(IsPaddedWithZeros(pa));
    const uint64_t reorders = GetReorderStats().count;
    update(pp, pg, pa, pb);
    EXPECT_EQ(GetReorderStats().count, reorders);
    EXPECT_NEAR(GlobalNorm({pp, pg}), GlobalNorm({pp.Plain(), pg.Plain()}), 1e-6);
    ScaleAll({pp}, 0.5);
    EXPECT_TRUE(IsPaddedWithZeros(pp));
  };
  using T = const Tensor&;
  steps([](T p, T g, T a, T) { SgdUpdate({p}, {g}, {a}, {0.1}, 0.1, 0.9, 0, true, false); });
  steps([](T p, T g, T a, T) { RmsPropUpdate({p}, {g}, {a}, {0.1}, 0.1, 0.9, 1e-8); });
  steps([](T p, T g, T a, T) { AdaGradUpdate({p}, {g}, {a}, {0.1}, 0.1, 1e-8); });
  steps([](T p, T g, T a, T b) {
    AdamUpdate({p}, {g}, {a}, {b}, {0.1}, 0.1, 0.9, 0.999, 1e-8, 2, true);
  });
  // A state that is a view of a larger tensor cannot change its layout, so all become plain.
  const Tensor p = PaddedLayout::Of(RandomTensor(random, {4})), g = Full({4}, 1);
  const Tensor m = Full({8}, 0).SliceAxis(0, 0, 4);
  SgdUpdate({p}, {g}, {m}, {0}, 0.1, 0.9, 0, false, false);
  EXPECT_FALSE(p.is_blocked());
  EXPECT_EQ(Values(m), (Vector{1, 1, 1, 1}));
  // All become plain, too, if the formula would divide zero by zero in the padding.
  const Tensor q = PaddedLayout::Of(RandomTensor(random, {4})), v = Full({4}, 0);
  AdaGradUpdate({q}, {g}, {v}, {0}, 0.1, 0);
  EXPECT_FALSE(q.is_blocked());
}

TEST(Optimizer, SkipsParametersWithoutGradientAndCountsWrites) {
  const Tensor p = FromValues({2}, {1, 2}), q = FromValues({2}, {1, 2}),
               g = FromValues({2}, {1, 1});
  const uint64_t before = p.version(), untouched = q.version();
  SgdUpdate({p, q}, {g, Tensor()}, {}, {0, 0}, 1, 0, 0, false, false);
  EXPECT_EQ(Values(p), (Vector{0, 1}));
  EXPECT_EQ(Values(q), (Vector{1, 2}));
  EXPECT_GT(p.version(), before);
  EXPECT_EQ(q.version(), untouched);
}

TEST(Optimizer, NormAndScale) {
  const Tensor a = FromValues({2}, {3, 0}), b = FromValues({1}, {4}, kFloat64);
  EXPECT_DOUBLE_EQ(GlobalNorm({a, Tensor(), b}), 5);
  EXPECT_EQ(GlobalNorm({}), 0);
  ScaleAll({a, Tensor(), b}, 0.5);
  EXPECT_EQ(Values(a), (Vector{1.5, 0}));
  EXPECT_EQ(Values(b), (Vector{2}));
}

TEST(Optimizer, DividesByALossScaleOrLeavesTheUpdateOut) {
  const auto update = [](OptimizerKind kind, const Step& s, const Tensor& squares,
                         const Tensor& scale) {
    const UpdateConditions conditions{squares, scale};
    switch (kind) {
      case OptimizerKind::kSgd:
        return SgdUpdate(s.params, s.grads, s.a, s.decay, 0.1, 0.9, 0, true, false, nullptr,
                         conditions);
      case OptimizerKind::kRmsProp:
        return RmsPropUpdate(s.params, s.grads, s.a, s.decay, 0.01, 0.9, 1e-8, nullptr, conditions);
      case OptimizerKind::kAdaGrad:
        return AdaGradUpdate(s.params, s.grads, s.a, s.decay, 0.01, 1e-8, nullptr, conditions);
      case OptimizerKind::kAdam:
        return AdamUpdate(s.params, s.grads, s.a, s.b, s.decay, 0.01, 0.9, 0.999, 1e-8, 3, true,
                          nullptr, conditions);
      case OptimizerKind::kCount:
        return;
    }
  };
  const auto values = [](const Step& s) {
    std::vector<Vector> all;
    for (const auto* tensors : {&s.params, &s.a, &s.b})
      for (const Tensor& t : *tensors) all.push_back(Values(t));
    return all;
  };
  const Tensor scale = FromValues({4}, {8, 0, 0, 0}, kFloat64);
  for (const OptimizerFacts& rule : kOptimizerFacts)
    for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
      const Step plain = MakeStep(dtype, 3), scaled = MakeStep(dtype, 3);
      update(rule.kind, plain, Tensor(), Tensor());
      ScaleAll(scaled.grads, 8);
      update(rule.kind, scaled, SumsOfSquares(scaled.grads), scale);
      EXPECT_EQ(values(scaled), values(plain));
      for (double wrong : {INFINITY, -INFINITY, NAN}) {
        Tensor(scaled.grads[5].SliceAxis(0, 39'999, 40'000)).Fill(wrong);
        update(rule.kind, scaled, SumsOfSquares(scaled.grads), scale);
        EXPECT_EQ(values(scaled), values(plain));
      }
    }
}

TEST(Optimizer, ClipsByTheNormOfAllGradients) {
  const auto update = [](const Step& s, const UpdateConditions& conditions) {
    SgdUpdate(s.params, s.grads, s.a, s.decay, 0.1, 0.9, 0, false, false, nullptr, conditions);
    std::vector<Vector> all;
    for (const Tensor& t : s.params) all.push_back(Values(t));
    return all;
  };
  for (double limit : {0.5, 1e9}) {
    const Step clipped = MakeStep(kFloat32, 3), plain = MakeStep(kFloat32, 3);
    const double factor = limit / (GlobalNorm(plain.grads) + 1e-6);
    const Tensor squares = SumsOfSquares(clipped.grads);
    if (factor < 1) ScaleAll(plain.grads, factor);
    EXPECT_EQ(update(clipped, {squares, Tensor(), limit}), update(plain, {}));
    // Clipping uses the norm of the gradients without the loss scale.
    const Step scaled = MakeStep(kFloat32, 3), alone = MakeStep(kFloat32, 3);
    ScaleAll(scaled.grads, 8);
    const UpdateConditions both{SumsOfSquares(scaled.grads),
                                FromValues({4}, {8, 0, 0, 0}, kFloat64), limit};
    EXPECT_EQ(update(scaled, both), update(alone, {squares, Tensor(), limit}));
  }
}

TEST(Optimizer, TakesItsNumbersByTheCountOfUpdates) {
  const auto update = [](const Step& s, double lr, int64_t step, UpdateScalars* numbers,
                         const UpdateConditions& conditions = {}) {
    AdamUpdate(s.params, s.grads, s.a, s.b, s.decay, lr, 0.9, 0.999, 1e-8, step, true, numbers,
               conditions);
    std::vector<Vector> all;
    for (const auto* tensors : {&s.params, &s.a, &s.b})
      for (const Tensor& t : *tensors) all.push_back(Values(t));
    return all;
  };
  const auto rate = [](double made) { return 0.1 / (1 + made); };
  UpdateScalars numbers;
  EXPECT_ERROR(std::logic_error, "no scalars", (void)numbers.Table(0, 4));
  numbers.Collect();
  for (int made = 3; made < 7; ++made) update(Step{}, rate(made), made + 1, &numbers);
  EXPECT_ERROR(std::logic_error, "more than 3", (void)numbers.Table(3, 3));
  const Tensor table = numbers.Table(3, 6);
  for (double made : {3, 4, 6, 7, 20}) {  // the last row applies to 6 and more
    const Step picked = MakeStep(kFloat32, 3), plain = MakeStep(kFloat32, 3);
    const double known = std::min(made, 6.0);
    const UpdateConditions conditions{SumsOfSquares(picked.grads),
                                      FromValues({4}, {1, 0, made, 0}, kFloat64), 0, table};
    EXPECT_EQ(update(picked, 2, 1, nullptr, conditions),
              update(plain, 2 * rate(known), static_cast<int64_t>(known) + 1, nullptr));
  }
}

TEST(Optimizer, SumsOfSquaresAreOneForEachType) {
  const Tensor a = FromValues({2}, {1, 2}), b = FromValues({3}, {1, 1, 3}, kFloat16);
  EXPECT_EQ(Values(SumsOfSquares({a, b, Tensor(), a})), (Vector{10, 11}));
  EXPECT_EQ(SumsOfSquares({}).size(), 0);
}

// The rule of torch.amp.GradScaler, with a growth interval of 2.
TEST(Optimizer, ALossScaleGrowsAndShrinks) {
  const Tensor scale = FromValues({4}, {3, 0, 0, 0}, kFloat64);
  const Tensor finite = FromValues({2}, {5, 1e300}, kFloat64);
  const Tensor infinite = FromValues({2}, {5, INFINITY}, kFloat64);
  const auto next = [&](const Tensor& squares, double growth = 4) {
    UpdateLossScale(squares, scale, growth, 0.1, 2);
    return Values(scale);
  };
  const double tenth = static_cast<double>(static_cast<float>(12 * 0.1));
  EXPECT_EQ(next(finite), (Vector{3, 1, 1, 0}));
  EXPECT_EQ(next(finite), (Vector{12, 0, 2, 0}));
  EXPECT_EQ(next(finite), (Vector{12, 1, 3, 0}));
  EXPECT_EQ(next(infinite), (Vector{tenth, 0, 3, 0}));
  EXPECT_EQ(next(finite, 1e39), (Vector{tenth, 1, 4, 0}));
  EXPECT_EQ(next(finite, 1e39), (Vector{tenth, 0, 5, 0}));  // too large for float32
  Tensor(scale.SliceAxis(0, 0, 1)).Fill(0x1p-124);
  EXPECT_EQ(next(infinite), (Vector{0x1p-124, 0, 5, 1}));  // too small for float32
  EXPECT_EQ(next(finite), (Vector{0x1p-124, 1, 6, 0}));
}

TEST(Optimizer, RefusesWhatDoesNotFit) {
  const Tensor p = FromValues({2}, {1, 2}), g = FromValues({3}, {1, 1, 1});
  EXPECT_THROW(SgdUpdate({p}, {g}, {}, {0}, 1, 0, 0, false, false), std::invalid_argument);
  EXPECT_THROW(SgdUpdate({p}, {p}, {}, {0}, 1, 0.9, 0, false, false), std::invalid_argument);
  EXPECT_THROW(SgdUpdate({p}, {p, p}, {}, {0}, 1, 0, 0, false, false), std::invalid_argument);
  EXPECT_THROW(SgdUpdate({p}, {p}, {}, {}, 1, 0, 0, false, false), std::invalid_argument);
  EXPECT_THROW(SgdUpdate({p}, {p}, {p}, {0}, 1, 0.9, 0.1, true, false), std::invalid_argument);
  EXPECT_THROW(SgdUpdate({p.AsType(kInt)}, {p}, {}, {0}, 1, 0, 0, false, false), TypeError);
  EXPECT_THROW(AdamUpdate({p}, {p}, {p}, {p}, {0}, 1, 0.9, 0.999, 1e-8, 0, false),
               std::invalid_argument);
  EXPECT_THROW(AdamUpdate({p}, {p}, {p}, {p}, {0}, 1, 1.0, 0.999, 1e-8, 1, false),
               std::invalid_argument);
  EXPECT_THROW(RmsPropUpdate({p}, {p}, {p.AsType(kFloat64)}, {0}, 1, 0.9, 1e-8), TypeError);
  const Tensor squares = SumsOfSquares({p}), scale = Full({4}, 1, nullptr, kFloat64);
  const auto scaled = [&](const Tensor& s, const Tensor& l) {
    SgdUpdate({p}, {p}, {}, {0}, 1, 0, 0, false, false, nullptr, {s, l});
  };
  EXPECT_ERROR(std::invalid_argument, "squares decide nothing without loss_scale",
               scaled(squares, Tensor()));
  EXPECT_ERROR(std::invalid_argument, "squares is missing", scaled(Tensor(), scale));
  EXPECT_THROW(scaled(squares, Full({3}, 1, nullptr, kFloat64)), std::invalid_argument);
  EXPECT_THROW(scaled(squares, Full({4}, 1)), TypeError);
  const auto conditional = [&](const UpdateConditions& conditions) {
    SgdUpdate({p}, {p}, {}, {0}, 1, 0, 0, false, false, nullptr, conditions);
  };
  const Tensor table = Full({3, 7}, 1, nullptr, kFloat64);
  EXPECT_ERROR(std::invalid_argument, "scalars must be a table of rows of 8",
               conditional({squares, scale, 0, table}));
  EXPECT_THROW(conditional({squares, Tensor(), 0, table}), std::invalid_argument);
  EXPECT_THROW(conditional({squares, Tensor(), -1}), std::invalid_argument);
  EXPECT_THROW(conditional({Tensor(), Tensor(), 1}), std::invalid_argument);
  EXPECT_THROW(UpdateLossScale(squares, Tensor(), 2, 0.5, 1), std::invalid_argument);
}

}  // namespace
}  // namespace singa::test

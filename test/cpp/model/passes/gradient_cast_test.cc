// Fusion of updates with the conversion of their gradients from 16 to 32 bits.

#include <algorithm>
#include <utility>

#include "model/passes/recorded.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/layout.h"
#include "singa/operation/optimizer.h"

namespace singa::test {
namespace {

using Tensors = std::vector<Tensor>;

enum class Rule { kSgd, kMomentum, kRmsProp, kAdaGrad, kAdam };

Tensors Copies(const Tensors& tensors) {
  Tensors copies;
  for (const Tensor& t : tensors) copies.push_back(t.layout() ? ToBlocked(t.Plain()) : t.Clone());
  return copies;
}

/// The tensors of an update.
struct Lists {
  explicit Lists(Random& random, bool blocked) {
    for (const Shape& shape : {Shape{32, 20, 3, 3}, Shape{70000}, Shape{}, Shape{0}, Shape{5, 7}})
      for (auto* list : {&params, &grads, &first, &second}) {
        const bool positive = list == &first || list == &second;
        const Tensor t = RandomTensor(random, shape, kFloat32, positive ? 0 : -1, 1);
        list->push_back(blocked && shape.rank() == 4 ? ToBlocked(t) : t);
      }
  }
  Lists(const Lists& other)
      : params(Copies(other.params)),
        grads(other.grads),
        first(Copies(other.first)),
        second(Copies(other.second)) {}

  void Update(Rule rule, const Tensors& converted, const UpdateConditions& conditions) const {
    const Vector decay = {0.1, 0.1, 0, 0.1, 0.1};
    switch (rule) {
      case Rule::kSgd:
        return SgdUpdate(params, converted, {}, decay, 0.1, 0, 0, false, false, nullptr,
                         conditions);
      case Rule::kMomentum:
        return SgdUpdate(params, converted, first, decay, 0.1, 0.9, 0, true, false, nullptr,
                         conditions);
      case Rule::kRmsProp:
        return RmsPropUpdate(params, converted, first, decay, 0.1, 0.9, 1e-8, nullptr, conditions);
      case Rule::kAdaGrad:
        return AdaGradUpdate(params, converted, first, decay, 0.1, 1e-8, nullptr, conditions);
      case Rule::kAdam:
        return AdamUpdate(params, converted, first, second, decay, 0.1, 0.9, 0.99, 1e-8, 3, true,
                          nullptr, conditions);
    }
  }

  Tensors params, grads, first, second;
};

/// The gradients. All but the last are converted from 16 bits.
Tensors Converted(const Lists& lists, DType narrow, const Tensor& x) {
  Tensors converted;
  for (const Tensor& g : lists.grads) {
    const bool last = converted.size() + 1 == lists.grads.size();
    const Tensor scaled = Unary(UnaryOp::kMulScalar, g, 1.5);
    converted.push_back(last ? Binary(BinaryOp::kMul, scaled, x)
                             : scaled.AsType(narrow).AsType(kFloat32));
  }
  return converted;
}

/// Number of conversions that remain. Each run of `work` gets copies of the lists; all runs must
/// give equal results.
long Casts(const Lists& lists, const std::string& what,
           const std::function<Tensors(const Lists&, const Tensors&)>& work, DType narrow) {
  const Tensor x = FromValues({}, {2});
  Tensors ends[2];
  RecordingPtr recording;
  for (int i : {0, 1}) {
    const Lists own = lists;
    Tensors results;
    const auto step = [&](const Tensors& in) { return work(own, Converted(own, narrow, in[0])); };
    recording = Recorded(step, {x}, i ? SkipGradientCasts : nullptr, &results);
    for (const Tensors* list : {&own.params, &own.first, &own.second, &std::as_const(results)})
      ends[i].insert(ends[i].end(), list->begin(), list->end());
  }
  ExpectSame(ends[1], ends[0], what);
  long casts = 0, merged = 0;
  for (const Node& node : recording->step().nodes()) {
    merged += node.merged;
    casts += node.op == std::string("Copy") && node.outputs[0].data_type() == kFloat32;
  }
  EXPECT_EQ(casts + merged, 4) << what;
  return casts;
}

TEST(SkipGradientCasts, UpdatesReadSixteenBits) {
  Random random(1);
  for (DType narrow : {kBFloat16, kFloat16})
    for (bool blocked : {false, true}) {
      const Lists lists(random, blocked);
      // If a layout does not exist for both types, a reorder follows the conversion.
      const LayoutPtr layout = lists.params[0].layout();
      const bool reordered = layout && !layout->WithType(narrow);
      for (Rule rule : {Rule::kSgd, Rule::kMomentum, Rule::kRmsProp, Rule::kAdaGrad, Rule::kAdam})
        for (bool scaled : {false, true})
          for (double clip_norm : {0.0, 0.01, 1e6}) {
            const std::string what = std::to_string(static_cast<int>(rule)) + DTypeName(narrow) +
                                     (blocked ? " blocked" : "") + (scaled ? " scaled " : " ") +
                                     std::to_string(clip_norm);
            const auto work = [&](const Lists& own, const Tensors& converted) {
              UpdateConditions conditions;
              conditions.clip_norm = clip_norm;
              if (scaled) conditions.loss_scale = FromValues({4}, {1.7, 0, 0, 0}, kFloat64);
              if (scaled || clip_norm > 0) conditions.squares = SumsOfSquares(converted);
              own.Update(rule, converted, conditions);
              return Tensors{};
            };
            EXPECT_EQ(Casts(lists, what, work, narrow), reordered) << what;
          }
    }
}

TEST(SkipGradientCasts, WhatIsNotFiniteLeavesTheUpdateOut) {
  Random random(2);
  for (double value : {kInf, 1e6, 0.0 / 0.0}) {
    Lists lists(random, false);
    Tensor(lists.grads[1].SliceAxis(0, 69000, 69001)).Fill(value);
    const auto work = [&](const Lists& own, const Tensors& converted) {
      UpdateConditions conditions;
      conditions.loss_scale = FromValues({4}, {8, 0, 0, 0}, kFloat64);
      conditions.squares = SumsOfSquares(converted);
      own.Update(Rule::kAdam, converted, conditions);
      UpdateLossScale(conditions.squares, conditions.loss_scale, 2, 0.5, 10);
      return Tensors{};
    };
    EXPECT_EQ(Casts(lists, std::to_string(value), work, kFloat16), 0);
  }
}

TEST(SkipGradientCasts, GradientsThatOthersReadAreConverted) {
  Random random(3);
  const Lists lists(random, false);
  const auto update = [](const Lists& own, const Tensors& converted) {
    own.Update(Rule::kMomentum, converted, {});
  };
  const std::pair<const char*, std::function<Tensors(const Lists&, const Tensors&)>> cases[] = {
      {"returned",
       [&](const Lists& own, const Tensors& converted) {
         update(own, converted);
         return Tensors{converted[1]};
       }},
      {"read before",
       [&](const Lists& own, const Tensors& converted) {
         const Tensor read = Unary(UnaryOp::kMulScalar, converted[1], 2);
         update(own, converted);
         return Tensors{read};
       }},
      {"read behind",
       [&](const Lists& own, const Tensors& converted) {
         update(own, converted);
         return Tensors{Unary(UnaryOp::kMulScalar, converted[1], 2)};
       }},
      {"changed: of a parameter that two layers share",
       [&](const Lists& own, const Tensors& converted) {
         Axpy(1, own.grads[1], converted[1]);
         update(own, converted);
         return Tensors{};
       }},
      {"seen as another shape",
       [&](const Lists& own, const Tensors& converted) {
         Tensors reshaped = converted;
         reshaped[1] = reshaped[1].Reshape({700, 100});
         SgdUpdate({own.params[0], own.params[1].Reshape({700, 100}), own.params[2], own.params[3],
                    own.params[4]},
                   reshaped, {}, {0, 0, 0, 0, 0}, 0.1, 0, 0, false, false, nullptr, {});
         return Tensors{};
       }},
  };
  for (const auto& [what, work] : cases) EXPECT_EQ(Casts(lists, what, work, kBFloat16), 1) << what;
}

TEST(SkipGradientCasts, WhatWasConvertedMayNotChangeBefore) {
  const Tensor x = FromValues({3}, {1, 2, 3}), p[] = {x.Clone(), x.Clone()};
  for (int i : {0, 1}) {
    Tensors results;
    const auto step = [&](const Tensors& in) {
      const Tensor narrow = in[0].AsType(kBFloat16), wide = narrow.AsType(kFloat32);
      UnaryInto(UnaryOp::kMulScalar, narrow, narrow, 2);
      SgdUpdate({p[i]}, {wide}, {}, {0}, 1, 0, 0, false, false, nullptr, {});
      return Tensors{narrow};
    };
    Recorded(step, {x}, i ? SkipGradientCasts : nullptr, &results);
    EXPECT_EQ(Values(p[i]), (Vector{0, 0, 0}));
    EXPECT_EQ(Values(results[0]), (Vector{2, 4, 6}));
  }
}

}  // namespace
}  // namespace singa::test

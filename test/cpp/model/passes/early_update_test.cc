// Updates of parameters as soon as their gradients are there.

#include <algorithm>

#include "model/passes/recorded.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/optimizer.h"

namespace singa::test {
namespace {

using Names = std::vector<std::string>;

/// Parameters of 4 MiB and one of 4 bytes, and their momentum.
struct Parameters {
  explicit Parameters(int seed) {
    Random random(seed);
    for (int64_t size : {int64_t{1} << 20, int64_t{1}, int64_t{1} << 20, int64_t{1} << 20}) {
      values.push_back(RandomTensor(random, {size}));
      momentum.push_back(RandomTensor(random, {size}));
    }
  }
  std::vector<Tensor> all() const {
    std::vector<Tensor> result = values;
    result.insert(result.end(), momentum.begin(), momentum.end());
    return result;
  }
  std::vector<Tensor> values, momentum;
};

/// A step whose gradients follow from parameters in this order. The last one is read once more
/// before the update.
Step StepOf(const Parameters& parameters, double clip_norm) {
  return [=](const std::vector<Tensor>& in) {
    std::vector<Tensor> gradients(4);
    for (size_t i : {3, 2, 1, 0})
      gradients[i] = Unary(UnaryOp::kMulScalar, parameters.values[i], 0.5 + double(i));
    const Tensor read = Unary(UnaryOp::kAbs, parameters.values[3]);
    UpdateConditions conditions;
    conditions.clip_norm = clip_norm;
    if (clip_norm > 0) conditions.squares = SumsOfSquares(gradients);
    SgdUpdate(parameters.values, gradients, parameters.momentum, {0, 0, 0, 0}, 0.1, 0.9, 0, false,
              false, nullptr, conditions);
    return std::vector<Tensor>{Unary(UnaryOp::kAddScalar, in[0], 1), read};
  };
}

TEST(EarlyUpdate, RunsInPartsWhereGradientsAreThereAndOldValuesAreRead) {
  const Tensor x = Tensor({2}, nullptr, kFloat32);
  UnaryInto(UnaryOp::kMulScalar, x, x, 0);
  for (const double clip_norm : {0.0, 2.0}) {
    const Parameters plain(3), early(3);
    std::vector<Tensor> results, early_results;
    const RecordingPtr whole = Recorded(StepOf(plain, clip_norm), {x}, nullptr, &results);
    const RecordingPtr parts = Recorded(StepOf(early, clip_norm), {x}, UpdateEarly, &early_results);
    ExpectSame(early.all(), plain.all(), "updated");
    ExpectSame(early_results, results, "results");
    const Graph before(whole), after(parts);
    if (clip_norm > 0) {  // the norm of all gradients decides
      EXPECT_EQ(Operations(*parts), Operations(*whole));
      continue;
    }
    EXPECT_EQ(Operations(*parts),
              (Names{"MulScalar", "MulScalar", "SgdUpdate", "MulScalar", "MulScalar", "SgdUpdate",
                     "Abs", "SgdUpdate", "AddScalar"}));
    EXPECT_EQ(before.memory().arena, (3u << 22) + 64);
    EXPECT_EQ(after.memory().arena, (2u << 22) + 64);
  }
}

}  // namespace
}  // namespace singa::test

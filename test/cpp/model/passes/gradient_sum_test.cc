// Fusion of the sum of two gradients with the batch normalisation of a residual block.

#include <algorithm>

#include "model/passes/recorded.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/layout.h"

namespace singa::test {
namespace {

/// A batch normalisation with addition and ReLU, whose gradient is the sum of two tensors.
struct Block {
  Block(Random& random, const Shape& shape, DType dtype, bool blocked)
      : x(RandomTensor(random, shape, dtype)),
        added(RandomTensor(random, shape, dtype)),
        dy(RandomTensor(random, shape, dtype)),
        handle(0.1, x) {
    const Shape channels{shape[1]};
    scale = RandomTensor(random, channels, kFloat32, 0.5, 2);
    bias = RandomTensor(random, channels);
    if (blocked)
      for (Tensor* t : {&x, &added, &dy}) *t = ToBlocked(*t);
  }

  /// `before` is called with the sum and its terms before batch normalisation reads the sum.
  std::vector<Tensor> Run(const std::vector<Tensor>& in, double alpha,
                          const std::function<void(const Tensor&, const Tensor&)>& before) const {
    const auto forward = BatchNormForwardTraining(handle, in[0], scale, bias, {}, {}, added, true);
    const Tensor first = Unary(UnaryOp::kMulScalar, dy, 3);
    const Tensor second = Unary(UnaryOp::kAddScalar, dy, 0.25);
    Axpy(alpha, second, first);
    if (before) before(first, second);
    return BatchNormBackward(handle, first, in[0], scale, forward[1], forward[2], true, true, true,
                             bias, forward[0], true);
  }

  Tensor x, added, dy, scale, bias;
  BatchNormHandle handle;
};

bool IsMerged(const Recording& recording) {
  const std::vector<std::string> names = Operations(recording);
  const auto has = [&](const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  EXPECT_NE(has("Axpy"), has("Axpy+BatchNormBackward"));
  return has("Axpy+BatchNormBackward");
}

RecordingPtr Check(const Step& step, const Tensor& x, const std::string& what) {
  std::vector<Tensor> plain, merged;
  Recorded(step, {x}, nullptr, &plain);
  const RecordingPtr recording = Recorded(step, {x}, MergeGradientSums, &merged);
  ExpectSame(merged, plain, what);
  return recording;
}

TEST(MergeGradientSums, TheBitsAreThoseOfTheSum) {
  Random random(1);
  for (DType dtype : {kFloat32, kBFloat16}) {
    // 16, 8 and 20 channels; more rows than are summed at once; and a matrix, which the reference
    // kernel handles.
    for (const Shape& shape : {Shape{2, 16, 9, 8}, Shape{3, 8, 7, 5}, Shape{2, 20, 12, 11},
                               Shape{2, 64, 19, 17}, Shape{5, 3}}) {
      for (bool blocked : {false, true}) {
        if (blocked && shape.rank() < 4) continue;
        const Block block(random, shape, dtype, blocked);
        if (blocked && !block.x.layout()) continue;  // bfloat16, without instructions for it
        const auto step = [&](const std::vector<Tensor>& in) { return block.Run(in, 1, nullptr); };
        const std::string what = shape.ToString() + DTypeName(dtype) + LayoutName(block.x.layout());
        EXPECT_TRUE(IsMerged(*Check(step, block.x, what))) << what;
      }
    }
  }
}

TEST(MergeGradientSums, SumsThatAreNotOnlyForBatchNormStay) {
  Random random(2);
  const Block block(random, {2, 16, 5, 4}, kFloat32, false);
  Tensor kept;
  const std::pair<const char*, std::function<void(const Tensor&, const Tensor&)>> cases[] = {
      {"the sum is read besides",
       [&](const Tensor& sum, const Tensor&) { kept = Unary(UnaryOp::kMulScalar, sum, 2); }},
      {"the sum goes on",
       [&](const Tensor& sum, const Tensor&) { UnaryInto(UnaryOp::kMulScalar, sum, sum, 2); }},
      {"what was added is overwritten",
       [&](const Tensor&, const Tensor& second) {
         UnaryInto(UnaryOp::kMulScalar, second, second, 2);
       }},
  };
  for (const auto& [what, before] : cases) {
    const auto step = [&](const std::vector<Tensor>& in) {
      auto results = block.Run(in, 1, before);
      if (!kept.empty()) results.push_back(kept);
      return results;
    };
    EXPECT_FALSE(IsMerged(*Check(step, block.x, what))) << what;
    kept = Tensor();
  }
  const auto weighted = [&](const std::vector<Tensor>& in) { return block.Run(in, 2, nullptr); };
  EXPECT_FALSE(IsMerged(*Check(weighted, block.x, "weighted")));
  // The caller can still read the sum.
  std::vector<Tensor> seen;
  const auto held = [&](const std::vector<Tensor>& in) {
    return block.Run(in, 1, [&](const Tensor& sum, const Tensor&) { seen.push_back(sum); });
  };
  EXPECT_FALSE(IsMerged(*Check(held, block.x, "held")));
  EXPECT_EQ(Values(seen[0]), Values(seen[1]));
}

TEST(MergeGradientSums, TheLastOfSeveralSumsIsMerged) {
  Random random(3);
  const Block block(random, {2, 16, 5, 4}, kFloat32, false);
  const auto step = [&](const std::vector<Tensor>& in) {
    return block.Run(in, 2, [&](const Tensor& sum, const Tensor&) {
      Axpy(1, Unary(UnaryOp::kMulScalar, block.dy, 0.5), sum);
    });
  };
  std::vector<Tensor> plain, merged;
  Recorded(step, {block.x}, nullptr, &plain);
  const RecordingPtr recording = Recorded(step, {block.x}, MergeGradientSums, &merged);
  ExpectSame(merged, plain, "two sums");
  const auto names = Operations(*recording);
  EXPECT_EQ(std::count(names.begin(), names.end(), "Axpy"), 1);
  EXPECT_EQ(std::count(names.begin(), names.end(), "Axpy+BatchNormBackward"), 1);
}

}  // namespace
}  // namespace singa::test

// Recorded steps that wait for gradients between forward and backward.

#include <gtest/gtest.h>

#include "core/graph/recorded_step.h"
#include "singa/core/graph.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa {
namespace {

using test::Values;

Tensor Product(const Tensor& a, const Tensor& b) { return Binary(BinaryOp::kMul, a, b); }

/// Records y = (w · x)², and w's gradient 2 · w · x · dy · x. Nothing runs.
RecordingPtr Record(const Tensor& x, const Tensor& w, const ArenaPtr& arena) {
  const auto recording = std::make_shared<Recording>(DefaultDevice(), arena);
  recording->Start({x, w});
  Tensor gradient;
  {
    const Tensor h = Product(w, x);
    const std::vector<Tensor> dys = recording->Turn({Product(h, h)});
    const Tensor twice = Unary(UnaryOp::kMulScalar, h, 2);
    gradient = Product(Product(twice, dys[0]), x);
  }
  recording->Finish({gradient}, false);
  return recording;
}

TEST(Turn, AReplayWaitsForGradients) {
  const auto arena = std::make_shared<Arena>(DefaultDevice());
  const RecordingPtr first = Record(Full({3}, 1), Full({3}, 2), arena);
  const RecordingPtr second = Record(Full({3}, 1), Full({3}, 2), arena);
  ASSERT_EQ(Graph::Difference(*first, *second), "");
  Graph graph(second);
  for (const double x : {3.0, 4.0}) {
    auto results = graph.RunToTurn({Full({3}, x), Full({3}, 5)});
    ASSERT_TRUE(results);
    EXPECT_EQ(Values(results->at(0)), std::vector<double>(3, 25 * x * x));
    results->at(0).Fill(0);  // a copy
    const std::vector<Tensor> gradients = graph.RunFromTurn({Full({3}, 0.5)});
    EXPECT_EQ(Values(gradients.at(0)), std::vector<double>(3, 5 * x * x));
  }
}

TEST(Turn, AReplayThatWaitsMayBeGivenUp) {
  const auto arena = std::make_shared<Arena>(DefaultDevice());
  Graph graph(Record(Full({3}, 1), Full({3}, 2), arena));
  ASSERT_TRUE(graph.RunToTurn({Full({3}, 3), Full({3}, 5)}));
  ASSERT_TRUE(graph.RunToTurn({Full({3}, 2), Full({3}, 1)}));
  EXPECT_EQ(Values(graph.RunFromTurn({Full({3}, 1)}).at(0)), std::vector<double>(3, 8));
}

TEST(Turn, RefusesWrongCalls) {
  Graph graph(Record(Full({3}, 1), Full({3}, 2), nullptr));
  EXPECT_THROW(graph.RunFromTurn({Full({3}, 1)}), std::invalid_argument);
  ASSERT_TRUE(graph.RunToTurn({Full({3}, 3), Full({3}, 5)}));
  EXPECT_THROW(graph.RunFromTurn({}), std::invalid_argument);
  EXPECT_THROW(graph.RunFromTurn({Full({4}, 1)}), std::invalid_argument);
  EXPECT_THROW(graph.RunFromTurn({Full({3}, 1, nullptr, kFloat64)}), std::invalid_argument);
  EXPECT_EQ(graph.RunFromTurn({Full({3}, 1)}).size(), 1u);
  EXPECT_THROW(graph.RunFromTurn({Full({3}, 1)}), std::invalid_argument);

  const auto plain = std::make_shared<Recording>(DefaultDevice(), nullptr);
  const Tensor x = Full({3}, 1);
  plain->Start({x});
  plain->Finish({Product(x, x)});
  EXPECT_THROW(Graph(plain).RunToTurn({x}), std::invalid_argument);
  EXPECT_THROW(plain->Turn({x}), std::invalid_argument);
}

TEST(Turn, ARecordingThatRunsHasGradientsOfZero) {
  const auto recording = std::make_shared<Recording>(DefaultDevice(), nullptr);
  const Tensor x = Full({3}, 2);
  recording->Start({x});
  const Tensor dx = Product(recording->Turn({Product(x, x)})[0], x);
  EXPECT_EQ(Values(dx), std::vector<double>(3, 0));
  recording->Finish({dx});
  EXPECT_NE(recording->obstacle(), "");
}

}  // namespace
}  // namespace singa

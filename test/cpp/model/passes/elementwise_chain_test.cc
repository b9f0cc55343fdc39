#include <map>

#include "core/layout/blocked_layout.h"
#include "model/operation/padded_layout.h"
#include "model/passes/recorded.h"
#include "singa/operation/dropout.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/softmax.h"

namespace singa::test {
namespace {

using Names = std::vector<std::string>;

/// Executes, records chained and replays; all give the same bits. Returns the recording.
RecordingPtr Check(const Step& step, const std::vector<Tensor>& inputs,
                   const std::string& what = "") {
  DefaultDevice()->SetRandSeed(3);
  const std::vector<Tensor> executed = step(inputs);
  std::vector<Tensor> first, second;
  DefaultDevice()->SetRandSeed(3);
  Recorded(step, inputs, ChainElementwise, &first);
  DefaultDevice()->SetRandSeed(3);
  const RecordingPtr recording = Recorded(step, inputs, ChainElementwise, &second);
  ExpectSame(first, executed, what + " recorded");
  ExpectSame(second, executed, what + " recorded again");
  Graph graph(recording);
  for (int i = 0; i < 2; ++i) {
    DefaultDevice()->SetRandSeed(3);
    EXPECT_TRUE(graph.Start(inputs));
    graph.Run(0);
    ExpectSame(graph.Finish(), executed, what + " replayed");
  }
  return recording;
}

TEST(ElementwiseChain, TakesAllOperationsOverAPieceAtATime) {
  Random random(1);
  const Tensor x = RandomTensor(random, {3, 40000}), w = RandomTensor(random, {3, 40000});
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Binary(BinaryOp::kMul, Unary(UnaryOp::kAddScalar, in[0], 0.5), w);
    return {Unary(UnaryOp::kTanh, y)};
  };
  const RecordingPtr recording = Check(step, {x});
  EXPECT_EQ(Operations(*recording), Names{"AddScalar+Mul+Tanh"});
  EXPECT_EQ(recording->step().nodes()[0].plan->Describe(), "reference, 3 in one pass");
  const GraphMemory memory = Graph(recording).memory();
  EXPECT_EQ(memory.nodes, 1u);
  EXPECT_EQ(memory.merged, 2u);
  EXPECT_EQ(memory.unshared, 0u);  // no temporaries, only buffers for a piece
  EXPECT_LE(memory.arena, static_cast<uint64_t>(x.bytes()));
}

TEST(ElementwiseChain, WhatOthersReadIsWrittenToo) {
  Random random(2);
  const Tensor x = RandomTensor(random, {100, 300});
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Unary(UnaryOp::kExp, Unary(UnaryOp::kNegative, in[0]));
    const Tensor z = Unary(UnaryOp::kSqrt, y);
    return {z, Softmax(y, 0)};
  };
  EXPECT_EQ(Operations(*Check(step, {x})), (Names{"Negative+Exp+Sqrt", "Softmax"}));
}

TEST(ElementwiseChain, OneElementForAllAndConversionsAreTaken) {
  Random random(3);
  const Tensor x = RandomTensor(random, {5, 7000}), scalar = Full({1}, 3);
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Binary(BinaryOp::kMul, in[0], scalar).AsType(kFloat64);
    return {Unary(UnaryOp::kSquare, y), Binary(BinaryOp::kLess, in[0], scalar)};
  };
  EXPECT_EQ(Operations(*Check(step, {x})), Names{"Mul+Copy+Square+Less"});
}

TEST(ElementwiseChain, NumbersBesideImagesInBlocksAreTaken) {
  Random random(13);
  const Shape shape = {2, 16, 30, 31};
  const Tensor plain = RandomTensor(random, shape), scalar = Full({1}, 3);
  const Tensor x = plain.ToLayout(BlockedLayoutNamed("nChw8c", shape, kFloat32));
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Binary(BinaryOp::kAdd, Unary(UnaryOp::kExp, in[0]), scalar);
    return {Binary(BinaryOp::kDiv, scalar, y)};
  };
  EXPECT_EQ(Operations(*Check(step, {x})), Names{"Exp+Add+Div"});
  EXPECT_EQ(Values(step({x})[0]), Values(step({plain})[0]));
}

TEST(ElementwiseChain, OtherBroadcastsAndStridesStayByThemselves) {
  Random random(4);
  const Tensor x = RandomTensor(random, {6, 50}), row = RandomTensor(random, {50});
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Binary(BinaryOp::kAdd, Unary(UnaryOp::kNegative, in[0]), row);
    return {Unary(UnaryOp::kExp, y.Transpose())};
  };
  EXPECT_EQ(Operations(*Check(step, {x})), (Names{"Negative", "Add", "Exp"}));
}

TEST(ElementwiseChain, WritesInPlace) {
  Random random(5);
  const Tensor x = RandomTensor(random, {20000}, kFloat32, 0, 1);
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Unary(UnaryOp::kSquare, in[0]);
    Axpy(0.25, in[0], y);
    UnaryInto(UnaryOp::kSqrt, y, y);
    return {y, Unary(UnaryOp::kNegative, y)};
  };
  EXPECT_EQ(Operations(*Check(step, {x})), Names{"Square+Axpy+Sqrt+Negative"});
}

TEST(ElementwiseChain, AnotherViewOfWhatIsWrittenWaits) {
  Random random(6);
  const Tensor x = RandomTensor(random, {20000});
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Unary(UnaryOp::kSquare, in[0]);
    const Tensor ahead = y.SliceAxis(0, 10000, 20000), start = y.SliceAxis(0, 0, 10000);
    const Tensor sum = Binary(BinaryOp::kAdd, start, ahead);
    UnaryInto(UnaryOp::kNegative, sum, ahead);  // the operation before reads `ahead`
    return {sum, y};
  };
  EXPECT_EQ(Operations(*Check(step, {x})), (Names{"Square", "Add", "Negative"}));
}

TEST(ElementwiseChain, DropoutDrawsTheSameMask) {
  Random random(7);
  const Tensor x = RandomTensor(random, {70000}), dy = RandomTensor(random, {70000});
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const std::vector<Tensor> dropped = DropoutForward(Unary(UnaryOp::kRelu, in[0]), 0.3);
    const Tensor y = Unary(UnaryOp::kMulScalar, dropped[0], 2);
    const Tensor again = DropoutForward(y, 0.5)[0];
    return {again, DropoutBackward(dy, dropped[1], 0.3)};
  };
  const RecordingPtr recording = Check(step, {x});
  EXPECT_EQ(Operations(*recording),
            (Names{"Relu+Dropout+MulScalar", "Dropout", "DropoutBackward"}));
}

TEST(ElementwiseChain, WorksOnOpaqueLayoutsAsTheyLie) {
  Random random(8);
  const Tensor x = PaddedLayout::Of(RandomTensor(random, {9, 11}));
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Unary(UnaryOp::kTanh, Unary(UnaryOp::kRelu, x));
    return {y, Unary(UnaryOp::kNegative, in[0])};
  };
  const RecordingPtr recording = Check(step, {RandomTensor(random, {9, 11})});
  EXPECT_EQ(Operations(*recording), (Names{"Relu+Tanh", "Negative"}));
  EXPECT_TRUE(IsPaddedWithZeros(recording->step().outputs()[0]));
}

TEST(ElementwiseChain, AnOutputMayComeWhereAnInputWasThatNobodyReadsLater) {
  Random random(9);
  const Tensor x = RandomTensor(random, {50000});
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor a = Softmax(in[0], 0);
    const Tensor b = Binary(BinaryOp::kMul, a, Unary(UnaryOp::kExp, a));
    return {Softmax(b, 0)};
  };
  const RecordingPtr recording = Check(step, {x});
  EXPECT_EQ(Operations(*recording), (Names{"Softmax", "Exp+Mul", "Softmax"}));
  EXPECT_EQ(Graph(recording).memory().in_place, 1u);
}

TEST(ElementwiseChain, AnOutputThatIsWrittenTwiceTakesNoMemoryThatIsStillRead) {
  Random random(11);
  const Tensor x = RandomTensor(random, {4, 5000}), y = RandomTensor(random, {4, 5000});
  const auto step = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    // Nothing reads these behind the chain.
    const Tensor a = Softmax(in[0], 0), b = Softmax(in[1], 0);
    const Tensor sum = Binary(BinaryOp::kSub, a, b);
    const Tensor other = Binary(BinaryOp::kMul, b, a);
    Axpy(0.5, Unary(UnaryOp::kMulScalar, other, 3), sum);
    return {Softmax(sum, 1), Softmax(other, 1)};
  };
  const RecordingPtr recording = Check(step, {x, y});
  EXPECT_EQ(Operations(*recording),
            (Names{"Softmax", "Softmax", "Sub+Mul+MulScalar+Axpy", "Softmax", "Softmax"}));
}

TEST(ElementwiseChain, OpcheckComparesAChainAndItsOperations) {
  Random random(12);
  const Tensor x = PaddedLayout::Of(RandomTensor(random, {9, 11}));
  const Tensor z = RandomTensor(random, {6000}), scalar = Full({1}, 3);
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Unary(UnaryOp::kSquare, in[0]);
    Axpy(0.25, in[0], y);
    const Tensor dropped = DropoutForward(Binary(BinaryOp::kMul, y, scalar), 0.5)[0];
    return {y, dropped, Unary(UnaryOp::kTanh, Unary(UnaryOp::kRelu, x))};
  };
  const RecordingPtr recording = Check(step, {z});
  Graph graph(recording);
  const OpcheckScope opcheck({.every = 1, .ops = {}, .replay_directory = {}});
  ResetOpcheckStats();
  EXPECT_TRUE(graph.Start({z}));
  graph.Run(0);
  graph.Finish();
  std::map<std::string, OpcheckOpStats> stats;
  for (const OpcheckOpStats& row : GetOpcheckStats()) stats[row.op] = row;
  for (const char* chain : {"Square+Axpy+Mul+Dropout", "Relu+Tanh"}) {
    EXPECT_EQ(stats[chain].checked, 1u) << chain;
    EXPECT_EQ(stats[chain].failed, 0u) << chain;
  }
}

TEST(ElementwiseChain, OpcheckFindsAChainThatOverwritesWhatItStillReads) {
  Random random(13);
  const Tensor x = RandomTensor(random, {3000}), y = RandomTensor(random, {3000});
  std::vector<Tensor> results;
  const RecordingPtr recording = Recorded(
      [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
        return {Binary(BinaryOp::kSub, in[0], in[1]), Binary(BinaryOp::kMul, in[1], in[0])};
      },
      {x, y}, ChainElementwise, &results);
  Node node = recording->step().nodes()[0];
  ASSERT_EQ(node.op, std::string("Sub+Mul"));
  node.inputs = {x.Clone(), y.Clone()};
  node.outputs = {Tensor({3000}, nullptr, kFloat32), Tensor({3000}, nullptr, kFloat32)};
  const OpcheckScope opcheck({.every = 1, .ops = {}, .replay_directory = {}});
  EXPECT_NO_THROW(DefaultDevice()->Run(node, nullptr));
  node.outputs[0] = node.inputs[0];
  EXPECT_THROW(DefaultDevice()->Run(node, nullptr), OpcheckMismatch);
  SetOpcheck({.every = 1, .ops = {"Mul"}, .replay_directory = {}});
  node.inputs[0] = node.outputs[0] = x.Clone();
  EXPECT_THROW(DefaultDevice()->Run(node, nullptr), OpcheckMismatch);
}

TEST(ElementwiseChain, OtherNumbersAreAnotherStep) {
  const Tensor x = Full({8}, 1);
  std::vector<RecordingPtr> recordings;
  for (const double factor : {2.0, 2.0, 3.0}) {
    std::vector<Tensor> results;
    recordings.push_back(Recorded(
        [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
          return {Unary(UnaryOp::kExp, Unary(UnaryOp::kMulScalar, in[0], factor))};
        },
        {x}, ChainElementwise, &results));
  }
  EXPECT_EQ(Graph::Difference(*recordings[0], *recordings[1]), "");
  EXPECT_NE(Graph::Difference(*recordings[0], *recordings[2]), "");
}

/// Applies random operations to random tensors.
std::vector<Tensor> RandomStep(uint64_t seed, const std::vector<Tensor>& inputs) {
  Random random(seed);
  std::vector<Tensor> made = inputs;
  const auto any = [&] { return made[static_cast<size_t>(random.Int(0, made.size() - 1))]; };
  const int count = static_cast<int>(random.Int(3, 25));
  for (int i = 0; i < count; ++i) {
    const Tensor x = any(), y = any();
    switch (random.Int(0, 11)) {
      case 0:
        made.push_back(Unary(UnaryOp::kTanh, x));
        break;
      case 1:
        made.push_back(Unary(UnaryOp::kAddScalar, x, random.Real()));
        break;
      case 2:
        made.push_back(Binary(BinaryOp::kMul, x, y));
        break;
      case 3:
        made.push_back(Binary(BinaryOp::kSub, x, y));
        break;
      case 4:
        made.push_back(UnaryBackward(UnaryOp::kRelu, x, y, {}));
        break;
      case 5:
        made.push_back(Where(Binary(BinaryOp::kLess, x, y), y, x));
        break;
      case 6:
        if (made.size() > inputs.size())
          Axpy(random.Real(), x,
               made[static_cast<size_t>(random.Int(inputs.size(), made.size() - 1))]);
        break;
      case 7:
        if (made.size() > inputs.size()) UnaryInto(UnaryOp::kSin, x, made.back());
        break;
      case 8:
        made.push_back(DropoutForward(x, 0.25)[0]);
        break;
      case 9:
        made.push_back(Softmax(x, 0));  // memory that a chain may take over
        break;
      case 10:
        made.push_back(x.Transpose().Clone().Transpose());  // later operations get a strided view
        break;
      default:
        made.push_back(x.AsType(kFloat64).AsType(x.data_type()));
    }
  }
  std::vector<Tensor> results = {made.back()};
  for (size_t i = inputs.size(); i + 1 < made.size(); ++i)
    if (random.Int(0, 3) == 0) results.push_back(made[i]);
  return results;
}

TEST(ElementwiseChain, RandomStepsGiveTheSameBits) {
  int merged = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const Shape shape = {random.Int(1, 4), random.Int(1, 12000)};
    const std::vector<Tensor> inputs = {RandomTensor(random, shape), RandomTensor(random, shape)};
    const RecordingPtr recording =
        Check([&](const std::vector<Tensor>& in) { return RandomStep(seed, in); }, inputs,
              "seed " + std::to_string(seed));
    for (const Node& node : recording->step().nodes()) merged += node.merged;
  }
  EXPECT_GT(merged, 500);
}

}  // namespace
}  // namespace singa::test

#include "singa/core/graph.h"

#include "core/graph/recorded_step.h"
#include "core/layout/blocked_layout.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/random.h"
#include "support.h"

namespace singa::test {
namespace {

std::shared_ptr<Recording> NewRecording(const ArenaPtr& arena = nullptr) {
  return std::make_shared<Recording>(DefaultDevice(), arena);
}

/// Records what step() returns.
template <class Step>
RecordingPtr Recorded(const std::vector<Tensor>& inputs, const Step& step) {
  const RecordingPtr recording = NewRecording();
  recording->Start(inputs);
  recording->Finish(step());
  return recording;
}

Vector Result(Graph& graph, const Tensor& x) {
  EXPECT_TRUE(graph.Start({x}));
  graph.Run(0);
  return Values(graph.Finish()[0]);
}

/// An image of four pixels.
const Shape kImage{1, 2, 1, 2};
Tensor Image(double first) { return FromValues(kImage, {first, 2, 3, 4}); }
LayoutPtr Nhwc() { return BlockedLayoutNamed("nhwc", kImage, kFloat32); }

Tensor Times(const Tensor& t, double factor) { return Unary(UnaryOp::kMulScalar, t, factor); }

/// Records y = (2x + w) · 3.
RecordingPtr Record(const Tensor& x, const Tensor& w, const ArenaPtr& arena, Tensor* y) {
  const RecordingPtr recording = NewRecording(arena);
  recording->Start({x});
  {
    const Tensor sum = Binary(BinaryOp::kAdd, Times(x, 2), w);
    *y = Times(sum, 3);
  }
  recording->Finish({*y});
  return recording;
}

TEST(Recording, RunsAtItsEndWhatWasKeptBack) {
  const Tensor x = Full({4}, 1), w = Full({4}, 5);
  Tensor y;
  const RecordingPtr recording = Record(x, w, nullptr, &y);
  EXPECT_EQ(recording->obstacle(), "");
  EXPECT_EQ(recording->step().nodes().size(), 3u);
  EXPECT_EQ(Values(y), Vector(4, 21));
}

TEST(Recording, MayRunLater) {
  const Tensor x = Full({4}, 1), w = Full({4}, 5);
  const RecordingPtr recording = NewRecording();
  recording->Start({x});
  const Tensor y = Binary(BinaryOp::kAdd, Times(x, 2), w);
  recording->Finish({y}, false);
  EXPECT_FALSE(y.block()->has_memory());
  recording->RunPlanned();
  EXPECT_EQ(Values(y), Vector(4, 7));
}

TEST(Recording, WhoLooksAtAResultGetsIt) {
  const Tensor x = Full({4}, 1);
  const RecordingPtr recording = NewRecording();
  recording->Start({x});
  const Tensor y = Times(x, 2);
  EXPECT_EQ(Values(y), Vector(4, 2));
  const Tensor z = Times(y, 2);
  recording->Finish({z});
  EXPECT_EQ(Values(z), Vector(4, 4));
  ExpectPart(recording->obstacle(), "looks at results");
}

TEST(Recording, AWriteWaitsForWhatIsToReadTheOldContents) {
  Tensor x = Full({2}, 1);
  const Tensor w = Full({2}, 7);
  const RecordingPtr recording = NewRecording();
  recording->Start({x});
  const Tensor y = Binary(BinaryOp::kAdd, x, w);
  const float values[] = {100, 100};
  Tensor(w).CopyFromHost(values, sizeof(values));
  recording->Finish({y});
  EXPECT_EQ(Values(y), Vector(2, 8));
  EXPECT_NE(recording->obstacle(), "");
}

TEST(Recording, NotesWhatTheHostReadsThatTheStepHasNotWritten) {
  const Tensor x = Full({1}, 4), w = Full({2}, 7);
  const RecordingPtr recording = NewRecording();
  recording->Start({x});
  const Tensor y = Binary(BinaryOp::kAdd, x, w);
  EXPECT_EQ(x.Item(), 4);
  EXPECT_EQ(x.Item(), 4);
  EXPECT_EQ(Floats(w), std::vector<float>(2, 7));
  recording->Finish({y});
  EXPECT_EQ(Values(y), Vector(2, 11));
  EXPECT_EQ(recording->obstacle(), "");
  ASSERT_EQ(recording->host_reads().size(), 2u);
  EXPECT_EQ(recording->host_reads()[0].block(), x.block());
  EXPECT_EQ(recording->host_reads()[1].block(), w.block());
}

TEST(Recording, ForgetsReadsThatAReplayRepeats) {
  const Tensor x = Full({1}, 4), w = Full({1}, 7);
  const RecordingPtr recording = NewRecording();
  recording->Start({x});
  EXPECT_EQ(x.Item(), 4);
  EXPECT_EQ(w.Item(), 7);
  recording->KeepHostReads(1);
  Tensor(w).Fill(3);
  recording->Finish({});
  EXPECT_EQ(recording->obstacle(), "");
  ASSERT_EQ(recording->host_reads().size(), 1u);
  EXPECT_EQ(recording->host_reads()[0].block(), x.block());
}

TEST(Recording, AReadOfTheHostIsAnObstacleWhereReplaysCannotCompareIt) {
  const Tensor x = Full({1}, 4), large = Full({2000}, 1);
  const auto obstacle = [&](const auto& step) {
    const Tensor w = Full({1}, 7);
    return Recorded({x}, [&] { return step(w), std::vector<Tensor>(); })->obstacle();
  };
  ExpectPart(obstacle([&](const Tensor&) { Floats(large); }), "2000");
  ExpectPart(obstacle([&](const Tensor& w) {
               EXPECT_EQ(w.Item(), 7);
               Tensor(w).Fill(3);
             }),
             "changes a tensor that the host reads");
  ExpectPart(obstacle([&](const Tensor& w) {
               Tensor(w).Fill(3);
               EXPECT_EQ(w.Item(), 3);
             }),
             "looks at results");
}

TEST(Recording, WhatAReplayWouldNotRepeatIsAnObstacle) {
  const Tensor x = Full({1}, 4), w = Full({1}, 7);
  const auto obstacle = [&](const auto& step) {
    return Recorded({x}, [&] { return step(), std::vector<Tensor>(); })->obstacle();
  };
  EXPECT_EQ(obstacle([] {}), "");
  ExpectPart(obstacle([&] {
               const float value = 1;
               Tensor(w).CopyFromHost(&value, sizeof(value));
             }),
             "data of the host");
  ExpectPart(obstacle([&] {
               w.block()->Pin();
               w.block()->Unpin();
             }),
             "the address of a tensor");
  ExpectPart(obstacle([] { DefaultDevice()->SetRandSeed(1); }), "seed");
  ExpectPart(obstacle([] { DefaultDevice()->set_random_state(DefaultDevice()->random_state()); }),
             "state");
  ExpectPart(obstacle([&] { DefaultDevice()->Exec([](const BlockPointers&) {}, {w.block()}, {}); }),
             "function of the user");
}

// Device::Exec of a function, while the device buffers its executions.

/// to[0] = factor · from[0].
auto Multiplies(float factor) {
  return [factor](const BlockPointers& memory) {
    *static_cast<float*>(memory.writes[0]) = factor * *static_cast<const float*>(memory.reads[0]);
  };
}

TEST(Buffer, AFunctionOfTheUserIsANode) {
  const DevicePtr device = CreateCpuDevice();
  Tensor x = Full({1}, 1, device);
  const Tensor y({1}, device);
  device->EnableGraph(true);
  Tensor z;
  {
    // Of what operations of the buffer compute, and for such: memory that the buffer alone holds.
    const Tensor twice = Times(x, 2), tenfold({1}, device);
    device->Exec(Multiplies(5), {twice.block()}, {tenfold.block()}, "tenfold");
    z = Binary(BinaryOp::kAdd, tenfold, x);
    device->Exec(Multiplies(3), {z.block()}, {y.block()});
    Times(y, 1);
    x.Fill(100);  // read by nobody in this run
  }
  device->EnableGraph(false);
  EXPECT_EQ(device->buffer()->nodes().size(), 6u);
  EXPECT_STREQ(device->buffer()->nodes()[1].op, "tenfold");
  device->RunGraph();
  EXPECT_EQ(Values(z), Vector{11});
  EXPECT_EQ(Values(y), Vector{33});
  x.Fill(2);
  const uint64_t version = y.block()->version();
  device->RunGraph();
  EXPECT_EQ(Values(z), Vector{22});
  EXPECT_EQ(Values(y), Vector{66});
  EXPECT_GT(y.block()->version(), version);
  device->ResetGraph();
}

TEST(Buffer, AFunctionOfTheUserRunsWhenItsResultIsRead) {
  const DevicePtr device = CreateCpuDevice();
  const Tensor x = Full({1}, 1, device), y = Full({1}, 0, device);
  int runs = 0;
  device->EnableGraph(true);
  device->Exec([&](const BlockPointers& memory) { ++runs, Multiplies(4)(memory); }, {x.block()},
               {y.block()});
  EXPECT_EQ(runs, 0);
  EXPECT_EQ(Values(y), Vector{4});
  EXPECT_EQ(runs, 1);
  device->EnableGraph(false);
  device->Exec([&](const BlockPointers&) { ++runs; }, {}, {});  // at once
  EXPECT_EQ(runs, 2);
  device->RunGraph();  // has run before
  EXPECT_EQ(runs, 2);
  device->RunGraph();
  EXPECT_EQ(runs, 3);
  device->ResetGraph();
}

TEST(Buffer, FreesWhatAFunctionOfTheUserHolds) {
  const DevicePtr device = CreateCpuDevice();
  const auto held = std::make_shared<int>();
  device->EnableGraph(true);
  device->Exec([held](const BlockPointers&) {}, {}, {}, std::string("a name of its own").c_str());
  EXPECT_EQ(held.use_count(), 2);
  EXPECT_STREQ(device->buffer()->nodes()[0].op, "a name of its own");
  EXPECT_THROW(device->Exec([](const BlockPointers&) {}, {nullptr}, {}), std::invalid_argument);
  device->EnableGraph(false);
  device->RunGraph();
  device->ResetGraph();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Buffer, AFunctionOfTheUserMayFailAndExecute) {
  const DevicePtr device = CreateCpuDevice();
  const Tensor x = Full({1}, 3, device), y({1}, device), z({1}, device);
  bool fails = true;
  device->EnableGraph(true);
  device->Exec(
      [&](const BlockPointers&) {
        if (fails) throw std::runtime_error("the user's");
        device->Exec(Multiplies(2), {x.block()}, {y.block()});  // not a node: runs here
      },
      {x.block()}, {y.block()});
  device->EnableGraph(false);
  EXPECT_THROW(device->RunGraph(), std::runtime_error);
  fails = false;
  device->ResetGraph();
  device->EnableGraph(true);
  device->Exec(Multiplies(2), {x.block()}, {z.block()});
  device->EnableGraph(false);
  device->RunGraph();
  EXPECT_EQ(Values(z), Vector{6});
  device->ResetGraph();
}

TEST(Recording, AnAbandonedOneLeavesTheThreadExecuting) {
  const Tensor x = Full({2}, 1);
  {
    const RecordingPtr recording = NewRecording();
    recording->Start({x});
    EXPECT_THROW(NewRecording()->Start({}), std::logic_error);
  }
  EXPECT_EQ(Values(Times(x, 2)), Vector(2, 2));
}

TEST(Graph, ReplaysWithOtherInputsAndLeavesEarlierResultsAlone) {
  const ArenaPtr arena = std::make_shared<Arena>(DefaultDevice());
  const Tensor w = Full({4}, 5);
  Tensor y1, y2;
  const RecordingPtr first = Record(Full({4}, 1), w, arena, &y1);
  const RecordingPtr second = Record(Full({4}, 2), w, arena, &y2);
  ASSERT_EQ(Graph::Difference(*first, *second), "");
  Graph graph(second);
  ASSERT_TRUE(graph.Start({Full({4}, 10)}));
  graph.Run(0);
  const Tensor y3 = graph.Finish()[0];
  EXPECT_EQ(Result(graph, Full({4}, 20)), Vector(4, 135));
  EXPECT_EQ(Values(y1), Vector(4, 21));
  EXPECT_EQ(Values(y2), Vector(4, 27));
  EXPECT_EQ(Values(y3), Vector(4, 75));
  const std::optional<std::vector<Tensor>> whole = graph.Replay({Full({4}, 30)});
  ASSERT_TRUE(whole);
  EXPECT_EQ(Values(whole->at(0)), Vector(4, 195));
  EXPECT_THROW(graph.Start({Full({5}, 1)}), std::invalid_argument);
  EXPECT_THROW(graph.Replay({Full({5}, 1)}), std::invalid_argument);
  EXPECT_THROW(graph.Start({}), std::invalid_argument);
  EXPECT_THROW(graph.Run(1), std::invalid_argument);
  EXPECT_EQ(graph.memory().nodes, 3u);
  // 2x is the only temporary; the sum reuses its memory.
  EXPECT_EQ(graph.memory().in_place, 1u);
  EXPECT_EQ(graph.memory().arena, 64u);
}

TEST(Graph, ReadsWhatLivesOnAfresh) {
  const Tensor x = Full({4}, 1);
  Tensor w = Full({4}, 5), y;
  const ArenaPtr arena = std::make_shared<Arena>(DefaultDevice());
  const RecordingPtr first = Record(x, w, arena, &y);
  const RecordingPtr second = Record(x, w, arena, &y);
  Graph graph(second);
  w.Fill(0);
  EXPECT_EQ(Result(graph, x), Vector(4, 6));
}

TEST(Graph, IsNotReplayedWhileTheThreadRecords) {
  const Tensor x = Full({4}, 1), w = Full({4}, 5);
  const ArenaPtr arena = std::make_shared<Arena>(DefaultDevice());
  Tensor y;
  const RecordingPtr first = Record(x, w, arena, &y);
  const RecordingPtr second = Record(x, w, arena, &y);
  Graph graph(second);
  const RecordingPtr recording = NewRecording();
  recording->Start({x});
  EXPECT_FALSE(graph.Replay({x}));
  recording->Finish({});
  EXPECT_TRUE(graph.Replay({x}));
}

TEST(Graph, SaysWhatDiffers) {
  const auto record = [](double factor, bool more) {
    const Tensor x = Full({4}, 1);
    return Recorded({x}, [&] {
      const Tensor y = Times(x, factor);
      return std::vector{more ? Times(y, 2) : y};
    });
  };
  EXPECT_EQ(Graph::Difference(*record(2, false), *record(2, false)), "");
  EXPECT_NE(Graph::Difference(*record(2, false), *record(3, false)), "");
  EXPECT_NE(Graph::Difference(*record(2, false), *record(2, true)), "");
  // A tensor that the step makes from host data is a new one in each recording.
  const auto with_constant = [] {
    const Tensor x = Full({4}, 1);
    const RecordingPtr recording = NewRecording();
    recording->Start({x});
    const Tensor made = FromValues({4}, {1, 2, 3, 4});
    const Tensor y = Binary(BinaryOp::kAdd, x, made);
    recording->Finish({y});
    return recording;
  };
  ExpectPart(Graph::Difference(*with_constant(), *with_constant()), "host");
}

TEST(Graph, AnOutlineIsComparedWithoutMemory) {
  const ArenaPtr arena = std::make_shared<Arena>(DefaultDevice());
  const Tensor w = Full({4}, 5);
  Tensor y, again;
  RecordingPtr recording = Record(Full({4}, 1), w, arena, &y);
  const RecordingPtr outline = recording->Outline();
  EXPECT_EQ(Graph::Difference(*outline, *Record(Full({4}, 2), w, arena, &again)), "");
  const Tensor other = Full({4}, 5);
  ExpectPart(Graph::Difference(*outline, *Record(Full({4}, 2), other, arena, &again)),
             "makes a tensor from data of the host");
  const std::weak_ptr<Block> block = y.block();
  y = Tensor();
  recording.reset();
  EXPECT_TRUE(block.expired());
}

TEST(Graph, IsNotReplayedForInputsThatShareWhatItWrites) {
  const Tensor a = Full({4}, 1), b = Full({4}, 2), w = Full({4}, 3);
  const RecordingPtr recording = Recorded({a, b}, [&] {
    Tensor(a).CopyFrom(b);
    Tensor(w).CopyFrom(b);
    return std::vector<Tensor>();
  });
  ASSERT_EQ(recording->obstacle(), "");
  Graph graph(recording);
  EXPECT_TRUE(graph.Replay({Full({4}, 5), b}));
  EXPECT_FALSE(graph.Replay({b, b}));
  EXPECT_FALSE(graph.Replay({w, b}));
  EXPECT_FALSE(graph.Replay({a, w}));
  EXPECT_FALSE(graph.Restore({b, b}));
  EXPECT_TRUE(graph.Restore({a, b}));
}

TEST(Graph, DrawsRandomNumbersAnew) {
  const DevicePtr device = CreateCpuDevice();
  const auto step = [&](const Tensor& x) {
    Tensor noise(x.shape(), device);
    Gaussian(0, 1, noise);
    return Binary(BinaryOp::kAdd, x, noise);
  };
  const Tensor x = Full({8}, 0, device);
  device->SetRandSeed(5);
  std::vector<Vector> expected;
  for (int i = 0; i < 4; ++i) expected.push_back(Values(step(x)));
  EXPECT_NE(expected[0], expected[1]);

  device->SetRandSeed(5);
  const ArenaPtr arena = std::make_shared<Arena>(device);
  std::vector<RecordingPtr> recordings;
  for (int i = 0; i < 2; ++i) {
    recordings.push_back(std::make_shared<Recording>(device, arena));
    recordings[i]->Start({x});
    const Tensor y = step(x);
    recordings[i]->Finish({y});
    EXPECT_EQ(Values(y), expected[i]);
  }
  ASSERT_EQ(Graph::Difference(*recordings[0], *recordings[1]), "");
  Graph graph(recordings[1]);
  for (int i = 2; i < 4; ++i) EXPECT_EQ(Result(graph, x), expected[i]);
}

TEST(Graph, KnowsWhichOperationDraws) {
  // Scalars of an operation that draws nothing equal those of the first draw after seed 0, except
  // for the draw's number.
  const DevicePtr device = CreateCpuDevice();
  const Tensor x = Full({8}, 1, device);
  Recording recording(device, std::make_shared<Arena>(device));
  recording.Start({x});
  device->SetRandSeed(0);
  Tensor noise(x.shape(), device), more(x.shape(), device);
  Gaussian(0, 1, noise);
  const Tensor y = Binary(BinaryOp::kAdd, x, noise);
  device->SetRandSeed(0);
  Gaussian(0, 1, more);
  recording.Finish({Binary(BinaryOp::kSub, y, more)});
  std::vector<int> draws;
  for (const Node& node : recording.step().nodes()) draws.push_back(node.random);
  EXPECT_EQ(draws, (std::vector{0, -1, 1, -1}));
}

TEST(Graph, AHostCallSeesLentTensorsAndItsEffectsAreSeen) {
  const ArenaPtr arena = std::make_shared<Arena>(DefaultDevice());
  Tensor total = Full({2}, 0);
  const auto record = [&](const Tensor& x, Tensor* lent) {
    const RecordingPtr recording = NewRecording(arena);
    recording->Start({x});
    *lent = Times(x, 2);
    std::vector<Tensor> tensors;
    tensors.push_back(*lent);
    recording->Pause(tensors);
    tensors.clear();
    EXPECT_EQ(Values(*lent)[0], 2 * Values(x)[0]);
    total.Fill(Values(*lent)[0]);
    recording->Resume();
    const Tensor y = Binary(BinaryOp::kAdd, x, total);
    recording->Finish({y});
    EXPECT_EQ(Values(y)[0], 3 * Values(x)[0]);
    return recording;
  };
  Tensor lent1, lent2;
  const RecordingPtr first = record(Full({2}, 1), &lent1);
  lent1 = Tensor();
  const RecordingPtr second = record(Full({2}, 2), &lent2);
  ASSERT_EQ(Graph::Difference(*first, *second), "");
  Graph graph(second);
  ASSERT_EQ(graph.segments(), 2);
  ASSERT_TRUE(graph.Start({Full({2}, 7)}));
  graph.Run(0);
  EXPECT_EQ(Values(lent2)[0], 14);
  total.Fill(100);
  EXPECT_TRUE(graph.TakeBack(0));
  graph.Run(1);
  EXPECT_EQ(Values(graph.Finish()[0])[0], 107);

  // If the host keeps a lent tensor, its contents stay.
  ASSERT_TRUE(graph.Start({Full({2}, 8)}));
  graph.Run(0);
  const Tensor kept = lent2;
  EXPECT_FALSE(graph.TakeBack(0));
  EXPECT_EQ(Values(kept)[0], 16);
}

TEST(Graph, AHostCallMayMoveALentTensorToAnotherLayout) {
  const ArenaPtr arena = std::make_shared<Arena>(DefaultDevice());
  Vector seen;
  const auto use = [&](const Tensor& lent) {
    lent.block()->MakePlain();
    seen = Values(lent);
  };
  const auto record = [&](const Tensor& x, Tensor* lent) {
    const RecordingPtr recording = NewRecording(arena);
    recording->Start({x});
    *lent = Times(x.ToLayout(Nhwc()), 2);
    std::vector<Tensor> tensors(1, *lent);
    recording->Pause(tensors);
    tensors.clear();
    use(*lent);
    recording->Resume();
    recording->Finish({Times(x, 3)});
    return recording;
  };
  Tensor lent1, lent2;
  const RecordingPtr first = record(Image(1), &lent1);
  lent1 = Tensor();
  const RecordingPtr second = record(Image(1), &lent2);
  ASSERT_EQ(Graph::Difference(*first, *second), "");
  Graph graph(second);
  for (float i : {5, 6, 7}) {
    ASSERT_TRUE(graph.Start({Image(i)}));
    graph.Run(0);
    use(lent2);
    EXPECT_EQ(seen, (Vector{2 * i, 4, 6, 8}));
    EXPECT_TRUE(graph.TakeBack(0));
    graph.Run(1);
    EXPECT_EQ(Values(graph.Finish()[0]), (Vector{3 * i, 6, 9, 12}));
  }
}

TEST(Graph, InputsAreBroughtToTheLayoutInWhichTheyWereRecorded) {
  const auto record = [](const Tensor& x) {
    return Recorded({x}, [&] { return std::vector{Times(x, 2)}; });
  };
  const Vector expected = {10, 4, 6, 8};
  Graph blocked(record(Image(1).ToLayout(Nhwc())));
  EXPECT_EQ(Values((*blocked.Replay({Image(5)}))[0]), expected);
  EXPECT_EQ(Values((*blocked.Replay({Image(5).ToLayout(Nhwc())}))[0]), expected);
  Graph plain(record(Image(1)));
  EXPECT_EQ(Values((*plain.Replay({Image(5).ToLayout(Nhwc())}))[0]), expected);
}

}  // namespace
}  // namespace singa::test

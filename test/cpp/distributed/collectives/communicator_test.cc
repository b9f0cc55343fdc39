#include "singa/distributed/communicator.h"

#include <dirent.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include "core/layout/blocked_layout.h"
#include "distributed/collectives/ordered_sum.h"
#include "distributed/ranks.h"
#include "support.h"

namespace singa::test {
namespace {

bool SameBytes(const Tensor& a, const Tensor& b) {
  const Tensor x = a.Contiguous(), y = b.Contiguous();
  return x.bytes() == y.bytes() &&
         std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.bytes())) == 0;
}

Tensor SumOf(int world, int shards, int trial, const Shape& shape, DType dtype, double factor) {
  std::vector<Tensor> terms;
  std::vector<const void*> from;
  for (int i = 0; i < world * shards; ++i) terms.push_back(Term(i, trial, shape, dtype));
  for (const Tensor& t : terms) from.push_back(t.raw_data());
  const Tensor sum(shape, nullptr, dtype);
  distributed::OrderedSum(dtype, factor, from.data(), world * shards, sum.size(), sum.raw_data());
  return sum;
}

/// What `rank` has given to AllGather.
Tensor PartOf(const Tensor& all, int rank) { return all.SliceAxis(0, rank, rank + 1).Squeeze({0}); }

template <class Body>
void ExpectRight(int world, const Body& body) {
  ExpectAll(InRanks(world, body), "right");
}

/// Expects one error on all ranks, with these parts.
void ExpectOneError(const Texts& texts, const Texts& parts) {
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  for (const std::string& part : parts) ExpectPart(texts[0], part);
}

int SegmentsLeft() {
  int found = 0;
  DIR* folder = opendir("/dev/shm");
  if (!folder) return 0;
  const std::string own = "singa-test-" + std::to_string(getpid()) + "-";
  while (const dirent* entry = readdir(folder))
    found += std::string(entry->d_name).rfind(own, 0) == 0;
  closedir(folder);
  return found;
}

/// The parameter is SINGA_NODE_RANKS: 0 for ranks that share memory, otherwise the number of ranks
/// of a node.
class Ranks : public testing::TestWithParam<int> {
 protected:
  Ranks() { setenv("SINGA_NODE_RANKS", std::to_string(GetParam()).c_str(), 1); }
  ~Ranks() override { unsetenv("SINGA_NODE_RANKS"); }
  /// Expects errors with these parts of all survivors: one error if they can still reach each
  /// other.
  void ExpectErrors(const Texts& texts, const Texts& parts) const {
    if (GetParam() == 0) return ExpectOneError(texts, parts);
    for (const std::string& text : texts) ExpectOneError({text}, parts);
  }
};

INSTANTIATE_TEST_SUITE_P(Nodes, Ranks, testing::Values(0, 1, 2));

TEST(Communicator, OneRankNeedsNoJob) {
  const CommunicatorPtr alone = Communicator::Join("", 0, 1);
  const Tensor t = FromValues({2}, {1, 2});
  alone->AllReduce({t}, {}, 0.5);
  EXPECT_EQ(Values(t), (Vector{0.5, 1}));
  EXPECT_EQ(alone->AllGather(t).shape(), (Shape{1, 2}));
  alone->Broadcast({t}, 0);
  alone->Barrier();
  alone->CheckEqual("a");
}

TEST_P(Ranks, AddsInTheOrderOfTheRanks) {
  for (int world : {2, 3, 4}) {
    ExpectRight(world, [&](Communicator& c) {
      Random random(static_cast<uint64_t>(world));
      for (int trial = 0; trial < 25; ++trial) {
        const DType dtype =
            std::vector<DType>{kFloat32, kFloat64, kFloat16, kBFloat16}[random.Int(0, 3)];
        // From one element to several chunks.
        const int64_t most = trial % 5 == 4 ? 150000 : 3000;
        std::vector<Tensor> tensors;
        std::vector<Tensor> want;
        for (int64_t k = random.Int(1, 3); k > 0; --k) {
          const Shape shape{random.Int(0, most)};
          const int seed = 10 * trial + static_cast<int>(k);
          tensors.push_back(Term(c.global_rank, seed, shape, dtype));
          want.push_back(SumOf(world, 1, seed, shape, dtype, 0.25));
        }
        c.AllReduce(tensors, {}, 0.25);
        for (size_t i = 0; i < tensors.size(); ++i)
          Require(SameBytes(tensors[i], want[i]), "trial " + std::to_string(trial));
      }
    });
  }
}

TEST_P(Ranks, AddsShardsOfARankOneAfterTheOther) {
  constexpr int kShards = 3, kWorld = 2;
  ExpectRight(kWorld, [&](Communicator& c) {
    for (int64_t n : {5, 1000, 200000}) {
      std::vector<Tensor> shards;
      for (int s = 0; s < kShards; ++s)
        shards.push_back(Term(c.global_rank * kShards + s, 7, {n}, kFloat32));
      Reduction reduction(c.shared_from_this(), shards, {"w"}, kShards, 0.125);
      reduction.Start();
      reduction.Wait();
      Require(SameBytes(shards[0], SumOf(kWorld, kShards, 7, {n}, kFloat32, 0.125)), "sum");
    }
  });
}

// Kernels may choose another layout in a later call.
TEST_P(Ranks, AddsShardsInDifferentLayouts) {
  const Shape shape{2, 5, 3, 4};
  const auto in = [&](const char* layout, const Tensor& t) {
    return t.ToLayout(BlockedLayoutNamed(layout, shape, kFloat32));
  };
  ExpectRight(2, [&](Communicator& c) {
    std::vector<Tensor> shards;
    for (int s = 0; s < 3; ++s) shards.push_back(Term(c.global_rank * 3 + s, 7, shape, kFloat32));
    shards[0] = in("nChw8c", shards[0]);
    shards[2] = in("nhwc", shards[2]);
    Reduction reduction(c.shared_from_this(), shards, {"w"}, 3, 0.5);
    reduction.Run();
    const Tensor want = SumOf(2, 3, 7, shape, kFloat32, 0.5);
    Require(SameBytes(shards[0].Plain(), want), "sum");
  });
}

// Layouts differ between tensors, and those of one tensor between ranks.
TEST_P(Ranks, ScattersSumsToOwnersAndGathersThem) {
  const Shape shape{2, 5, 3, 4};
  const std::vector<int64_t> owners{2, 0, 1};
  for (bool alike : {true, false}) {
    ExpectRight(3, [&](Communicator& c) {
      std::vector<Tensor> tensors;
      for (int k = 0; k < 3; ++k) tensors.push_back(Term(c.global_rank, k, shape, kFloat32));
      for (int k : {0, alike || c.global_rank == 1 ? 2 : 0})
        tensors[k] =
            tensors[k].ToLayout(BlockedLayoutNamed(k == 0 ? "nChw8c" : "nhwc", shape, kFloat32));
      Reduction reduction(c.shared_from_this(), tensors, {}, 1, 0.5, owners);
      reduction.Run();
      for (int k = 0; k < 3; ++k) {
        const bool own = owners[k] == c.global_rank;
        const Tensor want =
            own ? SumOf(3, 1, k, shape, kFloat32, 0.5) : Term(c.global_rank, k, shape, kFloat32);
        Require(SameBytes(tensors[k].Plain(), want), "sum");
      }
      Gathering gathering(c.shared_from_this(), tensors, {}, owners);
      gathering.Start();
      gathering.Wait();
      for (int k = 0; k < 3; ++k)
        Require(SameBytes(tensors[k].Plain(), SumOf(3, 1, k, shape, kFloat32, 0.5)), "gather");
    });
  }
}

TEST_P(Ranks, ReductionsRunOneAfterTheOther) {
  ExpectRight(3, [&](Communicator& c) {
    std::vector<Tensor> tensors;
    std::vector<std::unique_ptr<Reduction>> reductions;
    for (int k = 0; k < 20; ++k) {
      tensors.push_back(Term(c.global_rank, k, {k * 997 + 1}, kFloat32));
      reductions.push_back(std::make_unique<Reduction>(
          c.shared_from_this(), std::vector<Tensor>{tensors.back()}, Texts{}, 1, 1));
      reductions.back()->Start();
    }
    c.Barrier();
    for (int k = 19; k >= 0; --k) {
      reductions[k]->Wait();
      const Shape shape = tensors[k].shape();
      Require(SameBytes(tensors[k], SumOf(3, 1, k, shape, kFloat32, 1)), "sum");
    }
  });
}

TEST_P(Ranks, SumsAndCopiesViews) {
  ExpectRight(2, [&](Communicator& c) {
    const Tensor whole = Term(c.global_rank, 3, {40, 30}, kFloat32);
    const Tensor view = whole.SliceAxis(0, 1, 39, 2).Transpose();
    const Tensor want = SumOf(2, 1, 3, {40, 30}, kFloat32, 1);
    c.AllReduce({view});
    Require(SameBytes(view, want.SliceAxis(0, 1, 39, 2).Transpose()), "sum");
    c.Broadcast({view}, 1);
    const Tensor all = c.AllGather(view);
    for (int r = 0; r < 2; ++r) Require(SameBytes(PartOf(all, r), view), "gather");
  });
}

TEST_P(Ranks, BroadcastAndGatherLargeTensors) {
  ExpectRight(3, [&](Communicator& c) {
    const Shape shape{700001};
    const Tensor t = Term(c.global_rank, 1, shape, kFloat32);
    const Tensor all = c.AllGather(t);
    for (int r = 0; r < 3; ++r)
      Require(SameBytes(PartOf(all, r), Term(r, 1, shape, kFloat32)), "gather");
    c.Broadcast({t}, 2);
    Require(SameBytes(t, Term(2, 1, shape, kFloat32)), "broadcast");
  });
}

TEST_P(Ranks, SumsManyChunksBesideOtherCollectives) {
  ExpectRight(4, [&](Communicator& c) {
    for (int trial = 0; trial < 4; ++trial) {
      const DType dtype = trial % 2 ? kBFloat16 : kFloat32;
      const Shape shape{800001};
      const Tensor t = Term(c.global_rank, trial, shape, dtype);
      const Tensor all = c.AllGather(t);
      c.AllReduce({t}, {}, 0.25);
      Require(SameBytes(t, SumOf(4, 1, trial, shape, dtype, 0.25)), "sum");
      c.Barrier();
      for (int r = 0; r < 4; ++r)
        Require(SameBytes(PartOf(all, r), Term(r, trial, shape, dtype)), "gather");
      c.Broadcast({t}, trial);
    }
  });
}

TEST_P(Ranks, KnowTheirPlaceOnTheMachine) {
  const int size = GetParam() == 0 ? 3 : GetParam();
  const Texts texts = InRanks(3, [](Communicator& c) -> std::string {
    return std::to_string(c.local_rank) + " of " + std::to_string(c.local_size);
  });
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(texts[rank], std::to_string(rank % size) + " of " +
                               std::to_string(std::min(size, 3 - rank / size * size)));
}

TEST_P(Ranks, AddsIntegers) {
  ExpectRight(2, [&](Communicator& c) {
    const Tensor t = FromValues({2}, {1.0 + c.global_rank, 5}, kInt64);
    c.AllReduce({t});
    Require(Values(t) == Vector{3, 10}, "sum");
  });
}

// Disagreement.

TEST_P(Ranks, OtherShapesAreOneErrorThatNamesThem) {
  const Texts texts = InRanks(3, [](Communicator& c) {
    const Tensor a({2, 3}), b({4}), wrong({5});
    c.AllReduce({a, c.global_rank == 1 ? wrong : b}, {"a.W", "a.b"});
  });
  ExpectOneError(texts, {"the ranks disagree in all_reduce 1 (a.W and 1 more)", "a.b (4,) float32",
                         "rank 1: a.b (5,) float32"});
}

TEST_P(Ranks, OtherTypesOrdersAndOperationsAreErrors) {
  const auto expect = [](const std::string& part, const std::function<void(Communicator&)>& body) {
    const Texts texts = InRanks(2, [&](Communicator& c) {
      c.Barrier();
      body(c);
    });
    ExpectOneError(texts, {part});
  };
  expect("rank 0: tensor 0 (3,) float64; rank 1: tensor 0 (3,) float32", [](Communicator& c) {
    c.AllReduce({Tensor({3}, nullptr, c.global_rank ? kFloat32 : kFloat64)});
  });
  expect("rank 0: a (3,) float32; rank 1: b (3,) float32", [](Communicator& c) {
    for (int k = 0; k < 2; ++k) c.AllReduce({Tensor({3})}, {k == c.global_rank ? "a" : "b"});
  });
  expect("rank 0: all_reduce; rank 1: barrier", [](Communicator& c) {
    if (c.global_rank) c.Barrier();
    c.AllReduce({Tensor({3})});
  });
  expect("rank 0: from rank 0; rank 1: from rank 1",
         [](Communicator& c) { c.Broadcast({Tensor({3})}, c.global_rank); });
  expect("rank 0: update 0; rank 1: update 1", [](Communicator& c) {
    c.SetContext("update " + std::to_string(c.global_rank));
    c.AllReduce({Tensor({3})});
  });
  expect("rank 0: two; rank 1: one",
         [](Communicator& c) { c.CheckEqual(c.global_rank ? "same\none" : "same\ntwo\nthree"); });
}

TEST_P(Ranks, TheErrorStays) {
  const Texts texts = InRanks(2, [](Communicator& c) {
    const std::string first = TextOf([&] { c.CheckEqual(std::to_string(c.global_rank)); });
    const std::string second = TextOf([&] { c.Barrier(); });
    return first == second ? first : "another one: " + second;
  });
  ExpectOneError(texts, {"the ranks disagree in check 1"});
}

// Ranks that fail.

TEST_P(Ranks, AKilledRankIsNamed) {
  Texts texts = InRanks(3, [](Communicator& c) {
    c.Barrier();
    if (c.global_rank == 1) raise(SIGKILL);
    c.AllReduce({Tensor({3})}, {"w"});
  });
  EXPECT_EQ(texts[1], "killed");
  texts.erase(texts.begin() + 1);
  ExpectErrors(texts, {"rank 1 (process ", ") has ended; rank ", "in all_reduce 2 (w)"});
}

TEST_P(Ranks, ARankThatIsKilledInTheMiddleIsNamed) {
  for (int trial = 0; trial < 6; ++trial) {
    Texts texts = InRanks(3, [&](Communicator& c) {
      const Tensor t({400000});
      t.block()->data();
      Tensor(t).Fill(0);
      if (c.global_rank == trial % 3)
        std::thread([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(5 + 7 * trial));
          raise(SIGKILL);
        }).detach();
      while (true) c.AllReduce({t}, {"w"});
    });
    EXPECT_EQ(texts[trial % 3], "killed");
    texts.erase(texts.begin() + trial % 3);
    ExpectErrors(texts, {"rank " + std::to_string(trial % 3) + " (process ", ") has ended"});
  }
  EXPECT_EQ(SegmentsLeft(), 0);
}

TEST_P(Ranks, ARankThatLeavesIsNamed) {
  const Texts texts = InRanks(2, [](Communicator& c) {
    if (c.global_rank == 0) c.Barrier();
  });
  EXPECT_EQ(texts[1], "right");
  ExpectOneError({texts[0]}, {"rank 1 ", "has waited for it for "});
}

TEST_P(Ranks, ARankThatDoesNotAnswerIsNamedAtTheDeadline) {
  Texts texts = InRanks(
      3,
      [](Communicator& c) {
        c.Barrier();
        if (c.global_rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        c.Barrier();
      },
      0.4);
  ExpectOneError(texts, {"rank 2 (process ", ") does something else; rank ", " in barrier 2"});
}

TEST_P(Ranks, AbortReachesTheOthers) {
  const Texts texts = InRanks(3, [](Communicator& c) {
    if (c.global_rank == 2) c.Abort("rank 2: the disk is full");
    c.Barrier();
  });
  ExpectOneError(texts, {"rank 2: the disk is full"});
}

TEST_P(Ranks, MissingRanksAreNamed) {
  const std::string job = JobName();
  ExpectOneError(InProcesses(1, [&](int) { Communicator::Join(job, 0, 2, 0.3); }),
                 {"rank 1 has not joined the job"});
  EXPECT_EQ(SegmentsLeft(), 0);
}

TEST_P(Ranks, WorldsMustBeOfOneSize) {
  const std::string job = JobName();
  for (const std::string& text :
       InProcesses(2, [&](int rank) { Communicator::Join(job, rank, 3 + rank, 5); }))
    ExpectOneError({text}, {"world_size of "});
}

TEST(Communicator, RefusesWrongArguments) {
  EXPECT_ERROR(std::invalid_argument, "rank must be from 0 to 1, got 2",
               Communicator::Join("a", 2, 2));
  EXPECT_ERROR(std::invalid_argument, "world_size must be from 1 to 4096, got 0",
               Communicator::Join("a", 0, 0));
  EXPECT_ERROR(std::invalid_argument, "a job's name must have", Communicator::Join("a/b", 0, 2));
  EXPECT_ERROR(std::invalid_argument, "timeout must be positive", Communicator::Join("a", 0, 2, 0));
  const CommunicatorPtr alone = Communicator::Join("", 0, 1);
  EXPECT_ERROR(std::invalid_argument, "shards must have equal shapes",
               Reduction(alone, {Tensor({2}), Tensor({3})}, {}, 2, 1));
  EXPECT_ERROR(TypeError, "elements must be floats, int32 or int64",
               Reduction(alone, {Tensor({2}, nullptr, kInt8)}, {}, 1, 1));
  EXPECT_ERROR(std::invalid_argument, "the factor of integers must be 1",
               Reduction(alone, {Tensor({2}, nullptr, kInt32)}, {}, 1, 0.5));
}

TEST_P(Ranks, LeavesNothingBehind) {
  InRanks(2, [](Communicator& c) {
    if (c.global_rank == 0) raise(SIGKILL);
  });
  EXPECT_EQ(SegmentsLeft(), 0);
}

}  // namespace
}  // namespace singa::test

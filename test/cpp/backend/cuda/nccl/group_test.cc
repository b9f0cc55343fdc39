// Collectives of emulated GPUs, each in a process of its own, through the stub of NCCL.

#include "backend/cuda/nccl/group.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "backend/cuda/runtime/capture.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/sum_of_products.h"
#include "backend/cuda/test_gpu.h"
#include "core/graph/capture.h"
#include "distributed/ranks.h"
#include "support.h"

namespace singa::test {
namespace {

using Texts = std::vector<std::string>;

constexpr size_t kSmallBuffer = size_t{64} << 10;

/// Runs `body` on `world` ranks with a GPU each.
Texts InGroups(int world,
               const std::function<std::string(int, const DevicePtr&, DeviceGroup&)>& body,
               size_t staging = kSmallBuffer) {
  const std::string id = nccl::NewGroupId();
  return InProcesses(world, [&](int rank) -> std::string {
    for (const char* backend : {"cuda_libraries", "cuda"}) RegisterBackend(backend);
    const DevicePtr gpu = cuda::NewDevice(rank);
    const DeviceGroupPtr group = nccl::JoinGroup(
        gpu, id, rank, world, [](double) {}, staging);
    return body(rank, gpu, *group);
  });
}

void ExpectAll(const Texts& texts, const std::string& want) {
  for (const std::string& text : texts) EXPECT_EQ(text, want);
}

Tensor Term(int number, int trial, const Shape& shape, DType dtype) {
  Random random(static_cast<uint64_t>(1000 * trial + number + 1));
  return RandomTensor(random, shape, dtype, -5, 5);
}

std::string Bytes(const Tensor& t) {
  const Tensor host = t.ToDevice(DefaultDevice()).Contiguous();
  return {static_cast<const char*>(host.raw_data()), static_cast<size_t>(host.bytes())};
}

std::string SumOf(int terms, int trial, const Shape& shape, DType dtype, double factor) {
  std::vector<Tensor> all;
  std::vector<const void*> from;
  for (int i = 0; i < terms; ++i) all.push_back(Term(i, trial, shape, dtype));
  for (const Tensor& t : all) from.push_back(t.raw_data());
  const Tensor sum(shape, nullptr, dtype);
  SumOfProducts(dtype, factor, from.data(), terms, sum.size(), sum.raw_data());
  return Bytes(sum);
}

/// The lists of `rank`, and the bytes of the sums of all ranks.
struct Problem {
  Problem(int trial, int world, const DevicePtr& gpu, int rank) {
    Random random(static_cast<uint64_t>(77 * trial + world));
    dtype = std::vector<DType>{
        kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64}[random.Int(0, 5)];
    lists = static_cast<int>(random.Int(1, 3));
    factor = dtype == kInt32 || dtype == kInt64 ? 1 : 0.3;
    std::vector<Shape> shapes;
    for (int64_t k = random.Int(1, 4); k > 0; --k)
      shapes.push_back({random.Int(0, trial % 3 == 2 ? 20000 : 50)});
    for (int list = 0; list < lists; ++list)
      for (size_t i = 0; i < shapes.size(); ++i)
        tensors.push_back(
            Term(rank * lists + list, trial * 10 + static_cast<int>(i), shapes[i], dtype)
                .ToDevice(gpu));
    for (size_t i = 0; i < shapes.size(); ++i)
      want.push_back(
          SumOf(world * lists, trial * 10 + static_cast<int>(i), shapes[i], dtype, factor));
  }
  bool IsRight() const {
    for (size_t i = 0; i < want.size(); ++i)
      if (Bytes(tensors[i]) != want[i]) return false;
    return true;
  }
  DType dtype;
  int lists;
  double factor;
  std::vector<Tensor> tensors;
  std::vector<std::string> want;
};

TEST(DeviceGroup, AddsProductsInOrder) {
  for (int world : {1, 2, 3, 4})
    ExpectAll(InGroups(world,
                       [&](int rank, const DevicePtr& gpu, DeviceGroup& group) -> std::string {
                         for (int trial = 0; trial < 18; ++trial) {
                           const Problem p(trial, world, gpu, rank);
                           group.Await(group.StartSum(p.tensors, static_cast<size_t>(p.lists),
                                                      p.factor, true, "sum"));
                           if (!p.IsRight())
                             return "trial " + std::to_string(trial) + DTypeName(p.dtype) +
                                    std::to_string(p.lists);
                         }
                         return "right";
                       }),
              "right");
}

// The stub's order matters to three ranks and more.
TEST(DeviceGroup, NcclsOwnSumOfTwoRanksIsRight) {
  ExpectAll(InGroups(2,
                     [](int rank, const DevicePtr& gpu, DeviceGroup& group) -> std::string {
                       for (int trial = 0; trial < 12; ++trial) {
                         const Problem p(trial, 2, gpu, rank);
                         group.Await(group.StartSum(p.tensors, static_cast<size_t>(p.lists),
                                                    p.factor, false, "sum"));
                         if (!p.IsRight())
                           return "trial " + std::to_string(trial) + DTypeName(p.dtype) +
                                  std::to_string(p.lists);
                       }
                       return "right";
                     }),
            "right");
}

TEST(DeviceGroup, NcclsOwnOrderIsAnother) {
  const Shape shape{4000};
  const std::string want = SumOf(3, 5, shape, kFloat32, 1);
  for (const std::string& got : InGroups(3, [&](int rank, const DevicePtr&gpu, DeviceGroup&group) {
         const Tensor t = Term(rank, 5, shape, kFloat32).ToDevice(gpu);
         group.Await(group.StartSum({&t, 1}, 1, 1, false, "sum"));
         return Bytes(t);
       })) {
    ASSERT_EQ(got.size(), want.size());
    EXPECT_NE(got, want);  // else nothing here would notice which one was used
    for (size_t i = 0; i < 4000; ++i) {
      float a = 0, b = 0;
      std::memcpy(&a, got.data() + 4 * i, 4);
      std::memcpy(&b, want.data() + 4 * i, 4);
      EXPECT_NEAR(a, b, 1e-5);
    }
  }
}

TEST(DeviceGroup, CollectivesRunBesideOtherWorkInTheirOrder) {
  ExpectAll(InGroups(3,
                     [](int rank, const DevicePtr& gpu, DeviceGroup& group) -> std::string {
                       const Problem one(2, 3, gpu, rank), two(5, 3, gpu, rank);
                       const auto start = [&](const Problem& p) {
                         return group.StartSum(p.tensors, static_cast<size_t>(p.lists), p.factor,
                                               true, "sum");
                       };
                       const uint64_t first = start(one), second = start(two);
                       const Tensor own = Term(rank, 1, {7}, kFloat32).ToDevice(gpu);
                       const Tensor all({3, 7}, gpu, kFloat32);
                       group.Await(group.StartGather(own, all, "gather"));
                       for (int r = 0; r < 3; ++r)
                         if (Bytes(all.SliceAxis(0, r, r + 1)) != Bytes(Term(r, 1, {7}, kFloat32)))
                           return "gather";
                       group.Await(second);
                       group.Await(first);
                       if (!one.IsRight() || !two.IsRight()) return "sum";
                       const std::vector<Tensor> both{Term(rank, 2, {5}, kFloat16).ToDevice(gpu),
                                                      Term(rank, 3, {0}, kInt8).ToDevice(gpu)};
                       group.Await(group.StartBroadcast(both, 1, "broadcast"));
                       return Bytes(both[0]) == Bytes(Term(1, 2, {5}, kFloat16)) ? "right"
                                                                                 : "broadcast";
                     }),
            "right");
}

TEST(DeviceGroup, CapturedCollectivesAreRepeated) {
  ExpectAll(InGroups(2,
                     [](int rank, const DevicePtr& gpu, DeviceGroup& group) -> std::string {
                       auto& capturer = dynamic_cast<Capturer&>(*gpu);
                       const Shape shape{30000};  // several chunks
                       const Tensor input(shape, gpu, kFloat32), a(shape, gpu, kFloat32),
                           b(shape, gpu, kFloat32), result(shape, gpu, kFloat32);
                       const auto work = capturer.Capture([&] {
                         gpu->CopyElements(input, a);
                         const uint64_t first = group.StartSum({&a, 1}, 1, 0.5, true, "sum");
                         gpu->CopyElements(input, b);  // beside it
                         const uint64_t second = group.StartSum({&b, 1}, 1, 2, true, "sum");
                         group.Await(first);
                         gpu->CopyElements(a, result);
                         group.Await(second);
                       });
                       for (int trial = 0; trial < 3; ++trial) {
                         gpu->CopyElements(Term(rank, trial, shape, kFloat32).ToDevice(gpu), input);
                         group.Launching("replay");
                         work->Launch();
                         group.Launched();
                         if (Bytes(result) != SumOf(2, trial, shape, kFloat32, 0.5)) return "first";
                         if (Bytes(b) != SumOf(2, trial, shape, kFloat32, 2)) return "second";
                       }
                       return group.oldest().where.empty() ? "right" : group.oldest().where;
                     }),
            "right");
}

TEST(DeviceGroup, WhatWasStartedBeforeIsNotAwaitedInACapture) {
  const Texts texts =
      InGroups(2, [](int rank, const DevicePtr& gpu, DeviceGroup& group) -> std::string {
        const Tensor t = Term(rank, 1, {9}, kFloat32).ToDevice(gpu);
        const uint64_t ticket = group.StartSum({&t, 1}, 1, 1, true, "sum");
        try {
          dynamic_cast<Capturer&>(*gpu).Capture([&] { group.Await(ticket); });
        } catch (const NotCapturable&) {
          group.Await(ticket);
          return Bytes(t) == SumOf(2, 1, {9}, kFloat32, 1) ? "right" : "wrong";
        }
        return "captured";
      });
  ExpectAll(texts, "right");
}

TEST(DeviceGroup, AbortEndsWorkAndTheNextWaitRaises) {
  setenv("SINGA_CUDA_EMULATED_NCCL", "stuck 1 1", 1);
  const Texts texts =
      InGroups(2, [](int rank, const DevicePtr& gpu, DeviceGroup& group) -> std::string {
        const Tensor t = Term(rank, 1, {9}, kFloat32).ToDevice(gpu);
        // Before the sum: the emulated GPU may hold up its host while it waits for the other rank.
        std::thread watch([&] {
          while (group.oldest().seconds < 0.2)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
          group.Abort(group.oldest().where + " hangs");
        });
        std::string text = "nothing";
        try {
          group.Await(group.StartSum({&t, 1}, 1, 1, true, "the sum"));
        } catch (const std::runtime_error&) {
          // Given up while it was being queued; the wait says why.
        }
        try {
          gpu->Sync();
        } catch (const std::runtime_error& error) {
          text = error.what();
        }
        watch.join();
        gpu->Sync();  // raises once
        return text;
      });
  unsetenv("SINGA_CUDA_EMULATED_NCCL");
  ExpectAll(texts, "the sum hangs");
}

TEST(DeviceGroup, ReportsErrorsOfNccl) {
  setenv("SINGA_CUDA_EMULATED_NCCL", "error 0 2", 1);
  const Texts texts =
      InGroups(2, [](int rank, const DevicePtr& gpu, DeviceGroup& group) -> std::string {
        const Tensor t = Term(rank, 1, {9}, kFloat32).ToDevice(gpu);
        std::string problem;
        std::thread watch([&] {
          for (int i = 0; problem.empty() && i < 1000; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            problem = group.Problem();
          }
          group.Abort("over");
        });
        try {
          group.Await(group.StartSum({&t, 1}, 1, 1, true, "sum"));
        } catch (const std::runtime_error&) {
          // The error may be there while the sum is being queued.
        }
        watch.join();
        return problem;
      });
  unsetenv("SINGA_CUDA_EMULATED_NCCL");
  EXPECT_EQ(texts[0], "NCCL: the network is down");
  EXPECT_EQ(texts[1], "");
}

TEST(DeviceGroup, RanksWithOneGpuAreRefused) {
  const std::string id = nccl::NewGroupId();
  for (const std::string& text : InProcesses(2, [&](int rank) -> std::string {
         nccl::JoinGroup(cuda::NewDevice(1), id, rank, 2, [](double) {});
         return "joined";
       }))
    EXPECT_NE(text.find("duplicate GPU"), std::string::npos) << text;
}

TEST(DeviceGroup, AMissingRankIsNotAwaitedForever) {
  const std::string id = nccl::NewGroupId();
  const Texts texts = InProcesses(1, [&](int rank) -> std::string {
    nccl::JoinGroup(cuda::NewDevice(0), id, rank, 2, [](double waited) {
      if (waited > 0.2) throw std::runtime_error("nobody came");
    });
    return "joined";
  });
  EXPECT_EQ(texts[0], "nobody came");
}

}  // namespace
}  // namespace singa::test

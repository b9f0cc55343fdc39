#include "backend/cuda/kernels/rank_sum.h"

#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/sum_of_products.h"
#include "model/operation/batchnorm/spec.h"

namespace singa::cuda {
namespace {

using namespace test;

/// Calls queue(stream) on the emulator, which looks for races, and waits.
template <class Queue>
void RunOnEmulator(const Queue& queue) {
  const Stream stream = runtime::NewStream();
  emulated::Watch(true);
  queue(stream);
  runtime::Synchronize(stream);
  emulated::Watch(false);
  runtime::DeleteStream(stream);
}

TEST(CudaRankSum, AddsProductsInOrder) {
  Random random(1);
  for (DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16, kInt32, kInt64})
    for (int64_t count : {1, 2, 3, 7})
      for (int64_t n : {0, 1, 5, 256, 1000}) {
        const bool integers = dtype == kInt32 || dtype == kInt64;
        const double factor = integers ? 1 : 1.0 / 3;
        const int64_t apart = n + random.Int(0, 5);
        Tensor terms = RandomTensor(random, {count, apart}, dtype, -100, 100);
        if (count * apart > 0 && !integers) terms.SliceAxis(1, 0, 1).Fill(kNan);
        std::vector<const void*> from;
        for (int64_t t = 0; t < count; ++t)
          from.push_back(static_cast<const char*>(terms.raw_data()) +
                         static_cast<size_t>(t * apart) * SizeOf(dtype));
        const Tensor want({n}, nullptr, dtype), got({n}, nullptr, dtype);
        SumOfProducts(dtype, factor, from.data(), count, n, want.raw_data());
        RunOnEmulator([&](Stream stream) {
          QueueOrderedSum(dtype, factor, terms.raw_data(),
                          static_cast<size_t>(apart) * SizeOf(dtype), count, n, got.raw_data(),
                          stream);
        });
        EXPECT_EQ(BytesOf(got), BytesOf(want))
            << DTypeName(dtype) << ", " << count << " terms of " << n;
      }
}

TEST(CudaRankSum, CopiesPieces) {
  Random random(2);
  for (size_t unit : {1, 2, 4, 8})
    for (int64_t most : {3, 40, 9000}) {
      // More pieces than a launch takes, empty ones among them, at any multiple of the unit.
      std::vector<int64_t> sizes, places{0};
      for (int i = 0; i < (most > 1000 ? 8 : 300); ++i) {
        sizes.push_back(random.Int(0, most));
        places.push_back(places.back() + sizes.back() + random.Int(0, 3));
      }
      const auto bytes = places.back() * static_cast<int64_t>(unit);
      const Tensor from = RandomTensor(random, {bytes}, kUInt8, 0, 255);
      const Tensor want({bytes}, nullptr, kUInt8), got({bytes}, nullptr, kUInt8);
      std::memset(want.raw_data(), 7, static_cast<size_t>(bytes));
      std::memset(got.raw_data(), 7, static_cast<size_t>(bytes));
      std::vector<Piece> pieces;
      for (size_t i = 0; i < sizes.size(); ++i) {
        const size_t at = static_cast<size_t>(places[i]) * unit;
        const size_t size = static_cast<size_t>(sizes[i]) * unit;
        char* const source = static_cast<char*>(from.raw_data()) + at;
        std::memcpy(static_cast<char*>(want.raw_data()) + at, source, size);
        pieces.push_back({source, static_cast<char*>(got.raw_data()) + at, size});
      }
      RunOnEmulator([&](Stream stream) { QueuePieces(pieces, unit, stream); });
      EXPECT_EQ(BytesOf(got), BytesOf(want)) << unit << " bytes, up to " << most;
    }
}

TEST(CudaRankSum, WritesNumbers) {
  std::vector<int64_t> want, got(600, -1);
  for (int64_t i = 0; i < 600; ++i) want.push_back(i * i << 30);
  RunOnEmulator([&](Stream stream) { QueueNumbers(want, got.data(), stream); });
  EXPECT_EQ(got, want);
}

TEST(CudaRankSum, UpdatesRunningStatisticsInOrder) {
  Random random(3);
  for (DType dtype : {kFloat32, kFloat64}) {
    const int64_t channels = 300, ranks = 3, batches = 2;
    const int64_t counts[ranks][batches] = {{4, 1}, {0, 7}, {9, 2}};
    const size_t unit = SizeOf(dtype), size = static_cast<size_t>(channels) * unit;
    // A row: (batches, mean and variance), then the counts.
    const size_t step = 2 * size, row = batches * step + sizeof(counts[0]);
    std::vector<char> rows(ranks * row);
    const Tensor mean = RandomTensor(random, {channels}, dtype);
    const Tensor var = RandomTensor(random, {channels}, dtype, 0.5, 2);
    const Tensor want_mean = mean.Clone(), want_var = var.Clone();
    for (int64_t r = 0; r < ranks; ++r) {
      char* const begin = rows.data() + static_cast<size_t>(r) * row;
      std::memcpy(begin + batches * step, counts[r], sizeof(counts[r]));
      for (int64_t b = 0; b < batches; ++b) {
        const Tensor batch = RandomTensor(random, {2, channels}, dtype, 0.1, 3);
        std::memcpy(begin + static_cast<size_t>(b) * step, batch.raw_data(), step);
        const auto update = [&]<class T>(T) {
          const T* values = static_cast<const T*>(batch.raw_data());
          UpdateRunningStatistics<T>(channels, counts[r][b], 0.3, values, values + channels,
                                     static_cast<T*>(want_mean.raw_data()),
                                     static_cast<T*>(want_var.raw_data()));
        };
        dtype == kFloat32 ? update(0.0F) : update(0.0);
      }
    }
    RunOnEmulator([&](Stream stream) {
      QueueRunningUpdate(dtype,
                         {.channels = channels,
                          .factor = 0.3,
                          .ranks = ranks,
                          .batches = batches,
                          .row = row,
                          .step = step,
                          .mean = rows.data(),
                          .var = rows.data() + size,
                          .counts = reinterpret_cast<const int64_t*>(rows.data() + batches * step),
                          .count_step = 1,
                          .running_mean = mean.raw_data(),
                          .running_var = var.raw_data()},
                         stream);
    });
    EXPECT_EQ(BytesOf(mean), BytesOf(want_mean));
    EXPECT_EQ(BytesOf(var), BytesOf(want_var));
  }
}

}  // namespace
}  // namespace singa::cuda

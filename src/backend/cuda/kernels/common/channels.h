#pragma once

// Arrays with channels: sums over the values of each channel, and passes over all elements that
// look up what belongs to their channels.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <numeric>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/join.h"

namespace singa::cuda {

/// Neighbours in memory that a thread of the sums takes at a time: a warp reads whole lines of 128
/// bytes, and there are registers left for several reads on their way.
constexpr int Neighbours(DType dtype) { return dtype == kFloat64 ? 2 : 4; }

/// Where the values of a channel lie. The channel of element i is i / spatial mod channels;
/// channels-last and (N, C) are the same with a spatial size of 1. There neighbours in memory are
/// channels, else values of one.
struct Channels {
  static constexpr int kThreads = 256;
  /// Of the sums: four for each multiprocessor of a large GPU.
  static constexpr int64_t kBlocks = 512;
  static constexpr int64_t kLeastSteps = 8;  ///< of a thread in one part

  template <class Spec>
  Channels(const Spec& spec, int neighbours)
      : count(spec.shape[1]),
        spatial(spec.x_layout ? 1 : spec.shape.Count(2, spec.shape.rank())),
        values(spec.shape[0] * spec.shape.Count(2, spec.shape.rank())),
        neighbours((by_columns() ? count : spatial) % neighbours == 0 ? neighbours : 1),
        lanes(by_columns() ? LanesFor(count, this->neighbours) : 1),
        unit(by_columns() ? 1 : this->neighbours),
        steps(values / unit),
        parts(std::clamp<int64_t>(kBlocks / std::max<int64_t>(blocks(), 1), 1,
                                  std::max<int64_t>(steps / (kLeastSteps * kThreads / lanes), 1))),
        divisor(std::max<int64_t>(spatial, 1)) {
    Check(FitsIndex32(values), "BatchNorm", "a channel has ", values, " values, more than 2^31");
  }
  bool by_columns() const { return spatial == 1; }
  /// Blocks that go through all channels along x, of which a grid has room for 2^31 − 1, and
  /// through all parts along y.
  dim3 grid() const { return dim3(static_cast<unsigned>(blocks()), static_cast<unsigned>(parts)); }
  int64_t blocks() const {
    const int64_t width = int64_t{lanes} * neighbours;
    return by_columns() ? (count + width - 1) / width : count;
  }
  /// Of a block: a warp where there are blocks enough, each with little to do.
  int threads() const {
    return !by_columns() && count >= kBlocks && values <= kThreads ? kWarpThreads : kThreads;
  }
  /// Of a block that joins the parts of a channel.
  int merging_threads() const { return parts > 2 * kWarpThreads ? kThreads : kWarpThreads; }
  /// The first step of a part.
  __device__ int64_t PartBegin(int64_t part) const { return part * steps / parts; }

  int64_t count, spatial, values;
  int neighbours;
  int lanes;      ///< threads side by side along the channels, a power of two
  int unit;       ///< values of a channel in one step
  int64_t steps;  ///< to go through all of them
  int64_t parts;
  Divisor divisor;
};

/// As many neighbours at a time as the addresses allow.
template <class Spec>
Channels ChannelsOf(const Spec& spec, std::initializer_list<const void*> arrays) {
  int neighbours = Neighbours(spec.dtype);
  for (const void* p : arrays)
    if (!IsAligned(p, static_cast<size_t>(neighbours) * SizeOf(spec.dtype))) neighbours = 1;
  return Channels(spec, neighbours);
}

/// What a thread has of one part: of as many channels as it takes neighbours, or of one.
template <int kLength, bool kByColumns>
struct Part {
  static constexpr int kSums = kByColumns ? kLength : 1;

  __device__ explicit Part(const Channels& channels) : channels(channels) {
    start = channels.PartBegin(blockIdx.y);
    end = channels.PartBegin(blockIdx.y + 1);
    count = (end - start) * channels.unit;
    if constexpr (kByColumns) {
      const int64_t first = int64_t{blockIdx.x} * channels.lanes * kLength;
      const int thread = static_cast<int>(threadIdx.x);
      const int row = thread / channels.lanes;
      channel = first + (thread - row * channels.lanes) * kLength;
      own = thread < channels.lanes * kLength ? first + thread : channels.count;
      begin = start + row;
      step = Channels::kThreads / channels.lanes;
    } else {
      channel = blockIdx.x;
      own = threadIdx.x == 0 ? channel : channels.count;
      begin = start + threadIdx.x;
      step = blockDim.x;
    }
    exists = channel < channels.count;
    if (!exists) begin = end;
  }
  /// Whether it finishes the sums of a channel, and which.
  __device__ bool finishes() const { return own < channels.count; }

  /// Where step j of a channel lies.
  __device__ int64_t At(int64_t j, int64_t of_channel) const {
    if constexpr (kByColumns) {
      return j * channels.count + of_channel;
    } else {
      j *= kLength;
      const uint32_t image = channels.divisor.Divide(static_cast<uint32_t>(j));
      return (image * channels.count + of_channel) * channels.spatial +
             (j - image * channels.spatial);
    }
  }
  /// Calls use(load(at), at) for where each step lies; several loads are on their way at a time.
  /// Then it calls after().
  template <int kAhead, class Load, class Use, class After>
  __device__ __forceinline__ void ForEach(const Load& load, const Use& use,
                                          const After& after) const {
    int64_t j = begin;
    for (; j + (kAhead - 1) * step < end; j += kAhead * step) {
      decltype(load(int64_t{})) loaded[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) loaded[k] = load(At(j + k * step, channel));
#pragma unroll
      for (int k = 0; k < kAhead; ++k) use(loaded[k], At(j + k * step, channel));
      after();
    }
    for (; j < end; j += step) {
      use(load(At(j, channel)), At(j, channel));
      after();
    }
  }
  template <int kAhead, class Load, class Use>
  __device__ __forceinline__ void ForEach(const Load& load, const Use& use) const {
    ForEach<kAhead>(load, use, [] {});
  }
  /// Of the channel that this thread finishes, the sum over all threads that have values of it.
  __device__ double Sum(double (&sums)[kSums]) const {
    if constexpr (kByColumns) {
      return JoinColumns<Channels::kThreads>(sums, channels.lanes, 0.0, Plus());
    } else {
      return SumBlock(sums[0]);
    }
  }
  /// Two sums per part and channel: [part][channel][2].
  __device__ void Store(double* partial, double a, double b) const {
    StoreVector(partial + (int64_t{blockIdx.y} * channels.count + own) * 2, Vector<double>{{a, b}});
  }

  const Channels& channels;
  int64_t start;             ///< the first step of the part, whose ever it is
  int64_t begin, end, step;  ///< those of this thread
  int64_t count;             ///< values of each channel
  int64_t channel;           ///< the first one of which it has values
  int64_t own;               ///< the one whose sums it finishes
  bool exists;
};

/// Calls launch with the kind of Part that fits.
template <class T, class F>
void WithPart(const Channels& channels, const F& launch) {
  constexpr int kNeighbours = Neighbours(kDTypeOf<T>);
  if (channels.neighbours > 1) {
    channels.by_columns() ? launch.template operator()<kNeighbours, true>()
                          : launch.template operator()<kNeighbours, false>();
  } else {
    channels.by_columns() ? launch.template operator()<1, true>()
                          : launch.template operator()<1, false>();
  }
}

/// The channels of consecutive elements, from element i on.
template <class Index>
struct ChannelWalk {
  __device__ ChannelWalk(Index i, const DivisorOf<Index>& spatial, const DivisorOf<Index>& count)
      : spatial(spatial.value()), count(count.value()) {
    const Index plane = spatial.Divide(i);
    inside = i - plane * this->spatial;
    channel = plane - count.Divide(plane) * this->count;
  }
  __device__ void Next() {
    if (++inside < spatial) return;
    inside = 0;
    if (++channel == count) channel = 0;
  }
  Index spatial, count, inside, channel;
};

/// How a kernel goes through all elements.
template <int kLength, class Index, bool kSame>
struct Access {};

/// Calls launch(access, grid) as sizes and addresses allow.
template <class T, class F>
void WithAccess(const Channels& channels, std::initializer_list<const void*> arrays,
                const F& launch) {
  constexpr int kLength = kVectorLength<T>;
  constexpr int kThreads = Channels::kThreads;
  // Twelve for each of 132 multiprocessors: whole waves, whether the registers of a kernel allow
  // two, three or four blocks at a time on each.
  constexpr int64_t kMostBlocks = 12 * 132;
  const int64_t size = channels.count * channels.values;
  bool vectors = size % kLength == 0;
  for (const void* p : arrays) vectors = vectors && IsAligned(p);
  // The vectors of all blocks together are those of whole pixels.
  const int64_t of_pixel = std::max<int64_t>(channels.count / kLength, 1);
  const int64_t unit = of_pixel / std::gcd(of_pixel, int64_t{kThreads});
  const int64_t wanted = std::min((size / kLength + kThreads - 1) / kThreads, kMostBlocks);
  const int64_t blocks = (wanted + unit - 1) / unit * unit;
  if (vectors && channels.by_columns() && channels.count % kLength == 0 &&
      FitsIndex32(blocks * kThreads * kLength)) {
    launch(Access<kLength, uint32_t, true>(), dim3(static_cast<unsigned>(blocks)));
  } else if (!FitsIndex32(size)) {
    launch(Access<1, int64_t, false>(), GridFor(size, kThreads));
  } else if (vectors) {
    launch(Access<kLength, uint32_t, false>(), GridFor(size, kThreads, kLength));
  } else {
    launch(Access<1, uint32_t, false>(), GridFor(size, kThreads));
  }
}

/// What the sums of all parts take, whether arrays are aligned or not.
template <class Spec>
size_t PartialBytes(const Spec& spec) {
  const int64_t parts =
      std::max(Channels(spec, 1).parts, Channels(spec, Neighbours(spec.dtype)).parts);
  return static_cast<size_t>(parts * spec.shape[1]) * 2 * sizeof(double);
}

}  // namespace singa::cuda

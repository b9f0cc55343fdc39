// One launch updates all parameters: the list of tensors is a kernel parameter, in which each block
// finds its piece. The rules are in model/formula/optimizer.h.

#include "model/formula/optimizer.h"

#include <algorithm>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/kernels/scalar_argument.h"
#include "model/operation/optimizer/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = 2048;  // elements per block

/// A kernel may have 32 764 bytes of parameters (4 KB before CUDA 12.1). More tensors need more
/// launches.
constexpr int kMostTensors = 640;

template <int kArrays>
struct Tensors {
  int count = 0;
  uint32_t first_piece[kMostTensors + 1];  ///< of each tensor
  int64_t size[kMostTensors];
  uint8_t type[kMostTensors];  ///< DType of the gradient
  void* data[kMostTensors][kArrays];

  /// The last tensor that begins at or before this piece.
  __device__ int Find(uint32_t piece) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_piece[middle] <= piece ? low : high) = middle;
    }
    return low;
  }
};

/// Calls launch(tensors) for groups of tensors. arrays(i, data) writes the addresses that belong to
/// gradients[i].
template <int kArrays, class Arrays, class LaunchFn>
void ForGroups(std::span<const Tensor> gradients, const Arrays& arrays, const LaunchFn& launch) {
  Tensors<kArrays> group;
  uint32_t pieces = 0;
  const auto flush = [&] {
    group.first_piece[group.count] = pieces;
    if (pieces > 0) launch(group, pieces);
    group.count = 0;
    pieces = 0;
  };
  for (size_t i = 0; i < gradients.size(); ++i) {
    const int64_t size = StoredSize(gradients[i]);
    if (size == 0) continue;
    if (group.count == kMostTensors) flush();
    group.first_piece[group.count] = pieces;
    group.size[group.count] = size;
    group.type[group.count] = static_cast<uint8_t>(gradients[i].data_type());
    arrays(i, group.data[group.count]);
    pieces += static_cast<uint32_t>((size + kPiece - 1) / kPiece);
    ++group.count;
  }
  flush();
}

/// Rule and decision of an update with conditions. One thread makes them ahead of it.
template <class Rule, class C>
struct Prepared {
  Rule rule;
  formula::Decision<C> decision;
};

template <class Rule, class C>
__global__ void Prepare(OptimizerSpec spec, ScalarArgument<decltype(Scalars::v)> scalars,
                        formula::Conditions conditions, Prepared<Rule, C>* prepared) {
  auto v = scalars.Get();
  formula::PickScalars(conditions, v.data());
  *prepared = {Rule::From(spec, v.data()), formula::Decision<C>::From(conditions, v.data())};
}

constexpr int kNeighbours = 4;  // elements that a thread processes together

/// Whether all addresses are aligned for vectors of kNeighbours floats of any type.
template <int kArrays>
__device__ __forceinline__ bool HasVectors(void* const (&arrays)[kArrays]) {
  uintptr_t bits = 0;
#pragma unroll
  for (int k = 0; k < kArrays; ++k) bits |= reinterpret_cast<uintptr_t>(arrays[k]);
  return bits % (kNeighbours * sizeof(double)) == 0;
}

/// Calls f<kNeighbours>(i), and f<1>(i) for the rest, for this thread's elements of [begin, end).
template <class F>
__device__ __forceinline__ void ForNeighbours(int64_t begin, int64_t end, bool vectors,
                                              const F& f) {
  int64_t rest = begin;
  if (vectors) {
    rest = begin + (end - begin) / kNeighbours * kNeighbours;
    for (int64_t i = begin + int64_t{threadIdx.x} * kNeighbours; i < rest;
         i += int64_t{kThreads} * kNeighbours)
      f.template operator()<kNeighbours>(i);
  }
  for (int64_t i = rest + threadIdx.x; i < end; i += kThreads) f.template operator()<1>(i);
}

template <class C, class T, int kLength>
__device__ __forceinline__ void LoadFloats(const void* p, int64_t i, C (&values)[kLength]) {
  const auto vector = LoadVector<T, kLength>(static_cast<const T*>(p) + i);
#pragma unroll
  for (int j = 0; j < kLength; ++j) values[j] = Cast<C>(vector.v[j]);
}
/// Loads floats of any type, which is the same for all threads of a block.
template <class C, int kLength>
__device__ __forceinline__ void LoadFloatsAs(const void* p, DType dtype, int64_t i,
                                             C (&values)[kLength]) {
  switch (dtype) {
    case kFloat16:
      return LoadFloats<C, Float16>(p, i, values);
    case kBFloat16:
      return LoadFloats<C, BFloat16>(p, i, values);
    case kFloat64:
      return LoadFloats<C, double>(p, i, values);
    default:
      return LoadFloats<C, float>(p, i, values);
  }
}
template <class T, class C, int kLength>
__device__ __forceinline__ void StoreFloats(void* p, int64_t i, const C (&values)[kLength]) {
  Vector<T, kLength> vector;
#pragma unroll
  for (int j = 0; j < kLength; ++j) vector.v[j] = Cast<T>(values[j]);
  StoreVector(static_cast<T*>(p) + i, vector);
}

/// Updates contiguous elements, in vectors where the alignment permits.
template <class Rule, class T, class C>
__global__ void __launch_bounds__(kThreads)
    Update(SINGA_CONSTANT(Tensors<2 + Rule::kStates>) tensors, ScalarArgument<Rule> rules,
           ScalarArgument<formula::Decision<C>> decisions) {
  const formula::Decision<C> decision = decisions.Get();
  if (decision.leave_out) return;
  const Rule rule = rules.Get();
  const int tensor = tensors.Find(blockIdx.x);
  const int64_t begin = static_cast<int64_t>(blockIdx.x - tensors.first_piece[tensor]) * kPiece;
  const int64_t size = tensors.size[tensor];
  const int64_t end = begin + kPiece < size ? begin + kPiece : size;
  const auto& data = tensors.data[tensor];
  const auto gradient_type = static_cast<DType>(tensors.type[tensor]);
  ForNeighbours(begin, end, HasVectors(data), [&]<int kLength>(int64_t i) {
    constexpr int kStates = Rule::kStates;
    C value[kLength], gradient[kLength], state[kStates + 1][kLength];
    LoadFloats<C, T>(data[0], i, value);
    LoadFloatsAs(data[1], gradient_type, i, gradient);
#pragma unroll
    for (int s = 0; s < kStates; ++s) LoadFloats<C, C>(data[2 + s], i, state[s]);
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const C g = decision(gradient[j]);
      if constexpr (kStates == 0) {
        value[j] = rule(value[j], g);
      } else if constexpr (kStates == 1) {
        value[j] = rule(value[j], g, state[0][j]);
      } else {
        value[j] = rule(value[j], g, state[0][j], state[1][j]);
      }
    }
    StoreFloats<T>(data[0], i, value);
#pragma unroll
    for (int s = 0; s < kStates; ++s) StoreFloats<C>(data[2 + s], i, state[s]);
  });
}

constexpr size_t kPreparedBytes = 128;

size_t UpdateWorkspace(const OptimizerSpec& spec) {
  return spec.conditions() > 0 ? kPreparedBytes : 0;
}

void RunUpdate(const OptimizerSpec& spec, const Execution& execution) {
  const size_t n = spec.count(execution.inputs.size());
  const Stream stream = StreamOf(execution.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    formula::SwitchRule<C>(spec, execution.scalars.v.data(), [&]<class Rule>(const Rule&) {
      ScalarArgument<Rule> rule{};
      ScalarArgument<formula::Decision<C>> decision{{false, C(1), C(1)}};
      if (spec.conditions() > 0) {
        static_assert(sizeof(Prepared<Rule, C>) <= kPreparedBytes);
        auto* prepared = static_cast<Prepared<Rule, C>*>(execution.workspace);
        LaunchIndependent(Prepare<Rule, C>, 1, 1, stream, spec,
                          ScalarArgumentOf(execution, [](const Scalars& s) { return s.v; }),
                          formula::Conditions(spec, execution.inputs), prepared);
        rule.live = &prepared->rule;
        decision.live = &prepared->decision;
      } else {
        rule = ScalarArgumentOf(execution,
                                [spec](const Scalars& s) { return Rule::From(spec, s.v.data()); });
      }
      constexpr int kArrays = 2 + Rule::kStates;
      ForGroups<kArrays>(
          execution.inputs.subspan(n, n),
          [&](size_t i, void** data) {
            data[0] = execution.outputs[i].raw_data();
            data[1] = execution.inputs[n + i].raw_data();
            for (int s = 0; s < Rule::kStates; ++s)
              data[2 + s] = execution.outputs[static_cast<size_t>(s + 1) * n + i].raw_data();
          },
          [&](const Tensors<kArrays>& tensors, uint32_t pieces) {
            LaunchIndependent(Update<Rule, T, C>, pieces, kThreads, stream, tensors, rule,
                              decision);
          });
    });
  });
}

__global__ void NextLossScale(const double* squares, int64_t count, formula::LossScaleRule rule,
                              double* loss_scale) {
  rule(formula::AreFinite(squares, count), loss_scale);
}

void RunLossScale(const LossScaleSpec&, const Execution& execution) {
  LaunchIndependent(NextLossScale, 1, 1, StreamOf(execution.device), execution.in<double>(0),
                    execution.inputs[0].size(), formula::LossScaleRule(execution.scalars),
                    execution.out<double>(0));
}

// ---- the norm of all gradients

/// Enough blocks to fill a GPU. Each stores one sum.
constexpr uint32_t kMostSums = 1024;

template <class C>
__global__ void __launch_bounds__(kThreads)
    SumPieces(SINGA_CONSTANT(Tensors<1>) tensors, double* partial) {
  const uint32_t pieces = tensors.first_piece[tensors.count];
  double sum = 0;
  for (uint32_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int tensor = tensors.Find(piece);
    const int64_t begin = static_cast<int64_t>(piece - tensors.first_piece[tensor]) * kPiece;
    const int64_t size = tensors.size[tensor];
    const int64_t end = begin + kPiece < size ? begin + kPiece : size;
    const auto& data = tensors.data[tensor];
    const auto type = static_cast<DType>(tensors.type[tensor]);
    ForNeighbours(begin, end, HasVectors(data), [&]<int kLength>(int64_t i) {
      C values[kLength];
      LoadFloatsAs(data[0], type, i, values);
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        const auto value = static_cast<double>(values[j]);
        sum += value * value;
      }
    });
  }
  sum = SumBlock(sum);
  // Each block has its own slot, so the order of the sum is fixed.
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// total (+)= Σ partial. One block.
__global__ void __launch_bounds__(kThreads)
    SumPartial(const double* partial, int64_t count, bool add, double* total) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
  sum = SumBlock(sum);
  if (threadIdx.x == 0) *total = add ? *total + sum : sum;
}

size_t SumSquareWorkspace(const SumSquareSpec&) { return size_t{kMostSums} * sizeof(double); }

void RunSumSquare(const SumSquareSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  auto* total = execution.out<double>(0);
  auto* partial = static_cast<double*>(execution.workspace);
  Launch(SumPartial, 1, kThreads, stream, partial, int64_t{0}, false, total);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    ForGroups<1>(
        execution.inputs, [&](size_t i, void** data) { data[0] = execution.inputs[i].raw_data(); },
        [&](const Tensors<1>& tensors, uint32_t pieces) {
          const uint32_t blocks = std::min(pieces, kMostSums);
          Launch(SumPieces<ComputeType<T>>, blocks, kThreads, stream, tensors, partial);
          Launch(SumPartial, 1, kThreads, stream, partial, int64_t{blocks}, true, total);
        });
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<OptimizerSpec, RunUpdate, UpdateWorkspace>();
  RegisterKernels<LossScaleSpec, RunLossScale>();
  RegisterKernels<SumSquareSpec, RunSumSquare, SumSquareWorkspace>();
}

}  // namespace singa::cuda

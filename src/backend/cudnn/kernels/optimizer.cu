// One update of all parameters in one launch: the list of tensors travels with the launch, as a
// parameter of the kernel, and blocks find their piece in it. The rules are in
// model/formula/optimizer.h.

#include "model/formula/optimizer.h"

#include <algorithm>

#include "backend/cudnn/kernels/element.h"
#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/join.h"
#include "backend/cudnn/kernels/numbers.h"
#include "backend/cudnn/kernels/register.h"
#include "model/operation/optimizer_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kPiece = 2048;  // elements of one block

/// A kernel takes 32 764 bytes of parameters (4 KB before CUDA 12.1): more tensors take more
/// launches.
constexpr int kMostTensors = 640;

template <int kArrays>
struct Tensors {
  int count = 0;
  uint32_t first_piece[kMostTensors + 1];  ///< of each tensor
  int64_t size[kMostTensors];
  void* data[kMostTensors][kArrays];

  /// The last tensor that begins at this piece or before.
  __device__ int Find(uint32_t piece) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_piece[middle] <= piece ? low : high) = middle;
    }
    return low;
  }
};

/// Calls launch(tensors) for groups of tensors; `arrays(i)` are the addresses that belong to
/// sized[i].
template <int kArrays, class Arrays, class LaunchFn>
void ForGroups(std::span<const Tensor> sized, const Arrays& arrays, const LaunchFn& launch) {
  Tensors<kArrays> group;
  uint32_t pieces = 0;
  const auto flush = [&] {
    group.first_piece[group.count] = pieces;
    if (pieces > 0) launch(group, pieces);
    group.count = 0;
    pieces = 0;
  };
  for (size_t i = 0; i < sized.size(); ++i) {
    const int64_t size = StoredSize(sized[i]);
    if (size == 0) continue;
    if (group.count == kMostTensors) flush();
    group.first_piece[group.count] = pieces;
    group.size[group.count] = size;
    arrays(i, group.data[group.count]);
    pieces += static_cast<uint32_t>((size + kPiece - 1) / kPiece);
    ++group.count;
  }
  flush();
}

/// What one thread finds out ahead of an update about which the device decides.
template <class Rule, class C>
struct Prepared {
  Rule rule;
  formula::Decision<C> decision;
};

template <class Rule, class C>
__global__ void Prepare(OptimizerSpec spec, Numbers<decltype(Scalars::v)> numbers,
                        formula::Conditions conditions, Prepared<Rule, C>* prepared) {
  auto v = numbers.Get();
  formula::PickNumbers(conditions, v.data());
  *prepared = {Rule::From(spec, v.data()), formula::Decision<C>::From(conditions, v.data())};
}

/// Elements one after the other, in vectors where the addresses allow it.
template <class Rule, class T, class C>
__global__ void __launch_bounds__(kThreads)
    Update(SINGA_CONSTANT(Tensors<2 + Rule::kStates>) tensors, DType gradient_dtype,
           Numbers<Rule> numbers, Numbers<formula::Decision<C>> decisions) {
  const formula::Decision<C> decision = decisions.Get();
  if (decision.leave_out) return;
  const Rule rule = numbers.Get();
  const int tensor = tensors.Find(blockIdx.x);
  const int64_t begin = static_cast<int64_t>(blockIdx.x - tensors.first_piece[tensor]) * kPiece;
  const int64_t size = tensors.size[tensor];
  void* const* data = tensors.data[tensor];
  T* p = static_cast<T*>(data[0]);
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < begin + kPiece; i += kThreads) {
    if (i >= size) break;
    const C value = Cast<C>(p[i]);
    const C gradient = decision(LoadAs<C>(data[1], gradient_dtype, i));
    if constexpr (Rule::kStates == 0) {
      p[i] = Cast<T>(rule(value, gradient));
    } else if constexpr (Rule::kStates == 1) {
      C* s = static_cast<C*>(data[2]);
      C state = s[i];
      p[i] = Cast<T>(rule(value, gradient, state));
      s[i] = state;
    } else {
      C* s = static_cast<C*>(data[2]);
      C* s2 = static_cast<C*>(data[3]);
      C state = s[i], state2 = s2[i];
      p[i] = Cast<T>(rule(value, gradient, state, state2));
      s[i] = state;
      s2[i] = state2;
    }
  }
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
      Numbers<Rule> numbers{};
      Numbers<formula::Decision<C>> decision{{false, C(1), C(1)}};
      if (spec.conditions() > 0) {
        static_assert(sizeof(Prepared<Rule, C>) <= kPreparedBytes);
        auto* prepared = static_cast<Prepared<Rule, C>*>(execution.workspace);
        LaunchIndependent(Prepare<Rule, C>, 1, 1, stream, spec,
                          NumbersOf(execution, [](const Scalars& s) { return s.v; }),
                          formula::Conditions(spec, execution.inputs), prepared);
        numbers.live = &prepared->rule;
        decision.live = &prepared->decision;
      } else {
        numbers =
            NumbersOf(execution, [spec](const Scalars& s) { return Rule::From(spec, s.v.data()); });
      }
      constexpr int kArrays = 2 + Rule::kStates;
      ForGroups<kArrays>(
          execution.outputs.first(n),
          [&](size_t i, void** data) {
            data[0] = execution.outputs[i].raw_data();
            data[1] = execution.inputs[n + i].raw_data();
            for (int s = 0; s < Rule::kStates; ++s)
              data[2 + s] = execution.outputs[static_cast<size_t>(s + 1) * n + i].raw_data();
          },
          [&](const Tensors<kArrays>& tensors, uint32_t pieces) {
            LaunchIndependent(Update<Rule, T, C>, pieces, kThreads, stream, tensors, spec.gradient,
                              numbers, decision);
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

/// As many as a GPU runs at a time; each has a place for its sum.
constexpr uint32_t kMostSums = 1024;

template <class T>
__global__ void __launch_bounds__(kThreads)
    SumPieces(SINGA_CONSTANT(Tensors<1>) tensors, double* partial) {
  const uint32_t pieces = tensors.first_piece[tensors.count];
  double sum = 0;
  for (uint32_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const int tensor = tensors.Find(piece);
    const int64_t begin = static_cast<int64_t>(piece - tensors.first_piece[tensor]) * kPiece;
    const int64_t size = tensors.size[tensor];
    const T* x = static_cast<const T*>(tensors.data[tensor][0]);
    for (int64_t i = begin + threadIdx.x; i < begin + kPiece && i < size; i += kThreads) {
      const auto value = static_cast<double>(Cast<ComputeType<T>>(x[i]));
      sum += value * value;
    }
  }
  sum = SumBlock(sum);
  // Each block has its place, so the order of the sum is always the same.
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/// total (+)= Σ partial, by one block.
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
          Launch(SumPieces<T>, blocks, kThreads, stream, tensors, partial);
          Launch(SumPartial, 1, kThreads, stream, partial, int64_t{blocks}, true, total);
        });
  });
}

}  // namespace

void RegisterOptimizer() {
  RegisterKernels<OptimizerSpec, RunUpdate, UpdateWorkspace>();
  RegisterKernels<LossScaleSpec, RunLossScale>();
  RegisterKernels<SumSquareSpec, RunSumSquare, SumSquareWorkspace>();
}

}  // namespace singa::cuda

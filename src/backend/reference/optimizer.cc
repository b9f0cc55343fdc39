// One pass over all parameters of an update. The elements of every tensor are divided into pieces,
// and the pieces among the threads.

#include "model/operation/optimizer/spec.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/device/parallel.h"
#include "core/tensor/convert_chunk.h"
#include "core/tensor/dtype_switch.h"
#include "core/tensor/stored_size.h"
#include "model/dispatch/kernel.h"
#include "model/formula/optimizer.h"

namespace singa::reference {
namespace {

constexpr int64_t kPiece = 16384;

struct Piece {
  size_t tensor;
  int64_t begin;
  int64_t end;
};

// Small tensors come first, so that the calling thread updates them, which alone reads them in the
// next step.
std::vector<Piece> CutIntoPieces(std::span<const Tensor> tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return StoredSize(tensors[a]) < StoredSize(tensors[b]);
  });
  std::vector<Piece> pieces;
  for (size_t i : order)
    for (int64_t begin = 0, size = StoredSize(tensors[i]); begin < size; begin += kPiece)
      pieces.push_back({i, begin, std::min(begin + kPiece, size)});
  return pieces;
}

// The formulas are in model/formula/optimizer.h. C is the type of the computation, T that of the
// parameters.
template <class Rule, class T, class C>
SINGA_MULTI_ISA void Apply(const Rule rule, T* p, const C* g, C* s, C* s2, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (Rule::kStates == 0) {
      p[i] = Convert<T>(rule(Convert<C>(p[i]), g[i]));
    } else if constexpr (Rule::kStates == 1) {
      p[i] = Convert<T>(rule(Convert<C>(p[i]), g[i], s[i]));
    } else {
      p[i] = Convert<T>(rule(Convert<C>(p[i]), g[i], s[i], s2[i]));
    }
  }
}

template <class T, class C>
void UpdateRun(const OptimizerSpec& spec, const double* scalars, T* p, const C* g, C* s, C* s2,
               int64_t n) {
  formula::SwitchRule<C>(spec, scalars, [&](const auto& rule) { Apply(rule, p, g, s, s2, n); });
}

template <class T, class C>
void UpdatePiece(const OptimizerSpec& spec, const Execution& e, const double* scalars,
                 const formula::Decision<C>& decision, const Piece& piece) {
  const size_t n = spec.count(e.inputs.size());
  const int64_t count = piece.end - piece.begin;
  T* p = e.out<T>(piece.tensor) + piece.begin;
  C* s = spec.states > 0 ? e.out<C>(n + piece.tensor) + piece.begin : nullptr;
  C* s2 = spec.states > 1 ? e.out<C>(2 * n + piece.tensor) + piece.begin : nullptr;
  const bool as_it_is = decision.unscaling == C(1) && decision.clipping == C(1);
  const Tensor& gradient = e.inputs[n + piece.tensor];
  if (gradient.data_type() == kDTypeOf<C> && as_it_is) {
    UpdateRun<T, C>(spec, scalars, p, e.in<C>(n + piece.tensor) + piece.begin, s, s2, count);
    return;
  }
  const LoadChunkFn<C> load = FindLoad<C>(gradient.data_type());
  C g[kChunk];
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t run = std::min(kChunk, count - at);
    load(gradient.raw_data(), piece.begin + at, 1, run, g);
    // Stored to memory, so that no compiler contracts this and the update into one rounding.
    for (int64_t i = 0; i < run && !as_it_is; ++i) g[i] = decision(g[i]);
    UpdateRun<T, C>(spec, scalars, p + at, g, s ? s + at : nullptr, s2 ? s2 + at : nullptr, run);
  }
}

void Update(const OptimizerSpec& spec, const Execution& e) {
  const formula::Conditions conditions(spec, e.inputs);
  auto scalars = e.scalars.v;
  formula::PickScalars(conditions, scalars.data());
  const std::vector<Piece> pieces = CutIntoPieces(e.outputs.first(spec.count(e.inputs.size())));
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const auto decision = formula::Decision<C>::From(conditions, scalars.data());
    if (decision.leave_out) return;
    ParallelFor(static_cast<int64_t>(pieces.size()), 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        UpdatePiece<T, C>(spec, e, scalars.data(), decision, pieces[static_cast<size_t>(i)]);
    });
  });
}

template <class T>
SINGA_MULTI_ISA double SumOfSquares(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;  // independent sums, for the vector units
  double sums[kLanes] = {};
  const auto square = [x](int64_t i) {
    const auto value = static_cast<double>(Convert<ComputeType<T>>(x[i]));
    return value * value;
  };
  const int64_t body = n / kLanes * kLanes;
  for (int64_t i = 0; i < body; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += square(i + lane);
  double sum = 0;
  for (int64_t i = body; i < n; ++i) sum += square(i);
  for (double part : sums) sum += part;
  return sum;
}

void SumSquare(const SumSquareSpec& spec, const Execution& e) {
  const std::vector<Piece> pieces = CutIntoPieces(e.inputs);
  *e.out<double>(0) = ParallelReduce(
      static_cast<int64_t>(pieces.size()), 1, 0.0,
      [&](int64_t begin, int64_t end) {
        double sum = 0;
        for (int64_t i = begin; i < end; ++i) {
          const Piece& piece = pieces[static_cast<size_t>(i)];
          SwitchFloat(e.inputs[piece.tensor].data_type(), spec.op(), [&]<class T>() {
            sum += SumOfSquares(e.in<T>(piece.tensor) + piece.begin, piece.end - piece.begin);
          });
        }
        return sum;
      },
      [](double a, double b) { return a + b; });
}

void UpdateLossScale(const LossScaleSpec&, const Execution& e) {
  const bool finite = formula::AreFinite(e.in<double>(0), e.inputs[0].size());
  formula::LossScaleRule(e.scalars)(finite, e.out<double>(0));
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<OptimizerSpec, Update>();
  RegisterReference<LossScaleSpec, UpdateLossScale>();
  RegisterReference<SumSquareSpec, SumSquare>();
}

}  // namespace singa::reference

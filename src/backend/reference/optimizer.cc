// One pass over all parameters of an update: the elements of every tensor are cut into pieces, and
// the pieces are shared out to the threads.

#include "model/operation/optimizer_spec.h"

#include <cmath>
#include <vector>

#include "backend/reference/dtype_switch.h"
#include "backend/reference/parallel.h"
#include "backend/reference/register.h"
#include "core/convert_chunk.h"
#include "model/operation/kernel.h"

namespace singa::reference {
namespace {

constexpr int64_t kPiece = 16384;

struct Piece {
  size_t tensor;
  int64_t begin;
  int64_t end;
};

// Elements in memory, the padding of an opaque layout included.
int64_t StoredSize(const Tensor& t) {
  return t.layout() ? static_cast<int64_t>(t.layout()->bytes() / SizeOf(t.data_type())) : t.size();
}

std::vector<Piece> CutIntoPieces(std::span<const Tensor> tensors) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i)
    for (int64_t begin = 0, size = StoredSize(tensors[i]); begin < size; begin += kPiece)
      pieces.push_back({i, begin, std::min(begin + kPiece, size)});
  return pieces;
}

// Formulas round where PyTorch's do: constants are made in double, 1 - beta among them, and then
// rounded to the type of the parameters. C is that, T the type in memory.

template <class C>
inline C Decayed(C gradient, C value, C decay) {
  return decay != C(0) ? gradient + decay * value : gradient;  // not 0 times infinity
}

template <class T, class C>
SINGA_MULTI_ISA void PlainSgd(T* p, const C* g, int64_t n, C lr, C decay) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    p[i] = Convert<T>(value - lr * Decayed(g[i], value, decay));
  }
}

template <bool kNesterov, class T, class C>
SINGA_MULTI_ISA void MomentumSgd(T* p, const C* g, C* m, int64_t n, bool first, C lr, C decay,
                                 C momentum, C take) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    const C gradient = Decayed(g[i], value, decay);
    // On the first step the buffer's old contents do not count, not even a NaN.
    m[i] = first ? gradient : momentum * m[i] + take * gradient;
    p[i] = Convert<T>(value - lr * (kNesterov ? gradient + momentum * m[i] : m[i]));
  }
}

template <class T, class C>
SINGA_MULTI_ISA void RmsProp(T* p, const C* g, C* v, int64_t n, C lr, C decay, C rho, C take,
                             C epsilon) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    const C gradient = Decayed(g[i], value, decay);
    v[i] = rho * v[i] + take * gradient * gradient;
    p[i] = Convert<T>(value - lr * gradient / std::sqrt(v[i] + epsilon));
  }
}

template <class T, class C>
SINGA_MULTI_ISA void AdaGrad(T* p, const C* g, C* v, int64_t n, C lr, C decay, C epsilon) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    const C gradient = Decayed(g[i], value, decay);
    v[i] += gradient * gradient;
    p[i] = Convert<T>(value - lr * gradient / std::sqrt(v[i] + epsilon));
  }
}

template <class C>
struct AdamConstants {
  C shrink;  // 1 − lr·weight_decay where that is decoupled
  C decay;   // weight decay in the gradient otherwise
  C take1;   // 1 − beta1
  C beta2;
  C take2;  // 1 − beta2
  C epsilon;
  C rate;              // lr / (1 − beta1^step)
  C root_correction2;  // sqrt(1 − beta2^step)
};

template <class T, class C>
SINGA_MULTI_ISA void Adam(T* p, const C* g, C* m, C* v, int64_t n, const AdamConstants<C> k) {
  // PyTorch's interpolation, from the nearer end.
  const bool near = k.take1 < C(0.5);
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    const C gradient = Decayed(g[i], value, k.decay);
    const C step = gradient - m[i];
    m[i] = near ? m[i] + k.take1 * step : gradient - step * (C(1) - k.take1);
    v[i] = k.beta2 * v[i] + k.take2 * gradient * gradient;
    const C denominator = std::sqrt(v[i]) / k.root_correction2 + k.epsilon;
    p[i] = Convert<T>(value * k.shrink - k.rate * m[i] / denominator);
  }
}

template <class T, class C>
void UpdateRun(const OptimizerSpec& spec, const Scalars& scalars, T* p, const C* g, C* s, C* s2,
               int64_t n) {
  const auto& v = scalars.v;
  const auto as = [](double value) { return static_cast<C>(value); };
  const C lr = as(v[0]), decay = as(v[1]);
  switch (spec.kind) {
    case OptimizerKind::kSgd:
      if (!s) return PlainSgd(p, g, n, lr, decay);
      if (spec.nesterov)
        return MomentumSgd<true>(p, g, s, n, spec.first, lr, decay, as(v[2]), as(1 - v[3]));
      return MomentumSgd<false>(p, g, s, n, spec.first, lr, decay, as(v[2]), as(1 - v[3]));
    case OptimizerKind::kRmsProp:
      return RmsProp(p, g, s, n, lr, decay, as(v[2]), as(1 - v[2]), as(v[3]));
    case OptimizerKind::kAdaGrad:
      return AdaGrad(p, g, s, n, lr, decay, as(v[3]));
    case OptimizerKind::kAdam: {
      const C shrink = as(spec.decoupled ? 1 - v[0] * v[1] : 1);
      return Adam(p, g, s, s2, n,
                  AdamConstants<C>{shrink, spec.decoupled ? C(0) : decay, as(1 - v[2]), as(v[3]),
                                   as(1 - v[3]), as(v[4]), as(v[0] / v[5]), as(v[6])});
    }
  }
}

template <class T>
void UpdatePiece(const OptimizerSpec& spec, const Execution& e, const Piece& piece) {
  using C = ComputeType<T>;
  const size_t n = e.inputs.size() / static_cast<size_t>(2 + spec.states);
  const int64_t count = piece.end - piece.begin;
  T* p = e.out<T>(piece.tensor) + piece.begin;
  C* s = spec.states > 0 ? e.out<C>(n + piece.tensor) + piece.begin : nullptr;
  C* s2 = spec.states > 1 ? e.out<C>(2 * n + piece.tensor) + piece.begin : nullptr;
  if (spec.gradient == kDTypeOf<C>) {
    UpdateRun<T, C>(spec, e.scalars, p, e.in<C>(n + piece.tensor) + piece.begin, s, s2, count);
    return;
  }
  const LoadChunkFn<C> load = FindLoad<C>(spec.gradient);
  const void* gradient = e.inputs[n + piece.tensor].raw_data();
  C g[kChunk];
  for (int64_t at = 0; at < count; at += kChunk) {
    const int64_t run = std::min(kChunk, count - at);
    load(gradient, piece.begin + at, 1, run, g);
    UpdateRun<T, C>(spec, e.scalars, p + at, g, s ? s + at : nullptr, s2 ? s2 + at : nullptr, run);
  }
}

void Update(const OptimizerSpec& spec, const Execution& e) {
  const size_t n = e.inputs.size() / static_cast<size_t>(2 + spec.states);
  const std::vector<Piece> pieces = CutIntoPieces(e.outputs.first(n));
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    ParallelFor(static_cast<int64_t>(pieces.size()), 2, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) UpdatePiece<T>(spec, e, pieces[static_cast<size_t>(i)]);
    });
  });
}

template <class T>
SINGA_MULTI_ISA double SumOfSquares(const T* x, int64_t n) {
  constexpr int64_t kLanes = 16;  // sums side by side, for the vector units
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
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    *e.out<double>(0) = ParallelReduce(
        static_cast<int64_t>(pieces.size()), 1, 0.0,
        [&](int64_t begin, int64_t end) {
          double sum = 0;
          for (int64_t i = begin; i < end; ++i) {
            const Piece& piece = pieces[static_cast<size_t>(i)];
            sum += SumOfSquares(e.in<T>(piece.tensor) + piece.begin, piece.end - piece.begin);
          }
          return sum;
        },
        [](double a, double b) { return a + b; });
  });
}

}  // namespace

void RegisterOptimizer() {
  RegisterReference<OptimizerSpec, Update>();
  RegisterReference<SumSquareSpec, SumSquare>();
}

}  // namespace singa::reference

// One pass over all parameters of an update: the elements of every tensor are cut into pieces, and
// the pieces are shared out to the threads.

#include "model/operation/optimizer_spec.h"

#include <cmath>
#include <vector>

#include "backend/reference/dtype_switch.h"
#include "backend/reference/parallel.h"
#include "backend/reference/register.h"
#include "model/operation/kernel.h"

namespace singa::reference {
namespace {

constexpr int64_t kPiece = 16384;

struct Piece {
  size_t tensor;
  int64_t begin;
  int64_t end;
};

std::vector<Piece> CutIntoPieces(std::span<const Tensor> tensors) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i)
    for (int64_t begin = 0; begin < tensors[i].size(); begin += kPiece)
      pieces.push_back({i, begin, std::min(begin + kPiece, tensors[i].size())});
  return pieces;
}

template <class T, class C>
SINGA_MULTI_ISA void Sgd(T* p, const C* g, C* m, int64_t n, const OptimizerSpec& spec, C lr,
                         C decay, C momentum, C dampening) {
  if (!m) {
    for (int64_t i = 0; i < n; ++i) {
      const C value = Convert<C>(p[i]);
      p[i] = Convert<T>(value - lr * (g[i] + decay * value));
    }
    return;
  }
  const C keep = spec.first ? C(0) : momentum;
  const C take = spec.first ? C(1) : C(1) - dampening;
  const C look_ahead = spec.nesterov ? C(1) : C(0);
  const C buffer_share = spec.nesterov ? momentum : C(1);
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    const C gradient = g[i] + decay * value;
    // On the first step the buffer's old contents do not count, not even a NaN.
    const C buffer = (spec.first ? C(0) : keep * m[i]) + take * gradient;
    m[i] = buffer;
    p[i] = Convert<T>(value - lr * (look_ahead * gradient + buffer_share * buffer));
  }
}

template <class T, class C>
SINGA_MULTI_ISA void RmsProp(T* p, const C* g, C* v, int64_t n, C lr, C decay, C rho, C epsilon) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    const C gradient = g[i] + decay * value;
    v[i] = rho * v[i] + (C(1) - rho) * gradient * gradient;
    p[i] = Convert<T>(value - lr * gradient / std::sqrt(v[i] + epsilon));
  }
}

template <class T, class C>
SINGA_MULTI_ISA void AdaGrad(T* p, const C* g, C* v, int64_t n, C lr, C decay, C epsilon) {
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    const C gradient = g[i] + decay * value;
    v[i] += gradient * gradient;
    p[i] = Convert<T>(value - lr * gradient / std::sqrt(v[i] + epsilon));
  }
}

template <class T, class C>
SINGA_MULTI_ISA void Adam(T* p, const C* g, C* m, C* v, int64_t n, bool decoupled, C lr, C decay,
                          C beta1, C beta2, C epsilon, C correction1, C root_correction2) {
  const C gradient_decay = decoupled ? C(0) : decay;
  const C shrink = decoupled ? C(1) - lr * decay : C(1);
  const C rate = lr / correction1;
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(p[i]);
    const C gradient = g[i] + gradient_decay * value;
    m[i] += (C(1) - beta1) * (gradient - m[i]);
    v[i] = beta2 * v[i] + (C(1) - beta2) * gradient * gradient;
    const C denominator = std::sqrt(v[i]) / root_correction2 + epsilon;
    p[i] = Convert<T>(value * shrink - rate * (m[i] / denominator));
  }
}

template <class T>
void UpdatePiece(const OptimizerSpec& spec, const Execution& e, const Piece& piece) {
  using C = ComputeType<T>;
  const size_t n = e.inputs.size() / static_cast<size_t>(2 + spec.states);
  const int64_t count = piece.end - piece.begin;
  T* p = e.out<T>(piece.tensor) + piece.begin;
  const C* g = e.in<C>(n + piece.tensor) + piece.begin;
  C* s = spec.states > 0 ? e.out<C>(n + piece.tensor) + piece.begin : nullptr;
  C* s2 = spec.states > 1 ? e.out<C>(2 * n + piece.tensor) + piece.begin : nullptr;
  const auto v = [&](int i) { return static_cast<C>(e.scalars.v[static_cast<size_t>(i)]); };
  switch (spec.kind) {
    case OptimizerKind::kSgd:
      return Sgd(p, g, s, count, spec, v(0), v(1), v(2), v(3));
    case OptimizerKind::kRmsProp:
      return RmsProp(p, g, s, count, v(0), v(1), v(2), v(3));
    case OptimizerKind::kAdaGrad:
      return AdaGrad(p, g, s, count, v(0), v(1), v(3));
    case OptimizerKind::kAdam:
      return Adam(p, g, s, s2, count, spec.decoupled, v(0), v(1), v(2), v(3), v(4), v(5), v(6));
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
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double value = static_cast<double>(Convert<ComputeType<T>>(x[i]));
    sum += value * value;
  }
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

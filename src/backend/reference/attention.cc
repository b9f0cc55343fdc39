// Scaled dot-product attention: the scores of one query at a time, in double.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/attention.h"
#include "model/formula/philox_fill.h"
#include "model/operation/attention/arguments.h"
#include "model/operation/attention/spec.h"

namespace singa::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <class T>
SINGA_MULTI_ISA double Dot(const T* a, const T* b, int64_t length) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < length; ++i) sum += Convert<double>(a[i]) * Convert<double>(b[i]);
  return sum;
}

/// sums += factor · x
template <class T>
SINGA_MULTI_ISA void Add(double factor, const T* x, int64_t length, double* sums) {
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) sums[i] += factor * Convert<double>(x[i]);
}

template <class T>
void Store(const double* values, int64_t length, T* out) {
  for (int64_t i = 0; i < length; ++i) out[i] = Convert<T>(values[i]);
}

/// Computes the scores and weights of single queries.
template <class T>
class Scores {
 public:
  Scores(const AttentionGeometry& g, const Tensor& q, const Tensor& k, const Tensor& mask,
         const Scalars& scalars)
      : g_(g),
        q_(q),
        k_(k),
        mask_(mask),
        scale_(scalars.v[0]),
        first_query_(static_cast<int64_t>(scalars.v[2])) {}

  /// Number of keys that the query may use.
  int64_t KeysOf(int64_t i) const {
    return g_.causal ? formula::CausalKeys(first_query_, i, g_.keys) : g_.keys;
  }
  /// The scores of the keys before `end`.
  void Compute(int64_t b, int64_t h, int64_t i, int64_t end, double* scores) const {
    if (mask_) {
      mask_.Load(mask_.RowOffset(b, h, i), 0, end, scores);
    } else {
      std::fill_n(scores, end, 0.0);
    }
    const T* q = q_.At(b, h, i);
    for (int64_t j = 0; j < end; ++j)
      scores[j] += scale_ * Dot(q, k_.At(b, h / g_.group(), j), g_.dim);
  }

 private:
  const AttentionGeometry& g_;
  AttentionRows<const T> q_, k_;
  AttentionMask<double> mask_;
  double scale_;
  int64_t first_query_;
};

/// Multiplies the weights by dropout's factors.
void Drop(const formula::AttentionDropout& dropout, int64_t row, int64_t end, uint32_t* words,
          double* weights) {
  PhiloxFill(dropout.seed, dropout.Row(row), end, words);
  for (int64_t j = 0; j < end; ++j)
    weights[j] = words[j] < dropout.threshold ? 0 : weights[j] * dropout.factor;
}

template <class T>
void Forward(const AttentionForwardSpec& spec, const Execution& execution) {
  const Scalars& scalars = execution.scalars;
  const auto& inputs = execution.inputs;
  const Scores<T> scores_of(spec, inputs[0], inputs[1], inputs[3], scalars);
  const AttentionRows<const T> v(inputs[2]);
  const AttentionRows<T> y(execution.outputs[0]);
  const formula::AttentionDropout dropout({scalars.seed, scalars.offset}, spec.keys, scalars.v[1]);
  ParallelFor(spec.logsumexp_shape().Count(),
              kParallelGrain / (spec.keys * (spec.dim + spec.value_dim) + 1) + 1,
              [&](int64_t begin, int64_t finish) {
                std::vector<double> weights(static_cast<size_t>(spec.keys));
                std::vector<uint32_t> words(spec.has_dropout ? weights.size() : 0);
                std::vector<double> sums(static_cast<size_t>(spec.value_dim));
                for (int64_t row = begin; row < finish; ++row) {
                  const int64_t i = row % spec.queries, h = row / spec.queries % spec.heads;
                  const int64_t b = row / spec.queries / spec.heads, end = scores_of.KeysOf(i);
                  scores_of.Compute(b, h, i, end, weights.data());
                  double most = -kInf, sum = 0;
                  for (int64_t j = 0; j < end; ++j) most = weights[j] > most ? weights[j] : most;
                  // Where no key is used the weights are exp(-inf); NaN stays NaN.
                  const double shift = most == -kInf ? 0 : most;
                  for (int64_t j = 0; j < end; ++j)
                    sum += weights[j] = std::exp(weights[j] - shift);
                  if (spec.has_dropout) Drop(dropout, row, end, words.data(), weights.data());
                  std::fill(sums.begin(), sums.end(), 0.0);
                  for (int64_t j = 0; j < end; ++j)
                    Add(weights[j], v.At(b, h / spec.group(), j), spec.value_dim, sums.data());
                  const double factor = sum == 0 ? 0 : 1 / sum;
                  for (double& value : sums) value *= factor;
                  Store(sums.data(), spec.value_dim, y.At(b, h, i));
                  const double log_sum = sum == 0 ? -kInf : shift + std::log(sum);
                  if constexpr (std::is_same_v<T, double>) {
                    execution.out<double>(1)[row] = log_sum;
                  } else {
                    execution.out<float>(1)[row] = static_cast<float>(log_sum);
                  }
                }
              });
  if (spec.has_dropout) {
    execution.out<int64_t>(2)[0] = std::bit_cast<int64_t>(scalars.seed);
    execution.out<int64_t>(2)[1] = std::bit_cast<int64_t>(scalars.offset);
  }
}

/// Backward of one query after the other.
//
// With weights p = exp(s − logsumexp) and dropout's factors z:
//   dv = Σ z · p · dy,  ds = p · (z · dy·v − dy·y),  dq = scale · Σ ds · k,  dk = scale · Σ ds · q,
// and ds is also the gradient of what the mask adds.
template <class T>
struct BackwardRow {
  BackwardRow(const AttentionBackwardSpec& spec, const Execution& execution)
      : spec(spec),
        scores_of(spec, execution.inputs[1], execution.inputs[2], execution.inputs[4],
                  execution.scalars),
        dy(execution.inputs[0]),
        q(execution.inputs[1]),
        k(execution.inputs[2]),
        v(execution.inputs[3]),
        y(execution.inputs[5]),
        logsumexp(execution.inputs[6].raw_data()),
        draw(spec.has_dropout ? execution.in<uint64_t>(7) : nullptr),
        dropout(draw ? formula::AttentionDrawn{draw[0], draw[1]} : formula::AttentionDrawn(),
                spec.keys, execution.scalars.v[1]),
        weights(static_cast<size_t>(spec.keys)),
        gradients(weights.size()),
        words(draw ? weights.size() : 0) {}

  /// Query i of head h; kv_head is that of its keys.
  void Compute(int64_t b, int64_t h, int64_t i) {
    const int64_t row = (b * spec.heads + h) * spec.queries + i, kv_head = h / spec.group();
    end = scores_of.KeysOf(i);
    double log_sum = spec.dtype == kFloat64 ? static_cast<const double*>(logsumexp)[row]
                                            : double{static_cast<const float*>(logsumexp)[row]};
    if (log_sum == -kInf) log_sum = 0;
    scores_of.Compute(b, h, i, end, weights.data());
    std::fill_n(gradients.data(), end, 1.0);  // dropout's factors
    if (draw) Drop(dropout, row, end, words.data(), gradients.data());
    gradient = dy.At(b, h, i);
    const double along = Dot(gradient, y.At(b, h, i), spec.value_dim);
    for (int64_t j = 0; j < end; ++j) {
      const double weight = std::exp(weights[j] - log_sum), z = gradients[j];
      const double dp = z * Dot(gradient, v.At(b, kv_head, j), spec.value_dim);
      weights[j] = weight * z;
      gradients[j] = weight * (dp - along);
    }
  }

  const AttentionBackwardSpec& spec;
  Scores<T> scores_of;
  AttentionRows<const T> dy, q, k, v, y;
  const void* logsumexp;
  const uint64_t* draw;
  formula::AttentionDropout dropout;
  int64_t end = 0;                         ///< keys that the query may use
  std::vector<double> weights, gradients;  ///< of v, and of the scores
  const T* gradient = nullptr;             ///< dy's row
  std::vector<uint32_t> words;
};

/// One head of keys, which sums the gradients from all queries that use it.
template <class T>
void BackwardHead(const AttentionBackwardSpec& spec, const Execution& execution, int64_t b,
                  int64_t kv_head) {
  const double scale = execution.scalars.v[0];
  const auto keys = static_cast<size_t>(spec.keys);
  BackwardRow<T> row(spec, execution);
  std::vector<double> dq(static_cast<size_t>(spec.dim));
  std::vector<double> dk(keys * dq.size()), dv(keys * static_cast<size_t>(spec.value_dim));
  for (int64_t h = kv_head * spec.group(); h < (kv_head + 1) * spec.group(); ++h) {
    for (int64_t i = 0; i < spec.queries; ++i) {
      row.Compute(b, h, i);
      std::fill(dq.begin(), dq.end(), 0.0);
      for (int64_t j = 0; j < row.end; ++j) {
        const double ds = scale * row.gradients[j];
        Add(ds, row.k.At(b, kv_head, j), spec.dim, dq.data());
        Add(ds, row.q.At(b, h, i), spec.dim, dk.data() + j * spec.dim);
        Add(row.weights[j], row.gradient, spec.value_dim, dv.data() + j * spec.value_dim);
      }
      if (spec.need_q)
        Store(dq.data(), spec.dim, AttentionRows<T>(execution.outputs[0]).At(b, h, i));
    }
  }
  for (int64_t j = 0; j < spec.keys; ++j) {
    if (spec.need_k)
      Store(dk.data() + j * spec.dim, spec.dim,
            AttentionRows<T>(execution.outputs[1]).At(b, kv_head, j));
    if (spec.need_v)
      Store(dv.data() + j * spec.value_dim, spec.value_dim,
            AttentionRows<T>(execution.outputs[2]).At(b, kv_head, j));
  }
}

/// The gradient of the mask, from all rows.
template <class T>
void MaskGradient(const AttentionBackwardSpec& spec, const Execution& execution) {
  BackwardRow<T> row(spec, execution);
  std::vector<double> sums(static_cast<size_t>(spec.dmask.Count()));
  for (int64_t n = 0; n < spec.logsumexp_shape().Count(); ++n) {
    row.Compute(n / spec.queries / spec.heads, n / spec.queries % spec.heads, n % spec.queries);
    for (int64_t j = 0; j < row.end; ++j)
      sums[AttentionMaskElement(spec, n, j)] += row.gradients[j];
  }
  const auto count = static_cast<int64_t>(sums.size());
  if (spec.dtype == kFloat64) {
    Store(sums.data(), count, execution.out<double>(3));
  } else {
    Store(sums.data(), count, execution.out<float>(3));
  }
}

void RunForward(const AttentionForwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const AttentionBackwardSpec& spec, const Execution& execution) {
  const int64_t work = spec.queries * spec.keys * (spec.dim + spec.value_dim) * spec.group();
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    if (spec.need_mask()) MaskGradient<T>(spec, execution);
    if (!spec.need_q && !spec.need_k && !spec.need_v) return;
    ParallelFor(spec.batch * spec.kv_heads, kParallelGrain / (work + 1) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t head = begin; head < end; ++head)
                    BackwardHead<T>(spec, execution, head / spec.kv_heads, head % spec.kv_heads);
                });
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<AttentionForwardSpec, RunForward>();
  RegisterReference<AttentionBackwardSpec, RunBackward>();
}

}  // namespace singa::reference

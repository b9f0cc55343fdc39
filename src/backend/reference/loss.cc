// Losses. Sums accumulate in float64 over pieces that depend on the sizes alone.

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "backend/reference/elementwise/map.h"
#include "backend/reference/indices.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/pair_loss.h"
#include "model/formula/switch_operation.h"
#include "model/operation/loss/spec.h"

namespace singa::reference {

namespace {

double ReadScalar(const Tensor& t) {
  double value;
  FindLoad<double>(t.data_type())(t.raw_data(), 0, 1, 1, &value);
  return value;
}

void WriteScalar(double value, const Tensor& t) {
  FindStore<double>(t.data_type())(&value, 1, t.raw_data(), 0, 1);
}

// The target q of one row: (1 − s)·t + s / C.
template <class C>
struct Target {
  const C* probabilities;  // null: 1 for `label`, 0 elsewhere
  int64_t label;
  C keep, floor;
  C operator()(int64_t c) const {
    return floor + keep * (probabilities ? probabilities[c] : static_cast<C>(c == label));
  }
};

template <class C>
class Targets {
 public:
  Targets(const char* op, TargetKind kind, const Tensor& t, int64_t rows, int64_t classes,
          double smoothing)
      : classes_(classes),
        keep_(static_cast<C>(1 - smoothing)),
        floor_(static_cast<C>(smoothing / static_cast<double>(classes))) {
    if (kind == TargetKind::kClasses) {
      labels_.resize(static_cast<size_t>(rows));
      ReadPositions(op, t, classes, false, labels_.data());
    } else {
      probabilities_ = static_cast<const C*>(t.raw_data());
    }
  }
  Target<C> Row(int64_t row) const {
    if (probabilities_) return {probabilities_ + row * classes_, -1, keep_, floor_};
    return {nullptr, labels_[row], keep_, floor_};
  }

 private:
  int64_t classes_;
  std::vector<int64_t> labels_;
  const C* probabilities_ = nullptr;
  C keep_, floor_;
};

// The loss of one row. `p` receives its softmax; `exps` is scratch for one row.
template <class T, class C>
double ForwardRow(const T* x, const Target<C>& target, int64_t classes, C* exps, T* p) {
  C largest = Convert<C>(x[0]);
  for (int64_t c = 1; c < classes; ++c) largest = std::max(largest, Convert<C>(x[c]));
  double sum = 0;
  for (int64_t c = 0; c < classes; ++c) {
    exps[c] = std::exp(Convert<C>(x[c]) - largest);
    sum += static_cast<double>(exps[c]);
  }
  const auto scale = static_cast<C>(1 / sum);
  for (int64_t c = 0; c < classes; ++c) p[c] = Convert<T>(exps[c] * scale);
  const double log_sum = std::log(sum);
  double loss = 0;
  for (int64_t c = 0; c < classes; ++c) {
    const C q = target(c);
    // A class with target 0 adds nothing, even if its score is -infinity.
    if (q == C(0)) continue;
    loss += static_cast<double>(q) * (log_sum - static_cast<double>(Convert<C>(x[c]) - largest));
  }
  return loss;
}

int64_t RowGrain(int64_t classes) {
  return std::max<int64_t>(1, kMathGrain / std::max<int64_t>(classes, 1));
}

void RunSoftmaxCrossEntropy(const SoftmaxCrossEntropySpec& spec, const Execution& execution) {
  const Shape& shape = execution.inputs[0].shape();
  const int64_t rows = shape[0], classes = shape[1];
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const Targets<C> targets(spec.op(), spec.target, execution.inputs[1], rows, classes,
                             execution.scalars.v[0]);
    const T* x = execution.in<T>(0);
    T* p = execution.out<T>(1);
    const auto piece = [&](int64_t begin, int64_t end) {
      std::vector<C> exps(static_cast<size_t>(classes));
      double loss = 0;
      for (int64_t row = begin; row < end; ++row) {
        const int64_t at = row * classes;
        loss += ForwardRow(x + at, targets.Row(row), classes, exps.data(), p + at);
      }
      return loss;
    };
    const double sum = ParallelReduce(rows, RowGrain(classes), 0.0, piece, std::plus<double>());
    WriteScalar(sum / static_cast<double>(rows), execution.outputs[0]);
  });
}

void RunSoftmaxCrossEntropyBackward(const SoftmaxCrossEntropyBackwardSpec& spec,
                                    const Execution& execution) {
  const Shape& shape = execution.inputs[1].shape();
  const int64_t rows = shape[0], classes = shape[1];
  const double slope = ReadScalar(execution.inputs[0]) / static_cast<double>(rows);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const Targets<C> targets(spec.op(), spec.target, execution.inputs[2], rows, classes,
                             execution.scalars.v[0]);
    const T* p = execution.in<T>(1);
    T* dx = execution.out<T>(0);
    ParallelFor(rows, RowGrain(classes), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Target<C> target = targets.Row(row);
        // Given target probabilities need not sum to 1.
        C total = 1;
        if (spec.target == TargetKind::kProbabilities) {
          double sum = 0;
          for (int64_t c = 0; c < classes; ++c) sum += static_cast<double>(target(c));
          total = static_cast<C>(sum);
        }
        for (int64_t c = row * classes, k = 0; k < classes; ++c, ++k)
          dx[c] = Convert<T>(static_cast<C>(slope) * (Convert<C>(p[c]) * total - target(k)));
      }
    });
  });
}

void RunPairLoss(const PairLossSpec& spec, const Execution& execution) {
  const Tensor& x = execution.inputs[0];
  const Tensor& t = execution.inputs[1];
  const LoadChunkFn<double> load_x = FindLoad<double>(x.data_type());
  const LoadChunkFn<double> load_t = FindLoad<double>(t.data_type());
  const double margin = execution.scalars.v[1];
  const auto piece = [&](int64_t begin, int64_t end) {
    double a[kChunk], b[kChunk];
    double sum = 0;
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t count = std::min(kChunk, end - at);
      load_x(x.raw_data(), at, 1, count, a);
      load_t(t.raw_data(), at, 1, count, b);
      for (int64_t i = 0; i < count; ++i) sum += formula::PairTerm(spec.kind, a[i], b[i], margin);
    }
    return sum;
  };
  const double sum = ParallelReduce(x.size(), kMathGrain, 0.0, piece, std::plus<double>());
  WriteScalar(sum * execution.scalars.v[0], execution.outputs[0]);
}

void RunPairLossBackward(const PairLossBackwardSpec& spec, const Execution& execution) {
  const double slope = ReadScalar(execution.inputs[0]) * execution.scalars.v[0];
  const auto run = [&]<class C>(C) {
    formula::SwitchOperation(spec.kind, [&]<PairLoss kKind>() {
      MapArithmetic<C>(
          execution.inputs.subspan(1), execution.outputs[0],
          [slope = static_cast<C>(slope), margin = static_cast<C>(execution.scalars.v[1])](
              C x, C t) { return formula::PairGradient(kKind, slope, x, t, margin); });
    });
  };
  spec.dtype == kFloat64 ? run(double{}) : run(float{});
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<SoftmaxCrossEntropySpec, RunSoftmaxCrossEntropy>();
  RegisterReference<SoftmaxCrossEntropyBackwardSpec, RunSoftmaxCrossEntropyBackward>();
  RegisterReference<PairLossSpec, RunPairLoss>();
  RegisterReference<PairLossBackwardSpec, RunPairLossBackward>();
}

}  // namespace singa::reference

// Positions of the largest and smallest elements along an axis, and top-k accuracy: how often the
// label's score is among the k largest.

#include <algorithm>

#include "backend/reference/reduce/fold.h"
#include "model/dispatch/kernel.h"
#include "model/operation/reduce/spec.h"

namespace singa::reference {

namespace {

constexpr int64_t kChunk = 256;

// The first position of the extreme value among n elements.
template <class Fold, class T>
int64_t ArgOfRun(const T* p, int64_t n, int64_t stride) {
  const auto best = FoldRun<Fold>(p, n, stride);
  for (int64_t i = 0; i < n; ++i) {
    const auto value = Fold::Load(p[i * stride]);
    if (value == best || value != value) return i;
  }
  return 0;
}

// The same for each of `columns` columns of n rows.
template <class Fold, class T>
SINGA_MULTI_ISA void ArgOfRows(const T* p, int64_t n, int64_t row_stride, int64_t columns,
                               int64_t stride, typename Fold::Acc* best, int64_t* position) {
  for (int64_t j = 0; j < columns; ++j) {
    best[j] = Fold::Load(p[j * stride]);
    position[j] = 0;
  }
  for (int64_t i = 1; i < n; ++i) {
    const T* row = p + i * row_stride;
    for (int64_t j = 0; j < columns; ++j) {
      const auto value = Fold::Load(row[j * stride]);
      const bool wins = Fold::Beats(value, best[j]) || (value != value && best[j] == best[j]);
      best[j] = wins ? value : best[j];
      position[j] = wins ? i : position[j];
    }
  }
}

template <class Fold, class T>
void ArgReduceTyped(const ArgReduceSpec& spec, const Execution& execution) {
  const FoldSpace space =
      SpaceOf(spec.shape, execution.inputs[0].strides(), uint32_t{1} << spec.axis);
  const T* in = execution.in<T>(0);
  int64_t* out = execution.out<int64_t>(0);
  const int64_t length = spec.shape[spec.axis];
  const int64_t step = execution.inputs[0].strides()[spec.axis];
  const bool by_runs = space.by_runs();
  const int64_t in_stride = space.kept.inner_stride(0);
  const int64_t out_stride = space.kept.inner_stride(1);
  ParallelFor(space.kept.size(), kParallelGrain / length, [&](int64_t begin, int64_t end) {
    typename Fold::Acc best[kChunk];
    int64_t position[kChunk];
    space.kept.Walk(begin, end, [&](const auto& offset, int64_t n) {
      for (int64_t at = 0; at < n; at += kChunk) {
        const int64_t m = std::min(kChunk, n - at);
        const T* p = in + offset[0] + at * in_stride;
        if (by_runs) {
          for (int64_t j = 0; j < m; ++j)
            position[j] = ArgOfRun<Fold>(p + j * in_stride, length, step);
        } else {
          ArgOfRows<Fold>(p, length, step, m, in_stride, best, position);
        }
        StoreStrided(position, m, out + offset[1] + at * out_stride, out_stride);
      }
    });
  });
}

void RunArgReduce(const ArgReduceSpec& spec, const Execution& execution) {
  SwitchNumber(spec.dtype, spec.op(), [&]<class T>() {
    if (spec.largest) {
      ArgReduceTyped<MaxFold<T>, T>(spec, execution);
    } else {
      ArgReduceTyped<MinFold<T>, T>(spec, execution);
    }
  });
}

template <class T, class Label>
int64_t CountTopKTyped(const CountTopKSpec& spec, const T* scores, const Label* labels) {
  for (int64_t row = 0; row < spec.rows; ++row)
    if (labels[row] < 0 || labels[row] >= spec.classes) [[unlikely]]
      ThrowOutside(spec.op(), "label", labels[row], "of row", row, 0, spec.classes);
  const auto count = [&](int64_t begin, int64_t end) {
    int64_t hits = 0;
    for (int64_t row = begin; row < end; ++row) {
      const T* score = scores + row * spec.classes;
      const auto own = static_cast<ComputeType<T>>(score[labels[row]]);
      int64_t above = 0;
      for (int64_t i = 0; i < spec.classes; ++i)
        above += static_cast<ComputeType<T>>(score[i]) > own;
      hits += own == own && above < spec.k;
    }
    return hits;
  };
  return ParallelReduce(spec.rows, kParallelGrain / std::max<int64_t>(1, spec.classes), int64_t{0},
                        count, [](int64_t a, int64_t b) { return a + b; });
}

void RunCountTopK(const CountTopKSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    SwitchIndex(spec.label_dtype, spec.op(), [&]<class Label>() {
      *execution.out<int64_t>(0) = CountTopKTyped(spec, execution.in<T>(0), execution.in<Label>(1));
    });
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<ArgReduceSpec, RunArgReduce>();
  RegisterReference<CountTopKSpec, RunCountTopK>();
}

}  // namespace singa::reference

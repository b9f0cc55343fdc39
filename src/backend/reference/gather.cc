// Gather and Embedding: select rows by index, and in backward add up rows by index.

#include <algorithm>

#include "backend/reference/picks.h"
#include "core/device/parallel.h"
#include "core/tensor/strided.h"
#include "model/dispatch/kernel.h"
#include "model/operation/indexing/gather_spec.h"

namespace singa::reference {

namespace {

template <class U>
void GatherRows(const GatherSpec& spec, const Execution& execution, const int64_t* positions) {
  const Strides& strides = execution.inputs[0].strides();
  const auto outer = AxesBetween(spec.x_shape, strides, 0, spec.axis);
  const auto inner = AxesBetween(spec.x_shape, strides, spec.axis + 1, spec.x_shape.rank());
  const int64_t step = strides[spec.axis];
  const int64_t width = inner.size();
  const bool dense = inner.dense(1);
  const U* x = execution.in<U>(0);
  U* y = execution.out<U>(0);
  // Copies the picks [begin, end) of one outer position.
  const auto pick = [&](const U* from, U* to, int64_t begin, int64_t end) {
    if (width == 1) {
      for (int64_t k = begin; k < end; ++k) to[k] = from[positions[k] * step];
      return;
    }
    for (int64_t k = begin; k < end; ++k) {
      const U* row = from + positions[k] * step;
      U* out = to + k * width;
      if (dense) {
        std::copy_n(row, width, out);
      } else {
        inner.Walk(0, width, [&](const auto& offset, int64_t n) {
          const int64_t stride = inner.inner_stride(1);
          for (int64_t i = 0; i < n; ++i) out[offset[0] + i] = row[offset[1] + i * stride];
        });
      }
    }
  };
  const int64_t count = spec.count;
  ParallelFor(outer.size() * count, kParallelGrain / std::max<int64_t>(1, width),
              [&](int64_t begin, int64_t end) {
                while (begin < end) {
                  const int64_t o = begin / count;
                  const int64_t first = begin - o * count;
                  const int64_t last = std::min(count, first + end - begin);
                  outer.Walk(o, o + 1, [&](const auto& offset, int64_t) {
                    pick(x + offset[1], y + o * count * width, first, last);
                  });
                  begin += last - first;
                }
              });
}

void RunGather(const GatherSpec& spec, const Execution& execution) {
  auto* positions = static_cast<int64_t*>(execution.workspace);
  ReadPositions(spec.op(), execution.inputs[1], spec.x_shape[spec.axis],
                spec.kind == GatherKind::kGather, positions);
  if (execution.outputs[0].size() == 0) return;
  SwitchSize(SizeOf(spec.dtype), [&]<class U>() { GatherRows<U>(spec, execution, positions); });
}

size_t GatherWorkspace(const GatherSpec& spec) {
  return static_cast<size_t>(spec.count) * sizeof(int64_t);
}

// ---- backward

size_t GatherBackwardWorkspace(const GatherBackwardSpec& spec) {
  return GroupPicksWorkspace(spec.count, spec.x_shape[spec.axis]);
}

constexpr int64_t kChunk = 256;

template <class T>
SINGA_MULTI_ISA void AddRow(const T* row, int64_t n, double* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<double>(Convert<ComputeType<T>>(row[i]));
}

// Columns [begin, end) of one row of dx: the sum of its picks, accumulated in double.
template <class T>
void SumPicks(const T* dy, const int64_t* pick, int64_t picks, int64_t width, int64_t begin,
              int64_t end, T* dx) {
  if (picks == 0) {
    std::fill(dx + begin, dx + end, T(0));
    return;
  }
  if (picks == 1) {
    std::copy_n(dy + *pick * width + begin, end - begin, dx + begin);
    return;
  }
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t n = std::min(kChunk, end - at);
    double sum[kChunk] = {};
    for (int64_t k = 0; k < picks; ++k) AddRow(dy + pick[k] * width + at, n, sum);
    for (int64_t i = 0; i < n; ++i) dx[at + i] = Convert<T>(sum[i]);
  }
}

template <class T>
void SumRows(const GatherBackwardSpec& spec, const Execution& execution, const PickGroups& groups) {
  const int64_t outer = spec.x_shape.Count(0, spec.axis);
  const int64_t length = spec.x_shape[spec.axis];
  const int64_t width = spec.x_shape.Count(spec.axis + 1, spec.x_shape.rank());
  const T* dy = execution.in<T>(0);
  T* dx = execution.out<T>(0);
  const auto rows = [&](int64_t first, int64_t last, int64_t begin, int64_t end) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t o = i / length, row = i % length;
      SumPicks(dy + o * spec.count * width, groups.begin(row), groups.size(row), width, begin, end,
               dx + i * width);
    }
  };
  const int64_t all = outer * length;
  if (width >= 128) {
    // Threads divide the columns, because some rows are picked far more often than others.
    ParallelFor(width, std::max<int64_t>(64, kParallelGrain / (all + outer * spec.count)),
                [&](int64_t begin, int64_t end) { rows(0, all, begin, end); });
  } else {
    ParallelFor(all, kParallelGrain / width,
                [&](int64_t first, int64_t last) { rows(first, last, 0, width); });
  }
}

void RunGatherBackward(const GatherBackwardSpec& spec, const Execution& execution) {
  const PickGroups groups =
      GroupPicks(spec.op(), execution.inputs[1], spec.count, spec.x_shape[spec.axis],
                 spec.kind == GatherKind::kGather, execution.workspace);
  if (execution.outputs[0].size() == 0) return;
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { SumRows<T>(spec, execution, groups); });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<GatherSpec, RunGather, GatherWorkspace>();
  RegisterReference<GatherBackwardSpec, RunGatherBackward, GatherBackwardWorkspace>();
}

}  // namespace singa::reference

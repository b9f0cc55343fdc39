#pragma once

// Folds an array along some of its axes with a Fold (model/formula/reduction.h).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "backend/reference/reduce/axes.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "core/tensor/strided.h"
#include "model/formula/reduction.h"

namespace singa::reference {

using namespace formula;  // NOLINT(google-build-using-namespace): the folds

/// The fold of n elements that are `stride` apart. It accumulates in 16 lanes, for vector
/// registers, and in blocks, so that float64 sums do not form one long dependency chain.
template <class Fold, class T>
SINGA_MULTI_ISA typename Fold::Acc FoldRun(const T* p, int64_t n, int64_t stride) {
  using Acc = typename Fold::Acc;
  constexpr int kLanes = 16;
  constexpr int64_t kBlock = 4096;
  Acc total = Fold::Identity();
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    Acc lane[kLanes];
    for (Acc& a : lane) a = Fold::Identity();
    int64_t i = begin;
    if (stride == 1) {
      for (; i + kLanes <= end; i += kLanes)
        for (int k = 0; k < kLanes; ++k) lane[k] = Fold::Join(lane[k], Fold::Load(p[i + k]));
    }
    for (int k = 0; i < end; ++i, k = (k + 1) % kLanes)
      lane[k] = Fold::Join(lane[k], Fold::Load(p[i * stride]));
    for (int gap = kLanes / 2; gap > 0; gap /= 2)
      for (int k = 0; k < gap; ++k) lane[k] = Fold::Join(lane[k], lane[k + gap]);
    total = Fold::Join(total, lane[0]);
  }
  return total;
}

/// acc[j] = join of acc[j] with column j of `rows` rows. Rows are `row_stride` apart, columns
/// `stride`.
template <class Fold, class T>
SINGA_MULTI_ISA void FoldRows(const T* p, int64_t rows, int64_t row_stride, int64_t columns,
                              int64_t stride, typename Fold::Acc* acc) {
  int64_t r = 0;
  if (stride == 1) {
    for (; r + 4 <= rows; r += 4) {  // one load and store of acc for four rows
      const T* a = p + r * row_stride;
      const T* b = a + row_stride;
      const T* c = b + row_stride;
      const T* d = c + row_stride;
#pragma omp simd
      for (int64_t j = 0; j < columns; ++j)
        acc[j] = Fold::Join(acc[j], Fold::Join(Fold::Join(Fold::Load(a[j]), Fold::Load(b[j])),
                                               Fold::Join(Fold::Load(c[j]), Fold::Load(d[j]))));
    }
  }
  for (; r < rows; ++r) {
    const T* a = p + r * row_stride;
    for (int64_t j = 0; j < columns; ++j) acc[j] = Fold::Join(acc[j], Fold::Load(a[j * stride]));
  }
}

/// The kept axes (array 0: the input, array 1: the result) and the folded axes.
struct FoldSpace {
  StridedSpace<2> kept;
  StridedSpace<1> folded;

  /// True if neighbours in memory belong to one result, false if they belong to neighbouring
  /// results. Short runs would not pay for their overhead.
  bool by_runs() const {
    if (kept.inner_length() == 1) return true;
    return std::abs(folded.inner_stride(0)) <= std::abs(kept.inner_stride(0)) &&
           folded.inner_length() >= 16;
  }
};

/// The FoldSpace of an array and a contiguous result without the folded axes, the bits of `axes`.
inline FoldSpace SpaceOf(const Shape& shape, const Strides& strides, uint32_t axes) {
  AxisGroup<2> kept;
  AxisGroup<1> folded;
  int64_t out_stride = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!IsReduced(axes, axis)) out_stride *= shape[axis];
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (IsReduced(axes, axis)) {
      folded.Add(shape[axis], {strides[axis]});
    } else {
      if (shape[axis] > 0) out_stride /= shape[axis];
      kept.Add(shape[axis], {strides[axis], out_stride});
    }
  }
  return {kept.space(), folded.space()};
}

// Results that are folded together, so that their accumulators fit in the cache.
constexpr int64_t kFoldBlock = 512;

/// Number of parts into which the folded range is divided if there are few results. It depends only
/// on the two lengths, so that sums are the same for any number of threads.
inline int64_t FoldParts(int64_t kept, int64_t folded) {
  if (kept <= 0 || folded <= 0) return 1;
  return std::clamp<int64_t>(std::min(16384 / kept, kept * folded / kParallelGrain), 1,
                             std::min<int64_t>(64, folded));
}

/// Bytes of workspace that FoldAxes needs.
inline size_t FoldWorkspace(int64_t kept, int64_t folded) {
  const int64_t parts = FoldParts(kept, folded);
  return parts > 1 ? static_cast<size_t>(parts * kept) * sizeof(double) : 0;
}

/// The loops of a Fold. What walks along the axes calls them by this table, and so is compiled once
/// for all folds of the same types.
template <class T, class Acc>
struct FoldLoops {
  template <class Fold>
  static constexpr FoldLoops For() {
    return {Fold::Identity(),
            [](const T* p, int64_t runs, int64_t run_stride, int64_t n, int64_t stride, Acc* acc) {
              for (int64_t i = 0; i < runs; ++i)
                acc[i] = Fold::Join(acc[i], FoldRun<Fold>(p + i * run_stride, n, stride));
            },
            FoldRows<Fold, T>,
            [](const Acc* other, int64_t n, Acc* acc) {
              for (int64_t i = 0; i < n; ++i) acc[i] = Fold::Join(acc[i], other[i]);
            }};
  }

  Acc identity;
  /// acc[i] = join of acc[i] with run i of n elements, for some runs.
  void (*runs)(const T* p, int64_t runs, int64_t run_stride, int64_t n, int64_t stride, Acc* acc);
  /// FoldRows
  void (*rows)(const T* p, int64_t rows, int64_t row_stride, int64_t columns, int64_t stride,
               Acc* acc);
  /// acc[i] = join of acc[i] with other[i], for n numbers.
  void (*join)(const Acc* other, int64_t n, Acc* acc);
};

/// Folds elements [begin, end) of the folded axes into acc, for the results [first, last).
template <class T, class Acc>
void FoldRange(const FoldLoops<T, Acc>& fold, const FoldSpace& space, const T* in, int64_t first,
               int64_t last, int64_t begin, int64_t end, Acc* acc) {
  const int64_t kept_stride = space.kept.inner_stride(0);
  const int64_t folded_stride = space.folded.inner_stride(0);
  const bool by_runs = space.by_runs();
  std::fill(acc, acc + (last - first), fold.identity);
  space.kept.Walk(first, last, [&](const auto& kept, int64_t n) {
    space.folded.Walk(begin, end, [&](const auto& folded, int64_t m) {
      const T* p = in + kept[0] + folded[0];
      if (by_runs) {
        fold.runs(p, n, kept_stride, m, folded_stride, acc);
      } else {
        fold.rows(p, m, folded_stride, n, kept_stride, acc);
      }
    });
    acc += n;
  });
}

/// Folds the array. Calls store(offset in the result, Acc) once for each result, from any thread.
template <class T, class Acc, class Store>
void FoldAxes(const FoldLoops<T, Acc>& fold, const FoldSpace& space, const T* in, void* workspace,
              const Store& store) {
  static_assert(sizeof(Acc) <= sizeof(double));
  const int64_t kept = space.kept.size();
  const int64_t folded = space.folded.size();
  if (kept == 0) return;
  const auto store_all = [&](int64_t first, int64_t last, const Acc* acc) {
    const int64_t stride = space.kept.inner_stride(1);
    space.kept.Walk(first, last, [&](const auto& offset, int64_t n) {
      for (int64_t i = 0; i < n; ++i) store(offset[1] + i * stride, *acc++);
    });
  };

  // With enough runs, threads divide only the results.
  const int64_t parts = space.by_runs() && kept >= 32 ? 1 : FoldParts(kept, folded);
  if (parts == 1) {
    ParallelFor(kept, kParallelGrain / std::max<int64_t>(folded, 1),
                [&](int64_t begin, int64_t end) {
                  Acc acc[kFoldBlock];
                  for (int64_t first = begin; first < end; first += kFoldBlock) {
                    const int64_t last = std::min(end, first + kFoldBlock);
                    FoldRange(fold, space, in, first, last, 0, folded, acc);
                    store_all(first, last, acc);
                  }
                });
    return;
  }
  Acc* partial = static_cast<Acc*>(workspace);
  ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      for (int64_t first = 0; first < kept; first += kFoldBlock)
        FoldRange(fold, space, in, first, std::min(kept, first + kFoldBlock), part * folded / parts,
                  (part + 1) * folded / parts, partial + part * kept + first);
  });
  for (int64_t gap = 1; gap < parts; gap *= 2)
    for (int64_t part = 0; part + gap < parts; part += 2 * gap)
      fold.join(partial + (part + gap) * kept, kept, partial + part * kept);
  store_all(0, kept, partial);
}

}  // namespace singa::reference

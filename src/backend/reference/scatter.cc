// Rows named by an index argument, and scatters: updates grouped by the row that they go to. Each
// element of a row then joins its updates in their order, so threads divide the rows.

#include <algorithm>
#include <type_traits>

#include "backend/reference/picks.h"
#include "core/device/parallel.h"
#include "model/dispatch/kernel.h"
#include "model/formula/reduction.h"
#include "model/operation/indexing/scatter_spec.h"

namespace singa::reference {
namespace {

void RunPositions(const PositionsSpec& spec, const Execution& execution) {
  int64_t* positions = execution.out<int64_t>(0);
  const StridedSpace<2> base = spec.base();
  base.Walk(0, base.size(), [&](const auto& offset, int64_t n) {
    const int64_t place_step = base.inner_stride(0), row_step = base.inner_stride(1);
    for (int64_t i = 0; i < n; ++i)
      positions[offset[0] + i * place_step] = offset[1] + i * row_step;
  });
  const int tuple = spec.tuple();
  int64_t length[kMaxRank], step[kMaxRank];
  for (int j = 0; j < tuple; ++j) {
    length[j] = spec.length(j);
    step[j] = spec.step(j);
  }
  ForEachIndexValue(spec.op(), execution.inputs[0], [&](int64_t i, int64_t value) {
    const int64_t j = i % tuple;
    positions[i / tuple] += PositionOf(spec.op(), i, value, length[j], true) * step[j];
  });
}

// ---- forward

constexpr int64_t kChunk = 256;

PickGroups GroupsOf(const ScatterFields& spec, const char* op, const Execution& execution) {
  return GroupPicks(op, execution.inputs[1], spec.count, spec.rows, false, execution.workspace);
}

template <class Spec>
size_t Workspace(const Spec& spec) {
  return GroupPicksWorkspace(spec.count, spec.rows);
}

/// Calls row(number, first element) for all rows, in parallel.
template <class Row>
void ForRows(const ScatterFields& spec, const Row& row) {
  const int64_t work = spec.rows > 0 ? spec.width * (1 + spec.count / spec.rows) : 1;
  ParallelFor(spec.rows, kParallelGrain / std::max<int64_t>(1, work),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) row(i, i * spec.width);
              });
}

template <class Fold, class T>
SINGA_MULTI_ISA void JoinUpdates(const T* x, const T* updates, const int64_t* picks, int64_t count,
                                 int64_t width, T* y) {
  typename Fold::Acc acc[kChunk];
  for (int64_t begin = 0; begin < width; begin += kChunk) {
    const int64_t n = std::min(kChunk, width - begin);
    for (int64_t j = 0; j < n; ++j) acc[j] = Fold::Load(x[begin + j]);
    for (int64_t k = 0; k < count; ++k) {
      const T* update = updates + picks[k] * width + begin;
      for (int64_t j = 0; j < n; ++j) acc[j] = Fold::Join(acc[j], Fold::Load(update[j]));
    }
    for (int64_t j = 0; j < n; ++j) y[begin + j] = Convert<T>(acc[j]);
  }
}

/// y = x, where join(picks, their number, first element of the row) writes the rows with updates.
template <class T, class Join>
void ScatterRows(const ScatterSpec& spec, const PickGroups& groups, const Execution& execution,
                 const Join& join) {
  const T* x = execution.in<T>(0);
  T* y = execution.out<T>(0);
  ForRows(spec, [&](int64_t row, int64_t at) {
    if (groups.size(row) == 0) {
      std::copy_n(x + at, spec.width, y + at);
    } else {
      join(groups.begin(row), groups.size(row), at);
    }
  });
}

/// `join` is JoinUpdates with a fold.
template <class T>
void ScatterFold(const ScatterSpec& spec, const PickGroups& groups, const Execution& execution,
                 decltype(&JoinUpdates<formula::SumFold<T>, T>) join) {
  const T* x = execution.in<T>(0);
  const T* updates = execution.in<T>(2);
  T* y = execution.out<T>(0);
  ScatterRows<T>(spec, groups, execution, [&](const int64_t* picks, int64_t count, int64_t at) {
    join(x + at, updates, picks, count, spec.width, y + at);
  });
}

void RunScatter(const ScatterSpec& spec, const Execution& execution) {
  const PickGroups groups = GroupsOf(spec, spec.op(), execution);
  if (spec.reduction == ScatterReduction::kNone)
    return SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
      const U* updates = execution.in<U>(2);
      U* y = execution.out<U>(0);
      ScatterRows<U>(spec, groups, execution, [&](const int64_t* picks, int64_t count, int64_t at) {
        std::copy_n(updates + picks[count - 1] * spec.width, spec.width, y + at);
      });
    });
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      switch (spec.reduction) {
        case ScatterReduction::kAdd:
          return ScatterFold<T>(spec, groups, execution, JoinUpdates<formula::SumFold<T>, T>);
        case ScatterReduction::kMul:
          return ScatterFold<T>(spec, groups, execution, JoinUpdates<formula::ProdFold<T>, T>);
        case ScatterReduction::kMax:
          return ScatterFold<T>(spec, groups, execution, JoinUpdates<formula::MaxFold<T>, T>);
        default:
          return ScatterFold<T>(spec, groups, execution, JoinUpdates<formula::MinFold<T>, T>);
      }
    }
  });
}

// ---- backward

template <class T>
void ScatterBackwardRows(const ScatterBackwardSpec& spec, const PickGroups& groups,
                         const Execution& execution) {
  const T* dy = execution.in<T>(0);
  const T* x = spec.needs_x() ? execution.in<T>(2) : nullptr;
  const T* updates = spec.needs_x() ? execution.in<T>(3) : nullptr;
  const T* y = spec.needs_y() ? execution.in<T>(4) : nullptr;
  T* dx = execution.out<T>(0);
  T* dupdates = execution.out<T>(1);
  const int64_t width = spec.width;
  const auto wide = [](T value) { return static_cast<double>(Convert<ComputeType<T>>(value)); };
  ForRows(spec, [&](int64_t row, int64_t at) {
    const int64_t* picks = groups.begin(row);
    const int64_t count = groups.size(row);
    const bool replaced = spec.reduction == ScatterReduction::kNone && count > 0;
    if (!spec.needs_x() || count == 0) {
      replaced ? std::fill_n(dx + at, width, T(0)) : std::copy_n(dy + at, width, dx + at);
      for (int64_t k = 0; k < count; ++k) {
        T* to = dupdates + picks[k] * width;
        const bool counts = !replaced || k == count - 1;
        counts ? std::copy_n(dy + at, width, to) : std::fill_n(to, width, T(0));
      }
      return;
    }
    for (int64_t j = 0; j < width; ++j) {
      formula::JoinedGradient joined{spec.reduction == ScatterReduction::kMul, wide(dy[at + j]),
                                     y ? wide(y[at + j]) : 0};
      joined.Add(wide(x[at + j]));
      for (int64_t k = 0; k < count; ++k) joined.Add(wide(updates[picks[k] * width + j]));
      dx[at + j] = Convert<T>(joined.Of(wide(x[at + j])));
      for (int64_t k = 0; k < count; ++k) {
        const int64_t i = picks[k] * width + j;
        dupdates[i] = Convert<T>(joined.Of(wide(updates[i])));
      }
    }
  });
}

void RunScatterBackward(const ScatterBackwardSpec& spec, const Execution& execution) {
  const PickGroups groups = GroupsOf(spec, spec.op(), execution);
  SwitchFloat(spec.dtype, spec.op(),
              [&]<class T>() { ScatterBackwardRows<T>(spec, groups, execution); });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<PositionsSpec, RunPositions>();
  RegisterReference<ScatterSpec, RunScatter, Workspace<ScatterSpec>>();
  RegisterReference<ScatterBackwardSpec, RunScatterBackward, Workspace<ScatterBackwardSpec>>();
}

}  // namespace singa::reference

// TopK and CumSum.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/reduction.h"
#include "model/formula/sort_key.h"
#include "model/operation/sort/spec.h"

namespace singa::reference {
namespace {

// ---- TopK: each line's keys are sorted together with the positions, so no two are equal.

/// A key of up to 32 bits and a position in one word.
struct ShortEntries {
  using Entry = uint64_t;
  static Entry Make(uint64_t key, int64_t i) { return key << 32 | static_cast<uint64_t>(i); }
  static int64_t Position(Entry entry) { return static_cast<int64_t>(entry & 0xffffffffu); }
};
struct LongEntries {
  using Entry = std::pair<uint64_t, int64_t>;
  static Entry Make(uint64_t key, int64_t i) { return {key, i}; }
  static int64_t Position(const Entry& entry) { return entry.second; }
};

template <class Entries, class T>
void SortLines(const TopKSpec& spec, const T* x, T* values, int64_t* indices) {
  const int64_t length = spec.length, inner = spec.inner;
  // Sorting takes some ten times as long as copying.
  ParallelFor(spec.lines(), kParallelGrain / 10 / length, [&](int64_t begin, int64_t end) {
    std::vector<typename Entries::Entry> entries(static_cast<size_t>(length));
    for (int64_t line = begin; line < end; ++line) {
      const T* from = x + line / inner * length * inner + line % inner;
      for (int64_t i = 0; i < length; ++i)
        entries[static_cast<size_t>(i)] =
            Entries::Make(formula::SortKey(from[i * inner], spec.largest), i);
      const auto chosen = entries.begin() + spec.k;
      if (spec.k < length) std::nth_element(entries.begin(), chosen, entries.end());
      std::sort(entries.begin(), chosen);
      const int64_t to = line / inner * spec.k * inner + line % inner;
      for (int64_t i = 0; i < spec.k; ++i) {
        const int64_t position = Entries::Position(entries[static_cast<size_t>(i)]);
        values[to + i * inner] = from[position * inner];
        indices[to + i * inner] = position;
      }
    }
  });
}

void RunTopK(const TopKSpec& spec, const Execution& execution) {
  if (execution.outputs[0].size() == 0) return;
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    const T* x = execution.in<T>(0);
    T* values = execution.out<T>(0);
    int64_t* indices = execution.out<int64_t>(1);
    if constexpr (formula::kSortBits<T> <= 32)
      if (spec.length <= std::numeric_limits<uint32_t>::max())
        return SortLines<ShortEntries>(spec, x, values, indices);
    SortLines<LongEntries>(spec, x, values, indices);
  });
}

// ---- CumSum

constexpr int64_t kChunk = 256;

/// Neighbouring lines, which are `columns` elements of each of `length` rows.
template <class T>
SINGA_MULTI_ISA void SumRows(const T* x, T* y, int64_t length, int64_t row_step, int64_t columns,
                             bool exclusive) {
  using Fold = formula::SumFold<T>;
  typename Fold::Acc sum[kChunk] = {};
  for (int64_t i = 0; i < length; ++i) {
    const T* from = x + i * row_step;
    T* to = y + i * row_step;
    for (int64_t j = 0; j < columns; ++j) {
      const auto before = sum[j];
      sum[j] = Fold::Join(before, Fold::Load(from[j]));
      to[j] = Convert<T>(exclusive ? before : sum[j]);
    }
  }
}

template <class T>
void CumSumTyped(const CumSumSpec& spec, const Execution& execution) {
  const int64_t chunks = (spec.inner + kChunk - 1) / kChunk;
  const int64_t first = spec.reverse ? (spec.length - 1) * spec.inner : 0;
  const int64_t step = spec.reverse ? -spec.inner : spec.inner;
  const int64_t work = spec.length * std::min(kChunk, spec.inner);
  ParallelFor(spec.outer * chunks, kParallelGrain / work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % chunks * kChunk;
      const int64_t at = i / chunks * spec.length * spec.inner + first + column;
      SumRows(execution.in<T>(0) + at, execution.out<T>(0) + at, spec.length, step,
              std::min(kChunk, spec.inner - column), spec.exclusive);
    }
  });
}

void RunCumSum(const CumSumSpec& spec, const Execution& execution) {
  if (execution.outputs[0].size() == 0) return;
  SwitchNumber(spec.dtype, spec.op(), [&]<class T>() { CumSumTyped<T>(spec, execution); });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<TopKSpec, RunTopK>();
  RegisterReference<CumSumSpec, RunCumSum>();
}

}  // namespace singa::reference

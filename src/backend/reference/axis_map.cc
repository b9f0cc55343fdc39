// Tile, Repeat, Upsample, Roll, ChannelShuffle and Pad: each axis maps positions of y to positions
// of x (axis_map_spec.h).

#include <algorithm>
#include <bit>
#include <limits>

#include "backend/reference/indices.h"
#include "core/device/parallel.h"
#include "core/tensor/strided.h"
#include "model/dispatch/kernel.h"
#include "model/operation/layout/axis_map_spec.h"

namespace singa::reference {

namespace {

constexpr int64_t kNowhere = std::numeric_limits<int64_t>::min();

// An axis of the loops. Neighbouring axes with the identity map are merged into one.
struct MapAxis {
  int axis;  // number in the operation, for axes with a map
  int64_t in, out;
  int64_t in_stride, out_stride;  // of the source array and the result
  bool identity;
};

struct MapAxes {
  int rank = 0;
  MapAxis axes[kMaxRank];
  const MapAxis& operator[](int i) const { return axes[i]; }
  const MapAxis& inner() const { return axes[rank - 1]; }
  /// Number of positions of all axes but the inner one; `length` gives an axis's length.
  template <class Length>
  int64_t Rows(const Length& length) const {
    int64_t rows = 1;
    for (int i = 0; i + 1 < rank; ++i) rows *= length(axes[i]);
    return rows;
  }
};

MapAxes ArrangeAxes(const AxisMapFields& spec, const Strides& in_strides) {
  const Strides out_strides = ContiguousStrides(spec.OutShape());
  MapAxes map;
  for (int axis = 0; axis < spec.x_shape.rank(); ++axis) {
    const MapAxis added{axis,
                        spec.x_shape[axis],
                        spec.OutLength(axis),
                        in_strides[axis],
                        out_strides[axis],
                        spec.IsIdentity(axis)};
    if (added.identity && added.in == 1) continue;
    if (map.rank > 0) {
      MapAxis& last = map.axes[map.rank - 1];
      if (last.identity && added.identity && last.in_stride == added.in * added.in_stride) {
        last.in *= added.in;
        last.out *= added.out;
        last.in_stride = added.in_stride;
        last.out_stride = added.out_stride;
        continue;
      }
    }
    map.axes[map.rank++] = added;
  }
  if (map.rank == 0) map.axes[map.rank++] = {0, 1, 1, 1, 1, true};  // a scalar
  return map;
}

// A run of the inner axis: n elements of y whose sources are contiguous in x, or that have none.
struct Run {
  int64_t n;
  int64_t offset;
};
constexpr int64_t kShortRun = 8;  // runs that are shorter on average are copied by element

// ---- forward

struct ForwardTables {
  const int64_t* offset[kMaxRank];  // in x for each position of y; unset for identity axes
  const Run* runs = nullptr;        // of the inner axis, if they are long enough
  int64_t run_count = 0;

  int64_t At(const MapAxes& map, int i, int64_t position) const {
    return map[i].identity ? position * map[i].in_stride : offset[i][position];
  }
};

size_t ForwardWorkspace(const AxisMapSpec& spec) {
  int64_t words = 2 * kShortRun;
  for (int axis = 0; axis < spec.x_shape.rank(); ++axis) words += 2 * spec.OutLength(axis);
  return static_cast<size_t>(words) * sizeof(int64_t);
}

ForwardTables MakeForwardTables(const AxisMapSpec& spec, const MapAxes& map, int64_t* memory) {
  ForwardTables tables;
  for (int i = 0; i < map.rank; ++i) {
    if (map[i].identity) continue;
    for (int64_t position = 0; position < map[i].out; ++position) {
      const int64_t source = spec.Source(map[i].axis, position);
      memory[position] = source < 0 ? kNowhere : source * map[i].in_stride;
    }
    tables.offset[i] = memory;
    memory += map[i].out;
  }
  const MapAxis& inner = map.inner();
  if (inner.identity || (inner.in_stride != 1 && inner.in != 1)) return tables;
  const int64_t* offset = tables.offset[map.rank - 1];
  Run* runs = reinterpret_cast<Run*>(memory);
  const int64_t most = inner.out / kShortRun + 1;
  int64_t count = 0;
  for (int64_t i = 0; i < inner.out; ++i) {
    const bool goes_on = i > 0 && (offset[i] == kNowhere ? offset[i - 1] == kNowhere
                                                         : offset[i] == offset[i - 1] + 1);
    if (goes_on) {
      ++runs[count - 1].n;
    } else {
      if (count == most) return tables;
      runs[count++] = {1, offset[i]};
    }
  }
  tables.runs = runs;
  tables.run_count = count;
  return tables;
}

template <class U>
void CopyRow(const MapAxes& map, const ForwardTables& tables, const U* x, U constant, U* y) {
  const MapAxis& inner = map.inner();
  if (tables.runs != nullptr) {
    for (int64_t r = 0; r < tables.run_count; ++r) {
      const Run& run = tables.runs[r];
      y = run.offset == kNowhere ? std::fill_n(y, run.n, constant)
                                 : std::copy_n(x + run.offset, run.n, y);
    }
  } else if (!inner.identity) {
    const int64_t* offset = tables.offset[map.rank - 1];
    for (int64_t i = 0; i < inner.out; ++i) y[i] = offset[i] == kNowhere ? constant : x[offset[i]];
  } else if (inner.in_stride == 1) {
    std::copy_n(x, inner.out, y);
  } else {
    for (int64_t i = 0; i < inner.out; ++i) y[i] = x[i * inner.in_stride];
  }
}

template <class U>
void MapForward(const MapAxes& map, const ForwardTables& tables, const U* x, U constant, U* y) {
  const int64_t width = map.inner().out;
  const int outer = map.rank - 1;
  const int64_t rows = map.Rows([](const MapAxis& axis) { return axis.out; });
  ParallelFor(rows, kParallelGrain / std::max<int64_t>(1, width), [&](int64_t begin, int64_t end) {
    int64_t index[kMaxRank];
    int64_t rest = begin;
    for (int i = outer - 1; i >= 0; --i) {
      index[i] = rest % map[i].out;
      rest /= map[i].out;
    }
    for (int64_t row = begin; row < end; ++row) {
      int64_t offset = 0;
      bool nowhere = false;
      for (int i = 0; i < outer; ++i) {
        const int64_t step = tables.At(map, i, index[i]);
        nowhere |= step == kNowhere;
        offset += nowhere ? 0 : step;
      }
      if (nowhere) {
        std::fill_n(y + row * width, width, constant);
      } else {
        CopyRow(map, tables, x + offset, constant, y + row * width);
      }
      for (int i = outer - 1; i >= 0; --i) {
        if (++index[i] < map[i].out) break;
        index[i] = 0;
      }
    }
  });
}

void RunAxisMap(const AxisMapSpec& spec, const Execution& execution) {
  if (execution.outputs[0].size() == 0) return;
  const MapAxes map = ArrangeAxes(spec, execution.inputs[0].strides());
  const ForwardTables tables =
      MakeForwardTables(spec, map, static_cast<int64_t*>(execution.workspace));
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    const T typed = Convert<T>(execution.scalars.v[0]);
    SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
      if constexpr (sizeof(U) == sizeof(T))
        MapForward<U>(map, tables, execution.in<U>(0), std::bit_cast<U>(typed),
                      execution.out<U>(0));
    });
  });
}

// ---- backward

// For each position of x along an axis, the positions in y to which it was copied, in order.
struct BackwardTables {
  const int64_t* start[kMaxRank];
  const int64_t* offset[kMaxRank];

  int64_t Count(const MapAxes& map, int i, int64_t position) const {
    return map[i].identity ? 1 : start[i][position + 1] - start[i][position];
  }
  int64_t At(const MapAxes& map, int i, int64_t position, int64_t k) const {
    return map[i].identity ? position * map[i].out_stride : offset[i][start[i][position] + k];
  }
};

size_t BackwardWorkspace(const AxisMapBackwardSpec& spec) {
  int64_t words = 0;
  for (int axis = 0; axis < spec.x_shape.rank(); ++axis)
    words += spec.x_shape[axis] + 2 + spec.OutLength(axis);
  return static_cast<size_t>(words) * sizeof(int64_t);
}

BackwardTables MakeBackwardTables(const AxisMapBackwardSpec& spec, const MapAxes& map,
                                  int64_t* memory) {
  BackwardTables tables;
  for (int i = 0; i < map.rank; ++i) {
    const MapAxis& axis = map[i];
    if (axis.identity) continue;
    int64_t* start = memory;  // a counting sort, as in gather.cc
    int64_t* offset = start + axis.in + 2;
    memory = offset + axis.out;
    std::fill_n(start, axis.in + 2, 0);
    for (int64_t position = 0; position < axis.out; ++position)
      if (const int64_t source = spec.Source(axis.axis, position); source >= 0) ++start[source + 2];
    for (int64_t j = 2; j < axis.in + 2; ++j) start[j] += start[j - 1];
    for (int64_t position = 0; position < axis.out; ++position)
      if (const int64_t source = spec.Source(axis.axis, position); source >= 0)
        offset[start[source + 1]++] = position * axis.out_stride;
    tables.start[i] = start;
    tables.offset[i] = offset;
  }
  return tables;
}

constexpr int64_t kChunk = 256;

// sum[j] += every element, in one row of dy, to which position begin + j of the inner axis was
// copied.
template <class T>
void AddCopies(const MapAxes& map, const BackwardTables& tables, const T* dy, int64_t begin,
               int64_t n, double* sum) {
  const int inner = map.rank - 1;
  const auto value = [dy](int64_t i) {
    return static_cast<double>(Convert<ComputeType<T>>(dy[i]));
  };
  if (map.inner().identity) {
    for (int64_t j = 0; j < n; ++j) sum[j] += value(begin + j);
    return;
  }
  const int64_t* start = tables.start[inner];
  const int64_t* offset = tables.offset[inner];
  for (int64_t j = 0; j < n; ++j)
    for (int64_t k = start[begin + j]; k < start[begin + j + 1]; ++k) sum[j] += value(offset[k]);
}

// One row of dx: the sum over all rows of dy to which it was copied.
template <class T>
void SumRow(const MapAxes& map, const BackwardTables& tables, const int64_t* index, const T* dy,
            T* dx) {
  const int outer = map.rank - 1;
  const int64_t width = map.inner().in;
  int64_t copies = 1;
  for (int i = 0; i < outer; ++i) copies *= tables.Count(map, i, index[i]);
  for (int64_t at = 0; at < width; at += kChunk) {
    const int64_t n = std::min(kChunk, width - at);
    double sum[kChunk] = {};
    for (int64_t copy = 0; copy < copies; ++copy) {
      int64_t rest = copy, offset = 0;
      for (int i = outer - 1; i >= 0; --i) {
        const int64_t count = tables.Count(map, i, index[i]);
        offset += tables.At(map, i, index[i], rest % count);
        rest /= count;
      }
      AddCopies(map, tables, dy + offset, at, n, sum);
    }
    for (int64_t j = 0; j < n; ++j) dx[at + j] = Convert<T>(sum[j]);
  }
}

void RunAxisMapBackward(const AxisMapBackwardSpec& spec, const Execution& execution) {
  if (execution.outputs[0].size() == 0) return;
  const MapAxes map = ArrangeAxes(spec, ContiguousStrides(spec.x_shape));
  const BackwardTables tables =
      MakeBackwardTables(spec, map, static_cast<int64_t*>(execution.workspace));
  const int outer = map.rank - 1;
  const int64_t width = map.inner().in;
  const int64_t rows = map.Rows([](const MapAxis& axis) { return axis.in; });
  const int64_t work = std::max(execution.inputs[0].size(), execution.outputs[0].size());
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const T* dy = execution.in<T>(0);
    T* dx = execution.out<T>(0);
    ParallelFor(rows, kParallelGrain / 2 / std::max<int64_t>(1, work / rows),
                [&](int64_t begin, int64_t end) {
                  int64_t index[kMaxRank];
                  for (int64_t row = begin; row < end; ++row) {
                    int64_t rest = row;
                    for (int i = outer - 1; i >= 0; --i) {
                      index[i] = rest % map[i].in;
                      rest /= map[i].in;
                    }
                    SumRow(map, tables, index, dy, dx + row * width);
                  }
                });
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<AxisMapSpec, RunAxisMap, ForwardWorkspace>();
  RegisterReference<AxisMapBackwardSpec, RunAxisMapBackward, BackwardWorkspace>();
}

}  // namespace singa::reference

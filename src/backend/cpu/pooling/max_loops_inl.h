// The loops of max_loops.h. A file that includes this one defines SINGA_TARGET, the instruction set
// for which all functions are compiled, `Vectors`, its operations on vectors of floats
// (vectors_avx2.h), and `Positions`, those on vectors of as many positions.

#include <algorithm>
#include <limits>

#include "backend/cpu/pooling/max_loops.h"
#include "core/tensor/round_up.h"

#define SINGA_TARGET_INLINE SINGA_TARGET inline __attribute__((always_inline))

namespace singa::cpu {
namespace {

using Vector = Vectors::Type;
constexpr int64_t kLanes = Vectors::kLanes;

/// Columns that are computed between two fetches of what is next.
constexpr int64_t kColumnsOfFetch = 8;

/// Numbers of neighbours, and the distances between them, along each axis.
struct Box {
  int64_t planes, rows, columns;
  int64_t plane_step, row_step, column_step;
};

/// The position in x of a row's element w.
inline int32_t PositionOf(const MaxWindows& g, Row i, int64_t w) {
  return static_cast<int32_t>((i.plane * g.x.height + i.row) * g.x.width + w);
}

/// Loads from or stores to a vector's lanes: all, or those of the mask.
template <bool kPartial, class T>
SINGA_TARGET_INLINE Vector Load(const T* from, const Vectors::Mask& mask) {
  if constexpr (kPartial) return Vectors::Load(from, mask);
  return Vectors::Load(from);
}
template <bool kPartial, class T>
SINGA_TARGET_INLINE void Store(T* to, Vector v, const Vectors::Mask& mask, bool stream) {
  if constexpr (kPartial) return Vectors::Store(to, v, mask);
  stream ? Vectors::Stream(to, v) : Vectors::Store(to, v);
}

/// Where the results of a window go, and the position of its first tap.
template <class T>
struct MaxResult {
  T* y;
  int32_t* position;
  bool stream_y, stream_position;
  int32_t first;
};

/// One vector of a window's maxima and positions, of kSize by kSize taps, or of any number where
/// that is 0. Taps are compared from last to first, so that the first of equal values or NaNs wins.
template <bool kPosition, bool kPartial, int kSize, class T>
SINGA_TARGET_INLINE void MaxVector(const T* window, const Box& taps, const Box& distances,
                                   const Vectors::Mask& mask, int64_t lane,
                                   const MaxResult<T>& result) {
  const int64_t planes = kSize > 0 ? 1 : taps.planes;
  const int64_t rows = kSize > 0 ? kSize : taps.rows;
  const int64_t columns = kSize > 0 ? kSize : taps.columns;
  Vector best = Vectors::All(-std::numeric_limits<float>::infinity());
  Positions::Type at = Positions::All(0);
  for (int64_t kd = planes - 1; kd >= 0; --kd) {
#pragma GCC unroll 3
    for (int64_t kh = rows - 1; kh >= 0; --kh) {
      const T* row = window + kd * taps.plane_step + kh * taps.row_step + lane;
      const int64_t down = kd * distances.plane_step + kh * distances.row_step;
#pragma GCC unroll 3
      for (int64_t kw = columns - 1; kw >= 0; --kw) {
        const Vector value = Load<kPartial>(row + kw * taps.column_step, mask);
        const Positions::Choice better = Positions::IsBetter(value, best);
        best = Positions::Choose(better, value, best);
        if constexpr (kPosition) {
          const auto distance = static_cast<int32_t>(down + kw * distances.column_step);
          at = Positions::Choose(better, Positions::All(distance), at);
        }
      }
    }
  }
  if (result.y) Store<kPartial>(result.y + lane, best, mask, result.stream_y);
  if constexpr (kPosition) {
    at = Positions::Add(at, Positions::All(result.first));
    if constexpr (kPartial) {
      Positions::Store(result.position + lane, at, mask);
    } else {
      Positions::Store(result.position + lane, at, result.stream_position);
    }
  }
}

/// All channels of a window before the next window, so that with channels-last the cache lines of
/// its taps are read once.
template <bool kPosition, int kSize, class T>
SINGA_TARGET_INLINE void MaxWindow(const T* window, const Box& taps, const Box& distances,
                                   int64_t filled, const Vectors::Mask& rest,
                                   const MaxResult<T>& result) {
  int64_t lane = 0;
  for (; lane + kLanes <= filled; lane += kLanes)
    MaxVector<kPosition, false, kSize>(window, taps, distances, rest, lane, result);
  if (lane < filled) MaxVector<kPosition, true, kSize>(window, taps, distances, rest, lane, result);
}

/// A row of windows that have kSize rows of taps, or any number where that is 0.
template <bool kPosition, int kSize, class T>
SINGA_TARGET void MaxRow(const MaxCall<T>& call) {
  const MaxWindows& g = call.g;
  const WindowAxis& columns = g.windows.columns;
  const WindowAxis::Range through = g.windows.planes.taps(call.o.plane);
  const WindowAxis::Range down = g.windows.rows.taps(call.o.row);
  const Row top{g.windows.planes.position(call.o.plane, through.first),
                g.windows.rows.position(call.o.row, down.first)};
  const int64_t plane_dilation = g.windows.planes.dilation();
  const int64_t row_dilation = g.windows.rows.dilation();
  Box taps{through.size(),
           down.size(),
           0,
           plane_dilation * g.x.plane_step,
           row_dilation * g.x.row_step,
           columns.dilation() * g.x.column_step};
  const Box distances{0,
                      0,
                      0,
                      plane_dilation * g.x.height * g.x.width,
                      row_dilation * g.x.width,
                      columns.dilation()};
  const bool is_empty = taps.planes <= 0 || taps.rows <= 0;
  const T* row = call.x + top.plane * g.x.plane_step + (top.row - call.top) * g.x.row_step;
  const int32_t first = PositionOf(g, top, 0);
  const int64_t count = columns.windows(), filled = call.filled;
  const int64_t x_step = g.x.column_step, y_step = g.y.column_step;
  const Vectors::Mask rest = Vectors::First(filled % kLanes);
  MaxResult<T> result{call.y, call.position, call.stream_y, call.stream_position, 0};
  Ahead ahead(call.next, CeilDivide(count, kColumnsOfFetch));
  for (int64_t begin = 0; begin < count; begin += kColumnsOfFetch) {
    ahead.Fetch();
    const int64_t end = std::min(begin + kColumnsOfFetch, count);
    for (int64_t ow = begin; ow < end; ++ow) {
      const WindowAxis::Range across = columns.taps(ow);
      const int64_t left = columns.position(ow, across.first);
      const T* window = row + left * x_step;
      taps.columns = across.size();
      result.first = first + static_cast<int32_t>(left);
      if (kSize > 0 && taps.columns == kSize) {
        MaxWindow<kPosition, kSize>(window, taps, distances, filled, rest, result);
      } else if (is_empty || taps.columns <= 0) {
        if (result.y) std::fill_n(result.y, filled, T(-std::numeric_limits<float>::infinity()));
        if (kPosition) std::fill_n(result.position, filled, -1);
      } else {
        MaxWindow<kPosition, 0>(window, taps, distances, filled, rest, result);
      }
      if (result.y) result.y += y_step;
      if (kPosition) result.position += y_step;
    }
  }
}

template <bool kPosition, class T>
void MaxRowOf(const MaxCall<T>& call) {
  const int64_t planes = call.g.windows.planes.taps(call.o.plane).size();
  const int64_t rows = call.g.windows.rows.taps(call.o.row).size();
  const auto row = planes == 1 && rows == 2   ? MaxRow<kPosition, 2, T>
                   : planes == 1 && rows == 3 ? MaxRow<kPosition, 3, T>
                                              : MaxRow<kPosition, 0, T>;
  row(call);
}

template <class T>
void Maximum(const MaxCall<T>& call) {
  call.position ? MaxRowOf<true>(call) : MaxRowOf<false>(call);
}

/// One vector of an element's gradients, of kRows by kColumns windows, or of any number where these
/// are 0.
template <bool kPartial, int kRows, int kColumns, class T>
SINGA_TARGET_INLINE Vector GradientVector(const T* dy, const int32_t* position, const Box& windows,
                                          Positions::Type here, const Vectors::Mask& mask) {
  const int64_t planes = kRows > 0 ? 1 : windows.planes;
  const int64_t rows = kRows > 0 ? kRows : windows.rows;
  const int64_t columns = kColumns > 0 ? kColumns : windows.columns;
  Vector sum = Vectors::All(0);
  for (int64_t od = 0; od < planes; ++od) {
#pragma GCC unroll 2
    for (int64_t oh = 0; oh < rows; ++oh) {
      const int64_t row = od * windows.plane_step + oh * windows.row_step;
#pragma GCC unroll 2
      for (int64_t ow = 0; ow < columns; ++ow) {
        const int64_t o = row + ow * windows.column_step;
        const Positions::Type at =
            kPartial ? Positions::Load(position + o, mask) : Positions::Load(position + o);
        sum = Positions::AddWhere(Positions::Equal(at, here), sum, Load<kPartial>(dy + o, mask));
      }
    }
  }
  return sum;
}

template <int kRows, int kColumns, class T>
SINGA_TARGET_INLINE void GradientPixel(const T* dy, const int32_t* position, const Box& windows,
                                       Positions::Type here, int64_t filled,
                                       const Vectors::Mask& rest, bool stream, T* dx) {
  int64_t lane = 0;
  for (; lane + kLanes <= filled; lane += kLanes)
    Store<false>(
        dx + lane,
        GradientVector<false, kRows, kColumns>(dy + lane, position + lane, windows, here, rest),
        rest, stream);
  if (lane < filled)
    Store<true>(
        dx + lane,
        GradientVector<true, kRows, kColumns>(dy + lane, position + lane, windows, here, rest),
        rest, false);
}

/// A row of elements that kRows rows of windows may read, or any number where that is 0.
template <int kRows, class T>
SINGA_TARGET void GradientRow(const MaxGradientCall<T>& call) {
  const MaxWindows& g = call.g;
  const WindowAxis& columns = g.windows.columns;
  const WindowAxis::Range through = g.windows.planes.over(call.i.plane);
  const WindowAxis::Range down = g.windows.rows.over(call.i.row);
  Box windows{through.size(), down.size(), 0, g.y.plane_step, g.y.row_step, g.y.column_step};
  const int64_t first = through.first * windows.plane_step + down.first * windows.row_step;
  const T* dy = call.dy + first;
  const int32_t* position = call.position + first;
  T* dx = call.dx;
  const int32_t here = PositionOf(g, call.i, 0);
  const int64_t count = columns.size(), filled = call.filled, step = g.x.column_step;
  const bool stream = call.stream;
  const Vectors::Mask rest = Vectors::First(filled % kLanes);
  const int64_t parts = CeilDivide(count, kColumnsOfFetch);
  Ahead ahead_dy(call.next_dy, parts), ahead_position(call.next_position, parts);
  for (int64_t begin = 0; begin < count; begin += kColumnsOfFetch) {
    ahead_dy.Fetch();
    ahead_position.Fetch();
    const int64_t end = std::min(begin + kColumnsOfFetch, count);
    for (int64_t w = begin; w < end; ++w, dx += step) {
      const WindowAxis::Range across = columns.over(w);
      const int64_t at = across.first * windows.column_step;
      const Positions::Type place = Positions::All(here + static_cast<int32_t>(w));
      windows.columns = across.size();
      if (kRows > 0 && windows.columns == 1) {
        GradientPixel<kRows, 1>(dy + at, position + at, windows, place, filled, rest, stream, dx);
      } else if (kRows > 0 && windows.columns == 2) {
        GradientPixel<kRows, 2>(dy + at, position + at, windows, place, filled, rest, stream, dx);
      } else {
        GradientPixel<0, 0>(dy + at, position + at, windows, place, filled, rest, stream, dx);
      }
    }
  }
}

template <class T>
void Gradient(const MaxGradientCall<T>& call) {
  const int64_t planes = call.g.windows.planes.over(call.i.plane).size();
  const int64_t rows = call.g.windows.rows.over(call.i.row).size();
  const auto row = planes == 1 && rows == 1   ? GradientRow<1, T>
                   : planes == 1 && rows == 2 ? GradientRow<2, T>
                                              : GradientRow<0, T>;
  row(call);
}

template <class T>
constexpr MaxLoops<T> kMaxLoops = {Maximum<T>, Gradient<T>, Vectors::Fence};

}  // namespace
}  // namespace singa::cpu

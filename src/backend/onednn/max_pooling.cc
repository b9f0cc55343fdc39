#include "backend/onednn/max_pooling.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "backend/onednn/channel_lanes.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "model/operation/pooling_windows.h"

namespace singa::onednn {
namespace {

/// Lanes that are worked on at a time. GCC 12 takes comparisons of wider vectors than the CPU's
/// apart.
template <int64_t kLanes>
struct Vectors {
  using Floats __attribute__((vector_size(kLanes * sizeof(float)))) = float;
  using Ints __attribute__((vector_size(kLanes * sizeof(int32_t)))) = int32_t;
};

template <class T, class V, class Count>
inline __attribute__((always_inline)) void Load(V& v, const T* from, Count n) {
  if constexpr (sizeof(v[0]) == sizeof(T)) {
    std::memcpy(&v, from, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t l = 0; l < n; ++l) v[l] = Convert<float>(from[l]);
  }
}

template <class T, class V, class Count>
inline __attribute__((always_inline)) void Store(T* to, const V& v, Count n) {
  if constexpr (sizeof(v[0]) == sizeof(T)) {
    std::memcpy(to, &v, static_cast<size_t>(n) * sizeof(T));
  } else {
    for (int64_t l = 0; l < n; ++l) to[l] = Convert<T>(v[l]);
  }
}

template <class Spec>
std::string RefusesLayout(const Spec& spec) {
  if (std::string reason = RefusesFloat(spec.dtype); !reason.empty()) return reason;
  if (spec.geometry.batchsize == 0) return "there is nothing to compute";
  if (!spec.x_layout) return "the plain kernel takes row-major images";
  if (!LaneTagOf(spec.x_layout, spec.geometry.input_shape(), spec.dtype))
    return "the channels are not innermost";
  return "";
}

/// Calls body(lane, n) for n lanes from `lane` on, until all have had their turn; n is a constant
/// but where there are fewer. The last ones overlap those before, which changes no result.
template <int64_t kLanes, class Body>
inline __attribute__((always_inline)) void ForVectors(int64_t filled, const Body& body) {
  if (filled < kLanes) return body(int64_t{0}, filled);
  for (int64_t lane = 0; lane < filled; lane += kLanes)
    body(std::min(lane, filled - kLanes), std::integral_constant<int64_t, kLanes>());
}

/// What both directions know.
struct Geometry {
  template <class Spec>
  explicit Geometry(const Spec& spec)
      : windows(spec.geometry, PoolMode::kMax),
        tag(*LaneTagOf(spec.x_layout, spec.geometry.input_shape(), spec.dtype)),
        dtype(spec.dtype),
        x(spec.geometry.input_shape(), tag),
        y(spec.geometry.output_shape(), tag),
        x_layout(spec.x_layout),
        y_layout(FromDesc(LaneDesc(spec.geometry.output_shape(), dtype, tag),
                          spec.geometry.output_shape(), dtype)),
        position_layout(FromDesc(LaneDesc(spec.geometry.output_shape(), kInt32, tag),
                                 spec.geometry.output_shape(), kInt32)) {}

  size_t position_bytes() const {
    return static_cast<size_t>(y.images * y.image_step) * sizeof(int32_t);
  }

  PoolWindows windows;
  LaneTag tag;
  DType dtype;
  Lanes x, y;
  LayoutPtr x_layout, y_layout, position_layout;
};

/// One row of windows of one block: `n` lanes from `lane` on. y or position may be null.
template <int64_t kLanes, class T, class Count>
inline __attribute__((always_inline)) void MaxRow(const Geometry& g, const T* x, int64_t oh,
                                                  int64_t lane, Count n, T* y, int32_t* position) {
  using Floats = typename Vectors<kLanes>::Floats;
  using Ints = typename Vectors<kLanes>::Ints;
  const WindowAxis& rows = g.windows.rows;
  const WindowAxis& columns = g.windows.columns;
  for (int64_t ow = 0; ow < columns.windows(); ++ow) {
    Floats best = Floats{} - std::numeric_limits<float>::infinity();
    Ints at = Ints{} - 1;
    // From the last tap to the first: the first of equal values, or of NaNs, stays.
    for (int64_t kh = rows.taps(oh).last - 1; kh >= rows.taps(oh).first; --kh) {
      for (int64_t kw = columns.taps(ow).last - 1; kw >= columns.taps(ow).first; --kw) {
        const int64_t h = rows.position(oh, kh), w = columns.position(ow, kw);
        const T* in = x + h * g.x.row_step + w * g.x.column_step + lane;
        const auto here = static_cast<int32_t>(h * g.x.width + w);
        Floats value = {};
        Load(value, in, n);
        const Ints better = (value >= best) | (value != value);
        best = better ? value : best;
        at = better ? Ints{} + here : at;
      }
    }
    if (y) Store(y + ow * g.y.column_step + lane, best, n);
    if (position) Store(position + ow * g.y.column_step + lane, at, n);
  }
}

#if defined(__x86_64__)
#define SINGA_HAS_MAX_ROW_AVX512
#define SINGA_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

SINGA_AVX512 inline __m512 LoadLanes(const float* from, __mmask16 lanes) {
  return _mm512_maskz_loadu_ps(lanes, from);
}
// (Unmasked conversions and shifts make GCC 12 warn of an uninitialised register.)
SINGA_AVX512 inline __m512 LoadLanes(const BFloat16* from, __mmask16 lanes) {
  const __m512i wide = _mm512_maskz_cvtepu16_epi32(lanes, _mm256_maskz_loadu_epi16(lanes, from));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, wide, 16));
}
SINGA_AVX512 inline void StoreLanes(float* to, __mmask16 lanes, __m512 value) {
  _mm512_mask_storeu_ps(to, lanes, value);
}
/// Of values that were bfloat16.
SINGA_AVX512 inline void StoreLanes(BFloat16* to, __mmask16 lanes, __m512 value) {
  const __m512i high = _mm512_maskz_srli_epi32(0xffff, _mm512_castps_si512(value), 16);
  _mm256_mask_storeu_epi16(to, lanes, _mm512_maskz_cvtepi32_epi16(0xffff, high));
}

/// The same with AVX-512, where GCC 12 takes comparisons of vectors apart.
template <class T>
SINGA_AVX512 void MaxRowAvx512(const Geometry& g, const T* x, int64_t oh, int64_t filled, T* y,
                               int32_t* position) {
  const WindowAxis& rows = g.windows.rows;
  const WindowAxis& columns = g.windows.columns;
  const WindowAxis::Range down = rows.taps(oh);
  for (int64_t lane = 0; lane < filled; lane += 16) {
    const int64_t n = std::min<int64_t>(16, filled - lane);
    const auto lanes = static_cast<__mmask16>((1u << n) - 1);
    for (int64_t ow = 0; ow < columns.windows(); ++ow) {
      const WindowAxis::Range across = columns.taps(ow);
      __m512 best = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
      __m512i at = _mm512_set1_epi32(-1);
      for (int64_t kh = down.last - 1; kh >= down.first; --kh) {
        for (int64_t kw = across.last - 1; kw >= across.first; --kw) {
          const int64_t h = rows.position(oh, kh), w = columns.position(ow, kw);
          const __m512 value = LoadLanes(x + h * g.x.row_step + w * g.x.column_step + lane, lanes);
          const __mmask16 better = _mm512_cmp_ps_mask(value, best, _CMP_GE_OQ) |
                                   _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
          best = _mm512_mask_mov_ps(best, better, value);
          at = _mm512_mask_mov_epi32(at, better,
                                     _mm512_set1_epi32(static_cast<int>(h * g.x.width + w)));
        }
      }
      const int64_t to = ow * g.y.column_step + lane;
      if (y) StoreLanes(y + to, lanes, best);
      if (position) _mm512_mask_storeu_epi32(position + to, lanes, at);
    }
  }
}
#endif

template <int64_t kLanes, class T>
SINGA_MULTI_ISA void MaxRowOfBlock(const Geometry& g, const T* x, int64_t oh, int64_t filled, T* y,
                                   int32_t* position) {
  ForVectors<kLanes>(
      filled, [&](int64_t lane, auto n) __attribute__((always_inline)) {
        MaxRow<kLanes>(g, x, oh, lane, n, y, position);
      });
}

template <class T>
void MaxRows(const Geometry& g, const T* x, int64_t oh, int64_t filled, T* y, int32_t* position) {
#ifdef SINGA_HAS_MAX_ROW_AVX512
  static const bool wide = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BFloat16>)
    if (wide) return MaxRowAvx512(g, x, oh, filled, y, position);
#endif
  MaxRowOfBlock<8>(g, x, oh, filled, y, position);
}

/// One row of x of one block: adds up the windows whose maximum is there.
template <int64_t kLanes, class T, class Count>
inline __attribute__((always_inline)) void GradientRow(const Geometry& g, const T* dy,
                                                       const int32_t* position, int64_t h,
                                                       int64_t lane, Count n, T* dx) {
  using Floats = typename Vectors<kLanes>::Floats;
  using Ints = typename Vectors<kLanes>::Ints;
  const WindowAxis& rows = g.windows.rows;
  const WindowAxis& columns = g.windows.columns;
  for (int64_t w = 0; w < columns.size(); ++w) {
    const auto here = static_cast<int32_t>(h * g.x.width + w);
    Floats sum = {};
    for (int64_t oh = rows.over(h).first; oh < rows.over(h).last; ++oh) {
      for (int64_t ow = columns.over(w).first; ow < columns.over(w).last; ++ow) {
        const int64_t o = oh * g.y.row_step + ow * g.y.column_step + lane;
        Floats gradient = {};
        Ints from = {};
        Load(gradient, dy + o, n);
        Load(from, position + o, n);
        sum += from == here ? gradient : Floats{};
      }
    }
    Store(dx + w * g.x.column_step + lane, sum, n);
  }
}

template <int64_t kLanes, class T>
SINGA_MULTI_ISA void GradientRowOfBlock(const Geometry& g, const T* dy, const int32_t* position,
                                        int64_t h, int64_t filled, T* dx) {
  ForVectors<kLanes>(
      filled, [&](int64_t lane, auto n) __attribute__((always_inline)) {
        GradientRow<kLanes>(g, dy, position, h, lane, n, dx);
      });
}

template <class T>
void GradientRows(const Geometry& g, const T* dy, const int32_t* position, int64_t h,
                  int64_t filled, T* dx) {
  if (VectorLanes() == 16) {
    GradientRowOfBlock<16>(g, dy, position, h, filled, dx);
  } else {
    GradientRowOfBlock<8>(g, dy, position, h, filled, dx);
  }
}

/// Channels that only fill up a block are zero.
template <class T>
void ZeroPadding(const Lanes& layout, int64_t filled, T* row) {
  if (filled == layout.lanes) return;
  for (int64_t w = 0; w < layout.width; ++w)
    std::fill(row + w * layout.column_step + filled, row + (w + 1) * layout.column_step, T());
}

/// Calls body(image · blocks + block, row) for all rows of `layout`.
template <class Body>
void ForRows(const Geometry& g, const Lanes& layout, const Body& body) {
  const int64_t work = layout.row_step * g.windows.rows.kernel() * g.windows.columns.kernel();
  ParallelFor(layout.images * layout.blocks * layout.height, kParallelGrain / (work + 1) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) body(i / layout.height, i % layout.height);
              });
}

template <class T>
void Forward(const Geometry& g, const T* x, T* y, int32_t* position) {
  ForRows(g, g.y, [&](int64_t block, int64_t oh) {
    const int64_t filled = g.y.filled(block % g.y.blocks);
    const int64_t at = block * g.y.block_step + oh * g.y.row_step;
    T* y_row = y ? y + at : nullptr;
    int32_t* position_row = position ? position + at : nullptr;
    MaxRows(g, x + block * g.x.block_step, oh, filled, y_row, position_row);
    if (y) ZeroPadding(g.y, filled, y_row);
    if (position) ZeroPadding(g.y, filled, position_row);
  });
}

template <class T>
void Backward(const Geometry& g, const T* dy, const int32_t* position, T* dx) {
  ForRows(g, g.x, [&](int64_t block, int64_t h) {
    const int64_t filled = g.x.filled(block % g.x.blocks);
    T* row = dx + block * g.x.block_step + h * g.x.row_step;
    GradientRows(g, dy + block * g.y.block_step, position + block * g.y.block_step, h, filled, row);
    ZeroPadding(g.x, filled, row);
  });
}

class ForwardPlan final : public Plan {
 public:
  explicit ForwardPlan(const PoolingForwardSpec& spec)
      : Plan("onednn"), geometry_(spec), save_(spec.save) {}
  void Run(const Execution& execution) const override {
    SwitchFloat(geometry_.dtype, "PoolingForward", [&]<class T>() {
      Forward(geometry_, execution.in<T>(0), execution.out<T>(0),
              save_ ? execution.out<int32_t>(1) : nullptr);
    });
  }
  std::string Describe() const override { return "onednn layout, own maximum"; }
  LayoutPtr input_layout(size_t) const override { return geometry_.x_layout; }
  LayoutPtr output_layout(size_t i) const override {
    return i == 0 ? geometry_.y_layout : geometry_.position_layout;
  }

 private:
  Geometry geometry_;
  bool save_;
};

class BackwardPlan final : public Plan {
 public:
  explicit BackwardPlan(const PoolingBackwardSpec& spec)
      : Plan("onednn"), geometry_(spec), saved_(spec.saved) {}
  void Run(const Execution& execution) const override {
    SwitchFloat(geometry_.dtype, "PoolingBackward", [&]<class T>() {
      const int32_t* position;
      if (saved_) {
        position = execution.in<int32_t>(2);
      } else {
        auto* found = static_cast<int32_t*>(execution.workspace);
        Forward<T>(geometry_, execution.in<T>(1), nullptr, found);
        position = found;
      }
      Backward(geometry_, execution.in<T>(0), position, execution.out<T>(0));
    });
  }
  std::string Describe() const override { return "onednn layout, own maximum"; }
  size_t workspace_bytes() const override { return saved_ ? 0 : geometry_.position_bytes(); }
  LayoutPtr input_layout(size_t i) const override {
    return i == 0 ? geometry_.y_layout : i == 1 ? geometry_.x_layout : geometry_.position_layout;
  }
  LayoutPtr output_layout(size_t) const override { return geometry_.x_layout; }

 private:
  Geometry geometry_;
  bool saved_;
};

}  // namespace

std::string RefusesMax(const PoolingForwardSpec& spec) { return RefusesLayout(spec); }
std::string RefusesMax(const PoolingBackwardSpec& spec) { return RefusesLayout(spec); }
PlanPtr MakeMax(const PoolingForwardSpec& spec) { return std::make_shared<ForwardPlan>(spec); }
PlanPtr MakeMax(const PoolingBackwardSpec& spec) { return std::make_shared<BackwardPlan>(spec); }

}  // namespace singa::onednn

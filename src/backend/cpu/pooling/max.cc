#include "backend/cpu/pooling/max.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "backend/cpu/pooling/max_loops.h"
#include "backend/cpu/pooling/max_row_major.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "singa/core/half.h"

namespace singa::cpu {
namespace {

template <class Spec>
std::string RefusesLayout(const Spec& spec) {
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  if (spec.geometry.batchsize == 0) return "there is nothing to compute";
  if (!spec.x_layout) return "the plain kernel takes row-major images";
  if (!LaneTagOf(spec.x_layout, spec.geometry.input_shape(), spec.dtype))
    return "the channels are not innermost";
  return "";
}

/// The geometry of both directions.
struct Geometry : MaxWindows {
  template <class Spec>
  explicit Geometry(const Spec& spec)
      : Geometry(spec, *LaneTagOf(spec.x_layout, spec.geometry.input_shape(), spec.dtype)) {}
  template <class Spec>
  Geometry(const Spec& spec, LaneTag tag)
      : MaxWindows{PoolWindows(spec.geometry, PoolMode::kMax),
                   Lanes(spec.geometry.input_shape(), tag),
                   Lanes(spec.geometry.output_shape(), tag)},
        dtype(spec.dtype),
        x_layout(spec.x_layout),
        y_layout(LaneLayout(spec.geometry.output_shape(), dtype, tag)),
        position_layout(LaneLayout(spec.geometry.output_shape(), kInt32, tag)) {}

  size_t position_bytes() const {
    return static_cast<size_t>(y.images * y.image_step) * sizeof(int32_t);
  }

  DType dtype;
  LayoutPtr x_layout, y_layout, position_layout;
};

/// Calls body(image · blocks + block, row, offset of the row in the block) for all rows of
/// `layout`.
template <class Body>
void ForRows(const Geometry& g, const Lanes& layout, const Body& body) {
  const int64_t work = layout.row_step * g.windows.taps();
  const int64_t rows = layout.rows();
  ParallelFor(
      layout.images * layout.blocks * rows, kParallelGrain / (work + 1) + 1,
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = i % rows;
          body(i / rows, Row{row / layout.height, row % layout.height}, row * layout.row_step);
        }
      });
}

template <class T>
void Forward(const Geometry& g, const T* x, T* y, int32_t* position) {
  ForRows(g, g.y, [&](int64_t block, Row o, int64_t offset) {
    const int64_t filled = g.y.filled(block % g.y.blocks);
    const int64_t at = block * g.y.block_step + offset;
    T* y_row = y ? y + at : nullptr;
    int32_t* position_row = position ? position + at : nullptr;
    MaxRows(g, x + block * g.x.block_step, 0, o, filled, y_row, position_row);
    if (y) ZeroPadding(g.y, filled, y_row, sizeof(T));
    if (position) ZeroPadding(g.y, filled, position_row, sizeof(int32_t));
  });
}

template <class T>
void Backward(const Geometry& g, const T* dy, const int32_t* position, T* dx) {
  ForRows(g, g.x, [&](int64_t block, Row i, int64_t offset) {
    const int64_t filled = g.x.filled(block % g.x.blocks);
    T* row = dx + block * g.x.block_step + offset;
    GradientRows(g, dy + block * g.y.block_step, position + block * g.y.block_step, i, filled, row);
    ZeroPadding(g.x, filled, row, sizeof(T));
  });
}

/// Calls f.operator()<T>() with float or BFloat16, the types for which oneDNN has layouts.
template <class F>
void SwitchType(DType dtype, const F& f) {
  if (dtype == kBFloat16) {
    f.template operator()<BFloat16>();
  } else {
    f.template operator()<float>();
  }
}

class ForwardPlan final : public Plan {
 public:
  explicit ForwardPlan(const PoolingForwardSpec& spec)
      : Plan("cpu"), geometry_(spec), save_(spec.save) {}
  void Run(const Execution& execution) const override {
    SwitchType(geometry_.dtype, [&]<class T>() {
      Forward(geometry_, execution.in<T>(0), execution.out<T>(0),
              save_ ? execution.out<int32_t>(1) : nullptr);
    });
  }
  std::string Describe() const override { return "cpu maximum"; }
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
      : Plan("cpu"), geometry_(spec), saved_(spec.saved) {}
  void Run(const Execution& execution) const override {
    SwitchType(geometry_.dtype, [&]<class T>() {
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
  std::string Describe() const override { return "cpu maximum"; }
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

std::string RefusesMax(const PoolingForwardSpec& spec) {
  return spec.x_layout ? RefusesLayout(spec) : RefusesRowMajorMax(spec);
}

std::string RefusesMax(const PoolingBackwardSpec& spec) { return RefusesLayout(spec); }

PlanPtr MakeMax(const PoolingForwardSpec& spec) {
  if (!spec.x_layout) return MakeRowMajorMax(spec);
  return std::make_shared<ForwardPlan>(spec);
}

PlanPtr MakeMax(const PoolingBackwardSpec& spec) { return std::make_shared<BackwardPlan>(spec); }

}  // namespace singa::cpu

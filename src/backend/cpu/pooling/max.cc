#include "backend/cpu/pooling/max.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "backend/cpu/pooling/max_loops.h"
#include "backend/cpu/pooling/max_row_major.h"
#include "core/device/cache_size.h"
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

/// Rows of a plane that are read together, as offsets in the tensor.
struct Region {
  Region(const Lanes& layout, int64_t block, int64_t plane, WindowAxis::Range rows)
      : begin(block * layout.block_step + plane * layout.plane_step + rows.first * layout.row_step),
        end(begin + rows.size() * layout.row_step) {}
  /// The part that `before` does not have.
  Region Behind(const Region& before) const {
    Region part = *this;
    if (begin >= before.begin && begin < before.end) part.begin = std::min(before.end, end);
    return part;
  }
  template <class T>
  Next Of(const T* tensor) const {
    return {reinterpret_cast<const char*>(tensor + begin),
            (end - begin) * static_cast<int64_t>(sizeof(T))};
  }
  int64_t begin, end;
};

/// A row of windows or of an image, counted over all blocks of all images.
struct Place {
  Place(const Lanes& layout, int64_t i)
      : block(i / layout.rows()),
        row{i % layout.rows() / layout.height, i % layout.height},
        offset(block * layout.block_step + i % layout.rows() * layout.row_step) {}
  void Advance(const Lanes& layout) {
    offset += layout.row_step;
    if (++row.row < layout.height) return;
    row.row = 0;
    if (++row.plane < layout.depth) return;
    row.plane = 0, ++block;
  }
  int64_t block;
  Row row;
  int64_t offset;
};

/// Calls body(row, next region) for all rows of `layout`, and each thread fence() behind its rows.
/// reads(row) is the region that a row reads.
template <class Reads, class Body>
void ForRows(const Geometry& g, const Lanes& layout, void (*fence)(), const Reads& reads,
             const Body& body) {
  const int64_t work = layout.row_step * g.windows.taps();
  const int64_t count = layout.images * layout.blocks * layout.rows();
  ParallelFor(count, kParallelGrain / (work + 1) + 1, [&](int64_t begin, int64_t end) {
    Place place(layout, begin);
    Region region = reads(place);
    for (int64_t i = begin; i < end; ++i) {
      const Place now = place;
      const Region before = region;
      if (i + 1 < count) {
        place.Advance(layout);
        region = reads(place);
      }
      body(now, region.Behind(before));
    }
    fence();
  });
}

/// Whether results go past the caches: where they are larger, and are written as whole lines.
template <class T>
bool Streams(const Lanes& layout, const T* results) {
  return layout.images * layout.image_step * static_cast<int64_t>(sizeof(T)) >= kStreamedBytes &&
         layout.column_step % VectorLanes() == 0 && reinterpret_cast<uintptr_t>(results) % 64 == 0;
}

template <class T>
void Forward(const Geometry& g, const T* x, T* y, int32_t* position) {
  const MaxLoops<T> loops = MaxLoopsOfCpu<T>();
  const bool stream_y = y && Streams(g.y, y);
  const bool stream_position = position && Streams(g.y, position);
  const auto reads = [&](const Place& o) {
    const WindowAxis &planes = g.windows.planes, &rows = g.windows.rows;
    const WindowAxis::Range through = planes.taps(o.row.plane), down = rows.taps(o.row.row);
    if (through.size() <= 0 || down.size() <= 0) return Region(g.x, o.block, 0, {0, 0});
    return Region(
        g.x, o.block, planes.position(o.row.plane, through.first),
        {rows.position(o.row.row, down.first), rows.position(o.row.row, down.last - 1) + 1});
  };
  ForRows(g, g.y, loops.fence, reads, [&](const Place& o, const Region& next) {
    const int64_t filled = g.y.filled(o.block % g.y.blocks);
    T* y_row = y ? y + o.offset : nullptr;
    int32_t* position_row = position ? position + o.offset : nullptr;
    loops.maximum({.g = g,
                   .x = x + o.block * g.x.block_step,
                   .top = 0,
                   .o = o.row,
                   .filled = filled,
                   .y = y_row,
                   .position = position_row,
                   .stream_y = stream_y,
                   .stream_position = stream_position,
                   .next = next.Of(x)});
    if (y) ZeroPadding(g.y, filled, y_row, sizeof(T));
    if (position) ZeroPadding(g.y, filled, position_row, sizeof(int32_t));
  });
}

template <class T>
void Backward(const Geometry& g, const T* dy, const int32_t* position, T* dx) {
  const MaxLoops<T> loops = MaxLoopsOfCpu<T>();
  const bool stream = Streams(g.x, dx);
  const auto reads = [&](const Place& i) {
    return Region(g.y, i.block, g.windows.planes.over(i.row.plane).first,
                  g.windows.rows.over(i.row.row));
  };
  ForRows(g, g.x, loops.fence, reads, [&](const Place& i, const Region& next) {
    const int64_t filled = g.x.filled(i.block % g.x.blocks);
    T* row = dx + i.offset;
    loops.gradient({.g = g,
                    .dy = dy + i.block * g.y.block_step,
                    .position = position + i.block * g.y.block_step,
                    .i = i.row,
                    .filled = filled,
                    .dx = row,
                    .stream = stream,
                    .next_dy = next.Of(dy),
                    .next_position = next.Of(position)});
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

// Concatenation of images along their channels, and its backward pass, in the layouts of
// convolutions. It copies runs of channels: whole rows of blocks if channels start at a block
// boundary on both sides, as in the branches of Inception networks.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"
#include "model/operation/indexing/spec.h"

namespace singa::cpu {
namespace {

/// Images in memory, starting at channel `first`.
struct Side {
  Lanes lanes;
  int64_t first;
  char* data;

  /// Address of a channel, counted from `first`, at the beginning of a row.
  char* At(int64_t image, int64_t channel, int64_t row, int64_t bytes) const {
    const int64_t c = first + channel;
    return data + (image * lanes.image_step + c / lanes.lanes * lanes.block_step +
                   row * lanes.row_step + c % lanes.lanes) *
                      bytes;
  }
  /// Number of channels from this one to the end of its block.
  int64_t LeftInBlock(int64_t channel) const {
    return lanes.lanes - (first + channel) % lanes.lanes;
  }
};

/// Copies `count` channels of a row of an image.
void MoveRow(const Side& from, const Side& to, int64_t count, int64_t image, int64_t row,
             int64_t bytes) {
  const int64_t width = from.lanes.width;
  for (int64_t c = 0; c < count;) {
    const int64_t run = std::min({from.LeftInBlock(c), to.LeftInBlock(c), count - c});
    const char* source = from.At(image, c, row, bytes);
    char* target = to.At(image, c, row, bytes);
    const auto size = static_cast<size_t>(run * bytes);
    if (run == from.lanes.column_step && run == to.lanes.column_step) {
      std::memcpy(target, source, size * static_cast<size_t>(width));
    } else {
      for (int64_t w = 0; w < width; ++w)
        std::memcpy(target + w * to.lanes.column_step * bytes,
                    source + w * from.lanes.column_step * bytes, size);
    }
    c += run;
  }
}

void ZeroPadding(const Side& side, int64_t image, int64_t row, int64_t bytes) {
  const Lanes& lanes = side.lanes;
  const int64_t last = lanes.blocks - 1;
  singa::ZeroPadding(lanes, lanes.filled(last), side.At(image, last * lanes.lanes, row, bytes),
                     static_cast<size_t>(bytes));
}

/// Calls body(image, row) for all rows, in parallel.
template <class Body>
void ForRows(const Lanes& lanes, const Body& body) {
  ParallelFor(lanes.images * lanes.rows(), kParallelGrain / (lanes.width * lanes.channels) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) body(i / lanes.rows(), i % lanes.rows());
              });
}

class ConcatPlan final : public Plan {
 public:
  ConcatPlan(const ConcatSpec& spec, LaneTag tag)
      : Plan("cpu"),
        tag_(tag),
        bytes_(static_cast<int64_t>(SizeOf(spec.dtype))),
        layout_(LaneLayout(spec.y_shape, spec.dtype, tag)) {}
  std::string Describe() const override { return "cpu channels"; }
  LayoutPtr output_layout(size_t) const override { return layout_; }

  void Run(const Execution& execution) const override {
    const Lanes all(layout_->shape(), tag_);
    char* y = execution.out<char>(0);
    ForRows(all, [&](int64_t image, int64_t row) {
      int64_t first = 0;
      for (const Tensor& x : execution.inputs) {
        const int64_t channels = x.shape()[1];
        if (channels == 0) continue;  // Lanes requires channels
        const Side from{Lanes(x.shape(), tag_), 0, static_cast<char*>(x.raw_data())};
        MoveRow(from, {all, first, y}, channels, image, row, bytes_);
        first += channels;
      }
      ZeroPadding({all, 0, y}, image, row, bytes_);
    });
  }

 private:
  LaneTag tag_;
  int64_t bytes_;
  LayoutPtr layout_;
};

class SplitPlan final : public Plan {
 public:
  SplitPlan(const SplitSpec& spec, LaneTag tag)
      : Plan("cpu"),
        x_(spec.x_shape, tag),
        y_(spec.OutShape(), tag),
        start_(spec.start),
        bytes_(static_cast<int64_t>(SizeOf(spec.dtype))),
        x_layout_(spec.x_layout),
        y_layout_(LaneLayout(spec.OutShape(), spec.dtype, tag)) {}
  std::string Describe() const override { return "cpu channels"; }
  LayoutPtr input_layout(size_t) const override { return x_layout_; }
  LayoutPtr output_layout(size_t) const override { return y_layout_; }

  void Run(const Execution& execution) const override {
    const Side from{x_, start_, static_cast<char*>(execution.inputs[0].raw_data())};
    const Side to{y_, 0, execution.out<char>(0)};
    ForRows(y_, [&](int64_t image, int64_t row) {
      MoveRow(from, to, y_.channels, image, row, bytes_);
      ZeroPadding(to, image, row, bytes_);
    });
  }

 private:
  Lanes x_, y_;
  int64_t start_, bytes_;
  LayoutPtr x_layout_, y_layout_;
};

std::optional<LaneTag> TagOf(const ConcatSpec& spec) {
  return LaneTagOf(spec.x_layout, spec.x_layout->shape(), spec.dtype);
}
std::optional<LaneTag> TagOf(const SplitSpec& spec) {
  return LaneTagOf(spec.x_layout, spec.x_shape, spec.dtype);
}

const Shape& ResultOf(const ConcatSpec& spec) { return spec.y_shape; }
Shape ResultOf(const SplitSpec& spec) { return spec.OutShape(); }

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (!spec.x_layout) return "the plain kernel takes row-major tensors";
  if (spec.axis != 1) return "only channels are joined in a layout";
  if (ResultOf(spec).Count() == 0) return "there is nothing to compute";
  return TagOf(spec) ? "" : "the channels are not innermost";
}

template <class Spec, class SpecPlan>
PlanOrReason Make(const Spec& spec) {
  return std::make_shared<SpecPlan>(spec, *TagOf(spec));
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<ConcatSpec>(DeviceKind::kCpu, "cpu",
                       {.refuses = Refuses, .make = Make<ConcatSpec, ConcatPlan>});
  Register<SplitSpec>(DeviceKind::kCpu, "cpu",
                      {.refuses = Refuses, .make = Make<SplitSpec, SplitPlan>});
}

}  // namespace singa::cpu

// Concatenation of images along their channels in the layouts of convolutions. It copies runs of
// channels: whole rows of blocks if channels start at a block boundary on both sides, as in the
// branches of Inception networks.

#include <memory>
#include <optional>

#include "backend/cpu/channel_rows.h"
#include "model/dispatch/kernel.h"
#include "model/operation/indexing/spec.h"

namespace singa::cpu {
namespace {

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
    ForRows(all, [&](Row row) {
      int64_t first = 0;
      for (const Tensor& x : execution.inputs) {
        const int64_t channels = x.shape()[1];
        if (channels == 0) continue;  // Lanes requires channels
        const Side from{Lanes(x.shape(), tag_), 0, static_cast<char*>(x.raw_data())};
        MoveRow(from, row, {all, first, y}, row, channels, all.width, bytes_);
        first += channels;
      }
      ZeroPadding({all, 0, y}, row, bytes_);
    });
  }

 private:
  LaneTag tag_;
  int64_t bytes_;
  LayoutPtr layout_;
};

std::optional<LaneTag> TagOf(const ConcatSpec& spec) {
  return LaneTagOf(spec.x_layout, spec.x_layout->shape(), spec.dtype);
}

std::string Refuses(const ConcatSpec& spec) {
  if (!spec.x_layout) return "the plain kernel takes row-major tensors";
  if (spec.axis != 1) return "only channels are joined in a layout";
  if (spec.y_shape.Count() == 0) return "there is nothing to compute";
  return TagOf(spec) ? "" : "the channels are not innermost";
}

PlanOrReason Make(const ConcatSpec& spec) {
  return std::make_shared<ConcatPlan>(spec, *TagOf(spec));
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<ConcatSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::cpu

// Interpolation of images along up to three neighbouring axes, row-major, channels-last and in
// blocks of channels. These differ only in what lies before and behind the axes: images, channels,
// blocks. For each row of the result, the rows of the argument that it needs are blended, and then
// the columns of the blend. A gradient is the same with the transposed tables.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/interpolate/columns.h"
#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"
#include "singa/core/half.h"
#include "singa/core/threads.h"

namespace singa::cpu {
namespace {

const Shape& ArgumentShape(const InterpolateSpec& spec) { return spec.x_shape; }
const Shape& ArgumentShape(const InterpolateBackwardSpec& spec) { return spec.y_shape; }
const Shape& ResultShape(const InterpolateSpec& spec) { return spec.y_shape; }
const Shape& ResultShape(const InterpolateBackwardSpec& spec) { return spec.x_shape; }

/// The tag of an opaque argument whose images are resized along height and width.
template <class Spec>
std::optional<LaneTag> TagOf(const Spec& spec) {
  if (!spec.layout || spec.first_axis < 2) return std::nullopt;
  return LaneTagOf(spec.layout, ArgumentShape(spec), spec.dtype);
}

template <class Spec>
class InterpolatePlan final : public Plan {
 public:
  InterpolatePlan(const Spec& spec, bool backward)
      : Plan("cpu"), dtype_(spec.dtype), outer_(spec.outer()), inner_(spec.inner()) {
    if (const auto tag = TagOf(spec)) {
      const Lanes lanes(ArgumentShape(spec), *tag);
      // Height alone may be resized; then the width lies behind it.
      outer_ = lanes.images * lanes.blocks * spec.x_shape.Count(2, spec.first_axis);
      inner_ = lanes.lanes * spec.x_shape.Count(spec.first_axis + spec.axes, 4);
      argument_ = spec.layout;
      result_ = LaneLayout(ResultShape(spec), spec.dtype, *tag);
    }
    const auto length = [&](int i) { return backward ? spec.axis(i).out : spec.axis(i).in; };
    planes_ = std::make_unique<TapTable>(spec, 0, backward);
    rows_ = std::make_unique<TapTable>(spec, 1, backward);
    const TapTable columns(spec, 2, backward);
    columns_ = std::make_unique<Columns>(columns, inner_);
    rows_of_plane_ = length(1);
    row_size_ = length(2) * inner_;
    outer_step_ = length(0) * length(1) * row_size_;
    result_row_size_ = columns.size() * inner_;
    const int64_t work =
        outer_ * planes_->size() * rows_->size() * std::max(row_size_, result_row_size_);
    threads_ = static_cast<int>(std::clamp<int64_t>(work / kParallelGrain, 1, NumThreads()));
  }

  LayoutPtr input_layout(size_t) const override { return argument_; }
  LayoutPtr output_layout(size_t) const override { return result_; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_ * row_size_) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    dtype_ == kFloat32 ? RunTyped<float>(execution) : RunTyped<BFloat16>(execution);
  }

 private:
  /// The rows of the argument whose sum a row of the result is.
  struct Sources {
    std::vector<int64_t> offsets;
    std::vector<float> weights;
    bool operator==(const Sources&) const = default;
  };

  void FindSources(int64_t plane, int64_t row, Sources& sources) const {
    sources.offsets.clear();
    sources.weights.clear();
    for (const TapTable::Tap& a : (*planes_)[plane]) {
      for (const TapTable::Tap& b : (*rows_)[row]) {
        sources.offsets.push_back((a.at * rows_of_plane_ + b.at) * row_size_);
        sources.weights.push_back(static_cast<float>(a.weight * b.weight));
      }
    }
  }

  template <class T>
  void RunTyped(const Execution& execution) const {
    const T* in = execution.in<T>(0);
    T* out = execution.out<T>(0);
    const int64_t count = planes_->size() * rows_->size(), all = outer_ * count;
    ForEachThread(threads_, [&](int64_t thread) {
      float* blend = static_cast<float*>(execution.workspace) + thread * row_size_;
      Sources sources, last;
      std::vector<const T*> rows;
      const int64_t begin = all * thread / threads_, end = all * (thread + 1) / threads_;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i % count;
        T* to = out + i * result_row_size_;
        std::swap(sources, last);
        FindSources(row / rows_->size(), row % rows_->size(), sources);
        if (row != 0 && i > begin && sources == last) {
          std::memcpy(to, to - result_row_size_, static_cast<size_t>(result_row_size_) * sizeof(T));
          continue;
        }
        rows.clear();
        for (const int64_t offset : sources.offsets)
          rows.push_back(in + i / count * outer_step_ + offset);
        columns_->Run(Blended(rows, sources.weights, blend), to);
      }
    });
  }

  const float* Blended(const std::vector<const float*>& rows, const std::vector<float>& weights,
                       float* blend) const {
    if (rows.size() == 1 && weights[0] == 1) return rows[0];
    BlendRows(rows.data(), weights.data(), rows.size(), row_size_, blend);
    return blend;
  }
  const float* Blended(const std::vector<const BFloat16*>& rows, const std::vector<float>& weights,
                       float* blend) const {
    BlendRows(rows.data(), weights.data(), rows.size(), row_size_, blend);
    return blend;
  }

  DType dtype_;
  int64_t outer_, inner_;
  int64_t rows_of_plane_, row_size_, outer_step_, result_row_size_;
  std::unique_ptr<TapTable> planes_, rows_;
  std::unique_ptr<Columns> columns_;
  int threads_;
  LayoutPtr argument_, result_;
};

/// Plans are made before the result is allocated, so their tables must be small.
constexpr int64_t kLongest = 65536;

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  if (spec.x_shape.Count() == 0 || spec.y_shape.Count() == 0) return "there is nothing to compute";
  for (int i = 0; i < kMostInterpolated; ++i)
    if (std::max(spec.axis(i).in, spec.axis(i).out) > kLongest)
      return "an axis is too long for the kernel's tables";
  return "";
}

PlanOrReason MakeForward(const InterpolateSpec& spec) {
  return std::make_shared<InterpolatePlan<InterpolateSpec>>(spec, false);
}
PlanOrReason MakeBackward(const InterpolateBackwardSpec& spec) {
  return std::make_shared<InterpolatePlan<InterpolateBackwardSpec>>(spec, true);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<InterpolateSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = MakeForward});
  Register<InterpolateBackwardSpec>(DeviceKind::kCpu, "cpu",
                                    {.refuses = Refuses, .make = MakeBackward});
}

}  // namespace singa::cpu

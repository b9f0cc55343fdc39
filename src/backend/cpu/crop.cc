// Parts of images and padded images in the layouts of convolutions: one image is a box of the
// other, with a constant around it. Gradients of the one are the other.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/channel_rows.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/indexing/spec.h"
#include "model/operation/layout/axis_map_spec.h"

namespace singa::cpu {
namespace {

/// A range of positions along an axis of y, and where they begin in x.
struct Range {
  Range(int64_t x_length, int64_t y_length, int64_t shift)
      : begin(std::clamp<int64_t>(-shift, 0, y_length)),
        end(std::clamp<int64_t>(x_length - shift, begin, y_length)),
        shift(shift) {}
  bool Has(int64_t position) const { return position >= begin && position < end; }
  bool IsAll(int64_t y_length) const { return begin == 0 && end == y_length; }
  int64_t size() const { return end - begin; }

  int64_t begin, end;
  int64_t shift;  ///< position in x of position 0 of y
};

/// For each axis of x, the position of y's first element. Images that lack depth or height have
/// length 1 there.
struct Box {
  Box(const Lanes& x, const Lanes& y, const std::vector<int64_t>& shift)
      : images(x.images, y.images, shift[0]),
        channels(x.channels, y.channels, shift[1]),
        planes(x.depth, y.depth, shift.size() > 4 ? shift[2] : 0),
        rows(x.height, y.height, shift.size() > 3 ? shift[shift.size() - 2] : 0),
        columns(x.width, y.width, shift.back()) {}

  Range images, channels, planes, rows, columns;
};

class BoxPlan final : public Plan {
 public:
  BoxPlan(const Shape& x_shape, const Shape& y_shape, const std::vector<int64_t>& shift,
          DType dtype, LaneTag tag)
      : Plan("cpu"),
        x_(x_shape, tag),
        y_(y_shape, tag),
        box_(x_, y_, shift),
        dtype_(dtype),
        x_layout_(LaneLayout(x_shape, dtype, tag)),
        y_layout_(LaneLayout(y_shape, dtype, tag)) {}
  std::string Describe() const override { return "box"; }
  LayoutPtr input_layout(size_t) const override { return x_layout_; }
  LayoutPtr output_layout(size_t) const override { return y_layout_; }

  void Run(const Execution& execution) const override {
    const auto bytes = static_cast<int64_t>(SizeOf(dtype_));
    const std::vector<char> pixel = Pixel(execution.scalars.v[0]);
    char* x = static_cast<char*>(execution.inputs[0].raw_data());
    const Side y{y_, 0, execution.out<char>(0)};
    const Range &channels = box_.channels, &columns = box_.columns;
    const Side from{x_, channels.begin + channels.shift,
                    x + (columns.begin + columns.shift) * x_.column_step * bytes};
    const Side to{y_, channels.begin, y.data + columns.begin * y_.column_step * bytes};
    const bool has_columns = columns.size() > 0 && channels.size() > 0;
    ForRows(y_, [&](Row row) {
      const int64_t plane = row.row / y_.height, height = row.row % y_.height;
      const bool inside = has_columns && box_.images.Has(row.image) && box_.planes.Has(plane) &&
                          box_.rows.Has(height);
      if (!inside || !channels.IsAll(y_.channels)) {
        Fill(y, row, 0, y_.width, pixel);
      } else {
        Fill(y, row, 0, columns.begin, pixel);
        Fill(y, row, columns.end, y_.width, pixel);
      }
      if (!inside) return;
      const Row source{row.image + box_.images.shift,
                       (plane + box_.planes.shift) * x_.height + height + box_.rows.shift};
      MoveRow(from, source, to, row, channels.size(), columns.size(), bytes);
      ZeroPadding(y, row, bytes);
    });
  }

 private:
  /// A block of channels that are the constant.
  std::vector<char> Pixel(double constant) const {
    std::vector<char> pixel(static_cast<size_t>(y_.lanes) * SizeOf(dtype_));
    SwitchAll(dtype_, "Pad", [&]<class T>() {
      const T value = Convert<T>(constant);
      for (size_t i = 0; i < pixel.size(); i += sizeof(T))
        std::memcpy(pixel.data() + i, &value, sizeof(T));
    });
    return pixel;
  }

  /// Writes the constant to the columns [begin, end) of a row, and zeros to what pads it.
  void Fill(const Side& y, Row row, int64_t begin, int64_t end,
            const std::vector<char>& pixel) const {
    if (begin == end) return;
    const auto bytes = static_cast<int64_t>(SizeOf(dtype_));
    for (int64_t block = 0; block < y_.blocks; ++block) {
      char* to = y.At(row.image, block * y_.lanes, row.row, bytes);
      for (int64_t w = begin; w < end; ++w)
        std::memcpy(to + w * y_.column_step * bytes, pixel.data(), pixel.size());
    }
    ZeroPadding(y, row, bytes);
  }

  Lanes x_, y_;
  Box box_;
  DType dtype_;
  LayoutPtr x_layout_, y_layout_;
};

// The images of each Spec.

struct Images {
  Shape x, y;
  std::vector<int64_t> shift;
  DType dtype;
  LayoutPtr layout;  ///< of x
};

Images ImagesOf(const SplitSpec& spec) {
  std::vector<int64_t> shift(static_cast<size_t>(spec.x_shape.rank()), 0);
  shift[static_cast<size_t>(spec.axis)] = spec.start;
  return {spec.x_shape, spec.OutShape(), std::move(shift), spec.dtype, spec.x_layout};
}
Images ImagesOf(const AxisMapSpec& spec) {
  std::vector<int64_t> shift = spec.first.ToVector();
  for (int64_t& each : shift) each = -each;
  return {spec.x_shape, spec.OutShape(), std::move(shift), spec.dtype, spec.layout};
}
Images ImagesOf(const AxisMapBackwardSpec& spec) {
  return {spec.OutShape(), spec.x_shape, spec.first.ToVector(), spec.dtype, spec.layout};
}

bool IsBox(const SplitSpec&) { return true; }
bool IsBox(const AxisMapFields& spec) { return spec.kind == AxisMapKind::kPadConstant; }

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (!IsBox(spec)) return "only constants are put around an image in a layout";
  const Images images = ImagesOf(spec);
  if (!images.layout) return "the plain kernel takes row-major tensors";
  if (images.x.Count() == 0 || images.y.Count() == 0) return "there is nothing to compute";
  return LaneTagOf(images.layout, images.x, images.dtype) ? "" : "the channels are not innermost";
}

template <class Spec>
PlanOrReason Make(const Spec& spec) {
  const Images images = ImagesOf(spec);
  const LaneTag tag = *LaneTagOf(images.layout, images.x, images.dtype);
  return std::make_shared<BoxPlan>(images.x, images.y, images.shift, images.dtype, tag);
}

template <class Spec>
void RegisterBox() {
  Register<Spec>(DeviceKind::kCpu, "box", {.refuses = Refuses<Spec>, .make = Make<Spec>});
}

}  // namespace

SINGA_KERNELS(cpu) {
  RegisterBox<SplitSpec>();
  RegisterBox<AxisMapSpec>();
  RegisterBox<AxisMapBackwardSpec>();
}

}  // namespace singa::cpu

#include "singa/operation/recorder.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <sstream>

#include "model/operation/check.h"
#include "singa/core/error.h"

namespace singa {
namespace {

using Ints = std::vector<int64_t>;

// Vendor libraries count windows in 32 bits. With this bound, no sum or product of two of these
// numbers overflows 64 bits.
constexpr int64_t kMaxWindow = std::numeric_limits<int32_t>::max();
// Sizes in bytes are bounded for the widest element.
constexpr size_t kWidestElement = 8;

/// The number of axis `i` of images with `spatial` axes.
size_t AxisOf(int spatial, int i) { return static_cast<size_t>(Recorder::kMostAxes - spatial + i); }

const char* PaddingNames(int spatial) {
  return spatial == 1   ? "(left, right)"
         : spatial == 2 ? "(top, left, bottom, right)"
                        : "(front, top, left, back, bottom, right)";
}

void CheckNumbers(const char* op, const char* name, const Ints& values, int64_t least,
                  size_t spatial, bool both_ends = false) {
  const int axes = static_cast<int>(spatial);
  Check(values.size() == spatial || (both_ends && values.size() == 2 * spatial), op, name,
        " must be ", AxisNames(axes), both_ends ? " or " : "", both_ends ? PaddingNames(axes) : "",
        "; got ", List{values});
  for (int64_t value : values)
    Check(value >= least && value <= kMaxWindow, op, name, " must be between ", least, " and ",
          kMaxWindow, "; got ", List{values});
}

void CheckInput(const char* op, const Shape& input, int spatial) {
  Check(input.rank() == spatial + 2, op, "input must be ", ImageAxes(spatial), "; got shape ",
        input);
  CheckShape(op, input, kWidestElement);
  for (int axis = 1; axis < input.rank(); ++axis)
    Check(input[axis] >= 1 && input[axis] <= kMaxWindow, op,
          "input must have at least one channel and one pixel; got shape ", input);
}

int64_t WindowSpan(int64_t kernel, int64_t dilation) { return dilation * (kernel - 1) + 1; }

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/// Number of windows along one axis, by PyTorch's rule for `ceil_mode`.
int64_t CountWindows(const char* op, const char* name, const Recorder::Axis& axis, bool ceil_mode) {
  const int64_t padded = axis.size + axis.before + axis.after;
  const int64_t span = WindowSpan(axis.kernel, axis.dilation);
  int64_t count = FloorDivide(padded - span + (ceil_mode ? axis.stride - 1 : 0), axis.stride) + 1;
  // A window that starts in the padding behind the input would see nothing of the input.
  if (ceil_mode && (count - 1) * axis.stride >= axis.size + axis.before) --count;
  Check(count >= 1, op, "kernel ", axis.kernel, " with dilation ", axis.dilation, " spans ", span,
        " > ", padded, " elements of the padded input along the ", name, " (", axis.size,
        " + padding ", axis.before, " + ", axis.after, ")");
  return count;
}

void SetInput(Recorder* r, const Shape& input) {
  r->batchsize = input[0];
  r->in_channels = input[1];
  for (int i = 0; i < r->spatial; ++i) r->axes[AxisOf(r->spatial, i)].size = input[2 + i];
}

/// The fields of a recorder are public, so they may hold any numbers. Without this check the
/// computation below could divide by zero.
void CheckFields(const char* op, const Recorder& r) {
  auto within = [](int64_t value, int64_t least) { return value >= least && value <= kMaxWindow; };
  bool good = r.spatial >= 1 && r.spatial <= Recorder::kMostAxes && within(r.out_channels, 1) &&
              r.group >= 1 && r.in_channels % r.group == 0 && r.out_channels % r.group == 0;
  int missing = Recorder::kMostAxes - r.spatial;
  for (const Recorder::Axis& axis : r.axes) {
    good = good && within(axis.kernel, 1) && within(axis.stride, 1) && within(axis.dilation, 1) &&
           within(axis.before, 0) && within(axis.after, 0);
    if (missing-- > 0)
      good = good && axis.size == 1 && axis.kernel == 1 && axis.stride == 1 && axis.dilation == 1 &&
             axis.before == 0 && axis.after == 0;
  }
  Check(good, op, "the recorder is not one that SetupRecorder made");
}

/// Fills in and bounds every derived size. The windows of an adaptive pooling are given.
void Derive(const char* op, Recorder* r) {
  CheckFields(op, *r);
  for (size_t i = 0; i < r->axes.size() && !r->adaptive; ++i)
    r->axes[i].windows = CountWindows(op, Recorder::kAxisNames[i], r->axes[i], r->ceil_mode);
  // Everything that is allocated or indexed: weights, output, the im2col matrix of one image.
  CheckShape(op, r->weight_shape(), kWidestElement);
  CheckShape(op, r->output_shape(), kWidestElement);
  CheckShape(op,
             {r->in_channels / r->group, r->kernel_d(), r->kernel_h(), r->kernel_w(),
              r->conv_depth(), r->conv_height(), r->conv_width()},
             kWidestElement);
  r->col_height = r->in_channels / r->group * r->taps();
  r->col_width = r->conv_pixels();
  r->imagesize = r->in_channels * r->pixels();
}

/// The number of spatial axes, on which input and kernel agree.
int CheckAxes(const char* op, const Shape& input, const Ints& kernel) {
  const auto given = static_cast<int>(kernel.size());
  if (input.rank() == given + 2 && given >= 1 && given <= Recorder::kMostAxes) return given;
  // Two dimensions are the usual case, so the other argument is the wrong one.
  const bool wrong_kernel = input.rank() == 4 || given < 1 || given > Recorder::kMostAxes;
  const int spatial = wrong_kernel ? SpatialAxes(op, input) : given;
  CheckInput(op, input, spatial);
  CheckNumbers(op, "kernel", kernel, 1, static_cast<size_t>(spatial));
  return spatial;
}

Recorder WindowRecorder(const char* op, const Shape& input, const Ints& kernel, const Ints& stride,
                        const Ints& padding, const Ints& dilation) {
  Recorder r;
  r.spatial = CheckAxes(op, input, kernel);
  const auto spatial = static_cast<size_t>(r.spatial);
  CheckInput(op, input, r.spatial);
  CheckNumbers(op, "kernel", kernel, 1, spatial);
  CheckNumbers(op, "stride", stride, 1, spatial);
  CheckNumbers(op, "padding", padding, 0, spatial, true);
  if (!dilation.empty()) CheckNumbers(op, "dilation", dilation, 1, spatial);
  SetInput(&r, input);
  for (size_t i = 0; i < spatial; ++i) {
    Recorder::Axis& axis = r.axes[AxisOf(r.spatial, static_cast<int>(i))];
    axis.kernel = kernel[i];
    axis.stride = stride[i];
    axis.before = padding[i];
    axis.after = padding[padding.size() - spatial + i];
    if (!dilation.empty()) axis.dilation = dilation[i];
  }
  return r;
}

/// Each channel for itself.
Recorder ForPooling(Recorder r) {
  r.out_channels = r.group = r.in_channels;
  r.bias = false;
  return r;
}

}  // namespace

const char* ImageAxes(int spatial) {
  return spatial == 1 ? "(N, C, L)" : spatial == 2 ? "(N, C, H, W)" : "(N, C, D, H, W)";
}

const char* AxisNames(int spatial) {
  return spatial == 1 ? "(w)" : spatial == 2 ? "(h, w)" : "(d, h, w)";
}

int SpatialAxes(const char* op, const Shape& input) {
  Check(input.rank() >= 3 && input.rank() <= 2 + Recorder::kMostAxes, op,
        "input must be (N, C, L), (N, C, H, W) or (N, C, D, H, W); got shape ", input);
  return input.rank() - 2;
}

Recorder SetupRecorder(const Tensor& input, const std::vector<int64_t>& kernel,
                       const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                       int64_t in_channels, int64_t out_channels, bool bias,
                       const std::vector<int64_t>& dilation, int64_t group) {
  constexpr const char* kOp = "SetupRecorder";
  Check(!input.empty(), kOp, "input is an empty tensor");
  CheckInput(kOp, input.shape(), CheckAxes(kOp, input.shape(), kernel));
  Check(input.shape(1) == in_channels, kOp, "input has ", input.shape(1),
        " channels but in_channels is ", in_channels, "; input shape ", input.shape());
  return ConvRecorder(kOp, input.shape(), kernel, stride, padding, out_channels, bias, dilation,
                      group);
}

Recorder ConvRecorder(const char* op, const Shape& input, const std::vector<int64_t>& kernel,
                      const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                      int64_t out_channels, bool bias, const std::vector<int64_t>& dilation,
                      int64_t group) {
  Recorder r = WindowRecorder(op, input, kernel, stride, padding, dilation);
  Check(out_channels >= 1 && out_channels <= kMaxWindow, op, "out_channels must be between 1 and ",
        kMaxWindow, "; got ", out_channels);
  Check(group >= 1, op, "group must be at least 1; got ", group);
  Check(r.in_channels % group == 0 && out_channels % group == 0, op, "group ", group,
        " must divide in_channels ", r.in_channels, " and out_channels ", out_channels);
  r.out_channels = out_channels;
  r.group = group;
  r.bias = bias;
  Derive(op, &r);
  return r;
}

Recorder PoolRecorder(const char* op, const Shape& input, const std::vector<int64_t>& kernel,
                      const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                      const std::vector<int64_t>& dilation, bool ceil_mode) {
  Recorder r = ForPooling(WindowRecorder(op, input, kernel, stride, padding, dilation));
  for (const Recorder::Axis& axis : r.axes)
    Check(std::max(axis.before, axis.after) < WindowSpan(axis.kernel, axis.dilation), op,
          "padding ", List{padding}, " leaves windows of kernel ", List{kernel}, " with dilation ",
          List{r.Along(&Recorder::Axis::dilation)}, " outside the input");
  r.ceil_mode = ceil_mode;
  Derive(op, &r);
  return r;
}

Recorder AdaptivePoolRecorder(const char* op, const Shape& input,
                              const std::vector<int64_t>& output) {
  const int spatial = SpatialAxes(op, input);
  CheckInput(op, input, spatial);
  CheckNumbers(op, "output_size", output, 1, static_cast<size_t>(spatial));
  Ints kernel, ones, zeros;
  bool equal = true;
  for (int i = 0; i < spatial; ++i) {
    const int64_t in = input[2 + i], out = output[static_cast<size_t>(i)];
    equal = equal && in % out == 0;
    // A window begins r / out behind its first element. The largest r is out - gcd(in, out).
    kernel.push_back(1 + (in - std::gcd(in, out) + out - 1) / out);
    if (in % out == 0) kernel.back() = in / out;
    ones.push_back(1);
    zeros.push_back(0);
  }
  if (equal) return PoolRecorder(op, input, kernel, kernel, zeros, ones, false);
  Recorder r = ForPooling(WindowRecorder(op, input, kernel, ones, zeros, ones));
  r.adaptive = true;
  for (int i = 0; i < spatial; ++i)
    r.axes[AxisOf(spatial, i)].windows = output[static_cast<size_t>(i)];
  Derive(op, &r);
  return r;
}

Recorder WithInput(const char* op, const Recorder& recorder, const Shape& input) {
  CheckInput(op, input, std::clamp(recorder.spatial, 1, Recorder::kMostAxes));
  Check(input[1] == recorder.in_channels, op, "input has ", input[1],
        " channels; the handle was made for ", recorder.in_channels, "; input shape ", input);
  Recorder r = recorder;
  CheckFields(op, r);
  SetInput(&r, input);
  Derive(op, &r);
  return r;
}

void TakeOutputSizes(const Shape& output, Recorder* recorder) {
  for (int i = 0; i < recorder->spatial; ++i)
    recorder->axes[AxisOf(recorder->spatial, i)].windows = output[2 + i];
}

std::vector<int64_t> Recorder::Along(int64_t Axis::*number) const {
  std::vector<int64_t> numbers;
  for (const Axis& axis : axes) numbers.push_back(axis.*number);
  numbers.erase(numbers.begin(), numbers.end() - spatial);
  return numbers;
}

std::string Recorder::ToString() const {
  Ints padding = Along(&Axis::before);
  const Ints after = Along(&Axis::after);
  padding.insert(padding.end(), after.begin(), after.end());
  std::ostringstream out;
  out << "input " << input_shape();
  if (adaptive) {
    out << ", adaptive";
  } else {
    out << ", kernel " << List{Along(&Axis::kernel)} << ", stride " << List{Along(&Axis::stride)}
        << ", padding " << List{padding} << ", dilation " << List{Along(&Axis::dilation)};
  }
  out << ", group " << group << (bias ? ", bias" : ", no bias") << (ceil_mode ? ", ceil_mode" : "")
      << ", output " << output_shape();
  return out.str();
}

}  // namespace singa

#include "singa/operation/recorder.h"

#include <cstdint>
#include <limits>
#include <sstream>

#include "singa/core/error.h"

namespace singa {
namespace {

// Vendor libraries count windows in 32 bits, and with this bound no sum or product of two of these
// numbers leaves 64 bits.
constexpr int64_t kMaxWindow = std::numeric_limits<int32_t>::max();
// Bounds sizes in bytes of the widest element.
constexpr size_t kWidestElement = 8;

struct Text {
  const std::vector<int64_t>& values;
};
std::ostream& operator<<(std::ostream& out, const Text& text) {
  out << '(';
  for (size_t i = 0; i < text.values.size(); ++i) out << (i ? ", " : "") << text.values[i];
  return out << ')';
}

void CheckPair(const char* op, const char* name, const std::vector<int64_t>& values, int64_t least,
               bool also_four = false) {
  Check(values.size() == 2 || (also_four && values.size() == 4), op, name, " must be (h, w)",
        also_four ? " or (top, left, bottom, right)" : "", "; got ", Text{values});
  for (int64_t value : values)
    Check(value >= least && value <= kMaxWindow, op, name, " must be between ", least, " and ",
          kMaxWindow, "; got ", Text{values});
}

void CheckInput(const char* op, const Shape& input) {
  Check(input.rank() == 4, op, "input must be (N, C, H, W); got shape ", input);
  CheckShape(op, input, kWidestElement);
  for (int axis = 1; axis < 4; ++axis)
    Check(input[axis] >= 1 && input[axis] <= kMaxWindow, op,
          "input must have at least one channel, row and column; got shape ", input);
}

int64_t WindowSpan(int64_t kernel, int64_t dilation) { return dilation * (kernel - 1) + 1; }

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/// Number of windows along one axis, by PyTorch's rule for `ceil_mode`.
int64_t CountWindows(const char* op, const char* axis, int64_t size, int64_t kernel, int64_t stride,
                     int64_t before, int64_t after, int64_t dilation, bool ceil_mode) {
  const int64_t padded = size + before + after;
  const int64_t span = WindowSpan(kernel, dilation);
  int64_t count = FloorDivide(padded - span + (ceil_mode ? stride - 1 : 0), stride) + 1;
  // A window that starts in the padding after the input would see nothing of it.
  if (ceil_mode && (count - 1) * stride >= size + before) --count;
  Check(count >= 1, op, "kernel ", kernel, " with dilation ", dilation, " spans ", span, " > ",
        padded, " elements of the padded input along the ", axis, " (", size, " + padding ", before,
        " + ", after, ")");
  return count;
}

void SetInput(Recorder* r, const Shape& input) {
  r->batchsize = input[0];
  r->in_channels = input[1];
  r->height = input[2];
  r->width = input[3];
}

/// The fields of a recorder are public: what somebody wrote into them is no reason to divide by 0.
void CheckFields(const char* op, const Recorder& r) {
  auto within = [](int64_t value, int64_t least) { return value >= least && value <= kMaxWindow; };
  Check(within(r.kernel_h, 1) && within(r.kernel_w, 1) && within(r.stride_h, 1) &&
            within(r.stride_w, 1) && within(r.dilation_h, 1) && within(r.dilation_w, 1) &&
            within(r.pad_top, 0) && within(r.pad_left, 0) && within(r.pad_bottom, 0) &&
            within(r.pad_right, 0) && within(r.out_channels, 1) && r.group >= 1 &&
            r.in_channels % r.group == 0 && r.out_channels % r.group == 0,
        op, "the recorder is not one that SetupRecorder made");
}

/// Fills in and bounds every derived size.
void Derive(const char* op, Recorder* r) {
  CheckFields(op, *r);
  r->conv_height = CountWindows(op, "height", r->height, r->kernel_h, r->stride_h, r->pad_top,
                                r->pad_bottom, r->dilation_h, r->ceil_mode);
  r->conv_width = CountWindows(op, "width", r->width, r->kernel_w, r->stride_w, r->pad_left,
                               r->pad_right, r->dilation_w, r->ceil_mode);
  // Everything that will be allocated or indexed: weights, output, one image's im2col matrix.
  CheckShape(op, r->weight_shape(), kWidestElement);
  CheckShape(op, r->output_shape(), kWidestElement);
  CheckShape(op,
             {r->in_channels / r->group, r->kernel_h, r->kernel_w, r->conv_height, r->conv_width},
             kWidestElement);
  r->col_height = r->in_channels / r->group * r->kernel_h * r->kernel_w;
  r->col_width = r->conv_height * r->conv_width;
  r->imagesize = r->in_channels * r->height * r->width;
}

Recorder WindowRecorder(const char* op, const Shape& input, const std::vector<int64_t>& kernel,
                        const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                        const std::vector<int64_t>& dilation) {
  CheckInput(op, input);
  CheckPair(op, "kernel", kernel, 1);
  CheckPair(op, "stride", stride, 1);
  CheckPair(op, "padding", padding, 0, true);
  CheckPair(op, "dilation", dilation, 1);
  Recorder r;
  SetInput(&r, input);
  r.kernel_h = kernel[0];
  r.kernel_w = kernel[1];
  r.stride_h = stride[0];
  r.stride_w = stride[1];
  r.pad_top = padding[0];
  r.pad_left = padding[1];
  r.pad_bottom = padding.size() == 4 ? padding[2] : padding[0];
  r.pad_right = padding.size() == 4 ? padding[3] : padding[1];
  r.dilation_h = dilation[0];
  r.dilation_w = dilation[1];
  return r;
}

}  // namespace

Recorder SetupRecorder(const Tensor& input, const std::vector<int64_t>& kernel,
                       const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                       int64_t in_channels, int64_t out_channels, bool bias,
                       const std::vector<int64_t>& dilation, int64_t group) {
  constexpr const char* kOp = "SetupRecorder";
  Check(!input.empty(), kOp, "input is an empty tensor");
  CheckInput(kOp, input.shape());
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
  Recorder r = WindowRecorder(op, input, kernel, stride, padding, dilation);
  const int64_t span_h = WindowSpan(r.kernel_h, r.dilation_h);
  const int64_t span_w = WindowSpan(r.kernel_w, r.dilation_w);
  Check(r.pad_top < span_h && r.pad_bottom < span_h && r.pad_left < span_w && r.pad_right < span_w,
        op, "padding ", Text{padding}, " leaves windows of kernel ", Text{kernel},
        " with dilation ", Text{dilation}, " outside the input");
  r.out_channels = r.in_channels;
  r.group = r.in_channels;  // each channel for itself
  r.bias = false;
  r.ceil_mode = ceil_mode;
  Derive(op, &r);
  return r;
}

Recorder WithInput(const char* op, const Recorder& recorder, const Shape& input) {
  CheckInput(op, input);
  Check(input[1] == recorder.in_channels, op, "input has ", input[1],
        " channels; the handle was made for ", recorder.in_channels, "; input shape ", input);
  Recorder r = recorder;
  SetInput(&r, input);
  Derive(op, &r);
  return r;
}

std::string Recorder::ToString() const {
  std::ostringstream out;
  out << "input " << input_shape() << ", kernel (" << kernel_h << ", " << kernel_w << "), stride ("
      << stride_h << ", " << stride_w << "), padding (" << pad_top << ", " << pad_left << ", "
      << pad_bottom << ", " << pad_right << "), dilation (" << dilation_h << ", " << dilation_w
      << "), group " << group << (bias ? ", bias" : ", no bias") << (ceil_mode ? ", ceil_mode" : "")
      << ", output " << output_shape();
  return out.str();
}

}  // namespace singa

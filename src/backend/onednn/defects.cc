// Calls for which kernels of oneDNN compute wrong results or crash. Each entry was found by
// comparing all implementations with `reference` on drawn calls (`python -m singa doctor
// --kernels`), and its limits by calls on both sides of them. The evidence is of oneDNN 3.2 on CPUs
// with AVX2, with AVX512_BF16 and with AMX.

#include "backend/onednn/defects.h"

#include <algorithm>

#include "core/layout/blocked_layout.h"

namespace singa::onednn {
namespace {

/// Whether images are in blocks of channels, of which the last one is padded with zeros.
bool IsPadded(const LayoutPtr& images) {
  const BlockedLayout* layout = AsBlocked(images);
  return layout && !layout->placement().blocks.empty();
}

/// Wrong for 3, 5 ... 65 channels where the number of pixels is a multiple of 30; right for even
/// numbers, and in blocks of channels, which are padded. The channels are those that are summed up.
/// The gradient of the filter is right.
bool SumsOddChannels(const ConvolutionCall& call) {
  const Recorder& r = call.spec.geometry;
  const bool forward = call.spec.pass == ConvPass::kForward;
  if (!forward && call.spec.pass != ConvPass::kBackwardX) return false;
  const int64_t channels = forward != call.transposed ? r.in_channels : r.out_channels;
  return channels / r.group % 2 == 1 && !IsPadded(forward ? call.x : call.y);
}

/// It transposes into one buffer for each step of the stride, and reads buffers that it has not
/// written: where the image is narrower than the stride, where filter taps see only padding, and
/// where the filter is deeper than the volume (kernels of 2 to 7 were tried). With a dilation of
/// rows results were wrong from 29 in a row on, where there were several blocks of channels.
bool ReadsUnwrittenMemory(const ConvolutionCall& call) {
  const Recorder& r = call.spec.geometry;
  if (call.spec.pass != ConvPass::kBackwardW) return false;
  if (r.width() < r.stride_w() || r.dilation_h() > 1) return true;
  if ((r.kernel_d() - 1) * r.dilation_d() >= r.depth()) return true;
  const auto& axes = r.axes;
  return std::any_of(axes.begin(), axes.end(), [](const Recorder::Axis& axis) {
    return std::max(axis.before, axis.after) > axis.size;
  });
}

/// It adds what the output held by an instruction whose operand must be aligned, which pixels of
/// another number of channels than 4, 8, 12 ... are not. Seen with ONEDNN_MAX_CPU_ISA=SSE41.
bool AddsToUnalignedPixels(const ConvolutionCall& call) {
  return call.spec.has_add && call.spec.geometry.out_channels % 4 != 0 && !IsPadded(call.y);
}

/// It reads a row of an image as one run of channels where 32, the factors of a tile's row, divides
/// those of `kernel` columns though not those of one. Of 2,304 drawn calls (kernels, strides and
/// padding of 0 to 4), 164 were concerned, and 118 of them wrong, with errors as large as the
/// values; no other one was.
bool JoinsColumns(const ConvolutionCall& call) {
  const Recorder& r = call.spec.geometry;
  const bool forward = call.spec.pass == ConvPass::kForward;
  const bool backward_x = call.spec.pass == ConvPass::kBackwardX;
  if (call.transposed ? !backward_x : !forward) return false;
  const int64_t channels = r.in_channels / r.group;
  const auto divides = [&](int64_t columns) { return columns * channels % 32 == 0; };
  return !divides(1) && divides(r.kernel_w()) && divides(r.stride_w()) && divides(r.width()) &&
         r.pad_left() == 0 && r.pad_right() == 0;
}

/// It reads memory that it has not written where the image is narrower than the stride, which
/// leaves columns of the filter without an element of the image. Of 5,653 drawn calls 72 were
/// concerned though right, and 368 wrong; columns that wider padding leaves without an element are
/// refused, too.
bool SeesPaddingAlone(const ConvolutionCall& call) {
  const Recorder& r = call.spec.geometry;
  if (call.spec.pass != ConvPass::kBackwardW) return false;
  if (r.width() < r.stride_w()) return true;
  const Recorder::Axis& columns = r.axes[2];
  for (int64_t tap = 0; tap < columns.kernel; ++tap) {
    const int64_t first = tap * columns.dilation - columns.before;  // of window 0
    const int64_t last = first + (columns.windows - 1) * columns.stride;
    if (first >= columns.size || last < 0) return true;
  }
  return false;
}

/// Making the kernel crashes where no element of an image is seen along an axis: all that windows
/// see is padding, as with one row, a kernel of 2, a dilation of 3 and a padding of 2. Seven of
/// 3,634 drawn calls were such, in forward passes and in transposed convolutions; all others ran.
bool SeesNoElement(const ConvolutionCall& call) {
  const auto& axes = call.spec.geometry.axes;
  return std::any_of(axes.begin(), axes.end(), [](const Recorder::Axis& axis) {
    for (int64_t o = 0; o < axis.windows; ++o)
      for (int64_t tap = 0; tap < axis.kernel; ++tap) {
        const int64_t at = o * axis.stride - axis.before + tap * axis.dilation;
        if (at >= 0 && at < axis.size) return false;
      }
    return true;
  });
}

/// It reads unwritten memory as brgconv_bwd_w does, and was also wrong for a dilated volume of 3 x
/// 7 x 7 and for 65 channels of 10 x 15 with one filter of 1 x 1, for reasons that were not found.
bool IsFilterGradient(const ConvolutionCall& call) {
  return call.spec.pass == ConvPass::kBackwardW;
}

/// It copies the pixels that a stride keeps into a buffer for as many channels as there are, and
/// goes on for each part of an image where that part would begin if each pixel had a vector of
/// channels: behind the buffer's end (`rp.ws` in execute_backward_weights, oneDNN 3.2 to 3.7). With
/// AVX2, 36 of 2,905 drawn calls with channels-last images were wrong, those of 1 to 7 channels,
/// and other draws ended the process; 3,000 calls with blocks were right. With AVX-512, whose
/// source says the same, it was not seen.
bool WritesBehindItsBuffer(const ConvolutionCall& call) {
  const Recorder& r = call.spec.geometry;
  if (call.spec.pass != ConvPass::kBackwardW) return false;
  const int64_t vector = call.implementation.find("avx512") == std::string_view::npos ? 8 : 16;
  const int64_t channels = call.transposed ? r.out_channels : r.in_channels;
  return (r.stride_h() > 1 || r.stride_w() > 1) && channels < vector &&
         !IsPadded(call.transposed ? call.y : call.x);
}

struct KnownDefect {
  std::string_view implementation;  ///< a part of its name
  bool (*concerns)(const ConvolutionCall&);
  Defect defect;
};

constexpr Defect kWritesBehindItsBuffer = {
    "its gradient of the filter writes behind its buffer, for a stride and channels-last images of "
    "fewer channels than a vector has",
    true};

constexpr KnownDefect kDefects[] = {
    {"jit_1x1:", WritesBehindItsBuffer, kWritesBehindItsBuffer},
    {"jit_bf16_1x1:", WritesBehindItsBuffer, kWritesBehindItsBuffer},
    {"jit_bf16_1x1:",
     SumsOddChannels,
     {"wrong for an odd number of channels in channels-last images"}},
    {"jit_bf16:",
     ReadsUnwrittenMemory,
     {"its gradient of the filter reads memory that it has not written, for dilated rows and for "
      "images smaller than the stride, the padding or the filter"}},
    {"avx512_core_amx",
     SeesNoElement,
     {"crashes where windows see only padding along an axis", true}},
    {"brgconv:avx512_core_amx",
     JoinsColumns,
     {"wrong for rows without padding where 32 divides the channels of a window's columns and not "
      "those of one column"}},
    {"brgconv_bwd_w:avx512_core_amx",
     SeesPaddingAlone,
     {"reads memory that it has not written where columns of the filter see only padding"}},
    {"jit:avx512_core_amx",
     IsFilterGradient,
     {"its gradient of the filter is wrong for some volumes, channels and narrow images"}},
    {"jit_dw:sse41",
     AddsToUnalignedPixels,
     {"crashes where it adds to channels-last images whose channels 4 does not divide", true}},
};

}  // namespace

const Defect* DefectOf(const ConvolutionCall& call) {
  for (const KnownDefect& known : kDefects)
    if (call.implementation.find(known.implementation) != std::string_view::npos &&
        known.concerns(call))
      return &known.defect;
  return nullptr;
}

const Defect* DefectOfBytes(std::string_view implementation, const Recorder& geometry) {
  // Seen with 49 to 63 filters (a last block that is not full, of four blocks of 16) 6 or 7 wide,
  // and 5 or 6 columns of padding on one side; right with 4. The sums were of other columns. With
  // products of matrices seen with filters 4 wide, and in volumes also without padding.
  static constexpr Defect kSumsOtherColumns = {
      "wrong for 5 or more columns of padding on one side, and products of matrices for volumes"};
  const bool brgconv = implementation.find("brgconv") != std::string_view::npos;
  const bool gemm = implementation.find("gemm") != std::string_view::npos;
  const bool wide = std::max(geometry.pad_left(), geometry.pad_right()) > 4;
  const bool concerns = ((brgconv || gemm) && wide) || (gemm && geometry.spatial == 3);
  return concerns ? &kSumsOtherColumns : nullptr;
}

}  // namespace singa::onednn

// Group and instance norm of images, row-major, channels-last and in blocks of channels. Both
// directions first take sums of each channel of an image, join them into those of the groups, and
// then pass over the image with a few numbers for each channel.

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>

#include "backend/cpu/norm/norm_runs.h"
#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"
#include "model/operation/norm/spec.h"
#include "singa/core/half.h"

namespace singa::cpu {
namespace {

// Loops over the channels [first, last) of one image of `positions` x `channels`. Arrays of numbers
// of channels begin with channel 0.

/// y = (x − mean) · factor + bias
template <class T>
SINGA_MULTI_ISA void RunNormalize(const T* x, T* y, int64_t n, float mean, float factor,
                                  float bias) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = Convert<T>((Convert<float>(x[i]) - mean) * factor + bias);
}

/// dx = dy · factor − a − (x − mean) · b
template <class T>
SINGA_MULTI_ISA void RunGradient(const T* dy, const T* x, T* dx, int64_t n, float mean,
                                 float factor, float a, float b) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i)
    dx[i] = Convert<T>(Convert<float>(dy[i]) * factor - a - (Convert<float>(x[i]) - mean) * b);
}

template <class T>
struct RowMajorImage {
  static constexpr bool kAllGroups = false;
  static int64_t Stored(int64_t channels) { return channels; }
  int64_t channels, positions, first, last;

  SINGA_MULTI_ISA void Sums(const T* x, double* sums) const {
    for (int64_t c = first; c < last; ++c) sums[c] = RunSum(x + c * positions, positions);
  }
  SINGA_MULTI_ISA void Deviate(const T* x, const float* mean, double* sums, double* squares) const {
    for (int64_t c = first; c < last; ++c) {
      const Deviations of_run = RunDeviations(x + c * positions, positions, mean[c]);
      sums[c] = of_run.sum;
      squares[c] = of_run.squares;
    }
  }
  void Normalize(const T* x, T* y, const float* mean, const float* factor,
                 const float* bias) const {
    for (int64_t c = first; c < last; ++c)
      RunNormalize(x + c * positions, y + c * positions, positions, mean[c], factor[c], bias[c]);
  }
  SINGA_MULTI_ISA void GradientSums(const T* dy, const T* x, const float* mean, double* sums,
                                    double* products) const {
    for (int64_t c = first; c < last; ++c) {
      const auto of_run =
          SumGradients(dy + c * positions, x + c * positions, positions, mean[c], nullptr);
      sums[c] = of_run.gradient;
      products[c] = of_run.product;
    }
  }
  void Gradient(const T* dy, const T* x, T* dx, const float* mean, const float* factor,
                const float* a, const float* b) const {
    for (int64_t c = first; c < last; ++c)
      RunGradient(dy + c * positions, x + c * positions, dx + c * positions, positions, mean[c],
                  factor[c], a[c], b[c]);
  }
};

/// Positions whose values are added in float32.
constexpr int64_t kRows = 64;
/// Channels whose sums are in the first-level cache at a time.
constexpr int64_t kColumns = 512;

/// sums[s][c] = Σ f(i, c)[s] over the positions of channel c, where element i is the position's;
/// `f` is one of the structs below. Where kLanes is not 0, it is the number of channels.
template <int64_t kLanes, class F>
SINGA_MULTI_ISA void ColumnSums(const F& f, int64_t columns, int64_t positions,
                                const std::array<double*, F::kSums>& sums) {
  float partial[F::kSums][kLanes > 0 ? kLanes : kColumns];
  const int64_t channels = kLanes > 0 ? kLanes : columns;
  for (int64_t c = 0; c < channels; c += kColumns) {
    const int64_t width = std::min(kColumns, channels - c);
    for (double* sum : sums) std::fill_n(sum + c, width, 0.0);
    for (int64_t begin = 0; begin < positions; begin += kRows) {
      for (float* sum : partial) std::fill_n(sum, width, 0.0f);
      for (int64_t p = begin; p < std::min(positions, begin + kRows); ++p) {
#pragma omp simd
        for (int64_t i = 0; i < width; ++i) {
          const auto values = f(p * channels + c + i, c + i);
          for (size_t s = 0; s < F::kSums; ++s) partial[s][i] += values[s];
        }
      }
      for (size_t s = 0; s < F::kSums; ++s)
        for (int64_t i = 0; i < width; ++i) sums[s][c + i] += partial[s][i];
    }
  }
}

template <class T>
struct Value {
  static constexpr size_t kSums = 1;
  const T* x;
  std::array<float, 1> operator()(int64_t i, int64_t) const { return {Convert<float>(x[i])}; }
};
/// The distance from the mean, and its square.
template <class T>
struct Deviation {
  static constexpr size_t kSums = 2;
  const T* x;
  const float* mean;
  std::array<float, 2> operator()(int64_t i, int64_t c) const {
    const float d = Convert<float>(x[i]) - mean[c];
    return {d, d * d};
  }
};
/// The gradient, and its product with the distance from the mean.
template <class T>
struct GradientTerms {
  static constexpr size_t kSums = 2;
  const T *dy, *x;
  const float* mean;
  std::array<float, 2> operator()(int64_t i, int64_t c) const {
    const auto g = Convert<float>(dy[i]);
    return {g, g * (Convert<float>(x[i]) - mean[c])};
  }
};

template <int64_t kLanes, class T>
SINGA_MULTI_ISA void NormalizeColumns(const T* x, T* y, int64_t columns, int64_t positions,
                                      const float* mean, const float* factor, const float* bias) {
  const int64_t channels = kLanes > 0 ? kLanes : columns;
  for (int64_t p = 0; p < positions; ++p) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c)
      y[p * channels + c] =
          Convert<T>((Convert<float>(x[p * channels + c]) - mean[c]) * factor[c] + bias[c]);
  }
}

template <int64_t kLanes, class T>
SINGA_MULTI_ISA void ColumnGradient(const T* dy, const T* x, T* dx, int64_t columns,
                                    int64_t positions, const float* mean, const float* factor,
                                    const float* a, const float* b) {
  const int64_t channels = kLanes > 0 ? kLanes : columns;
  for (int64_t p = 0; p < positions; ++p) {
#pragma omp simd
    for (int64_t c = 0; c < channels; ++c)
      dx[p * channels + c] = Convert<T>(Convert<float>(dy[p * channels + c]) * factor[c] - a[c] -
                                        (Convert<float>(x[p * channels + c]) - mean[c]) * b[c]);
  }
}

/// In blocks of so many channels, each of them a channels-last image; 0: one of all channels.
template <int64_t kLanes, class T>
struct BlocksImage {
  static constexpr bool kAllGroups = true;
  static int64_t Stored(int64_t channels) {
    return kLanes > 0 ? RoundUp(channels, kLanes) : channels;
  }
  int64_t channels, positions, first, last;

  /// Calls f(offset, first channel) for each block.
  template <class F>
  void ForBlocks(const F& f) const {
    const int64_t width = kLanes > 0 ? kLanes : channels;
    for (int64_t c = 0; c < channels; c += width) f(c * positions, c);
  }
  void Sums(const T* x, double* sums) const {
    ForBlocks([&](int64_t at, int64_t c) {
      ColumnSums<kLanes>(Value<T>{x + at}, channels, positions, {sums + c});
    });
  }
  void Deviate(const T* x, const float* mean, double* sums, double* squares) const {
    ForBlocks([&](int64_t at, int64_t c) {
      ColumnSums<kLanes>(Deviation<T>{x + at, mean + c}, channels, positions,
                         {sums + c, squares + c});
    });
  }
  void Normalize(const T* x, T* y, const float* mean, const float* factor,
                 const float* bias) const {
    ForBlocks([&](int64_t at, int64_t c) {
      NormalizeColumns<kLanes>(x + at, y + at, channels, positions, mean + c, factor + c, bias + c);
    });
  }
  void GradientSums(const T* dy, const T* x, const float* mean, double* sums,
                    double* products) const {
    ForBlocks([&](int64_t at, int64_t c) {
      ColumnSums<kLanes>(GradientTerms<T>{dy + at, x + at, mean + c}, channels, positions,
                         {sums + c, products + c});
    });
  }
  void Gradient(const T* dy, const T* x, T* dx, const float* mean, const float* factor,
                const float* a, const float* b) const {
    ForBlocks([&](int64_t at, int64_t c) {
      ColumnGradient<kLanes>(dy + at, x + at, dx + at, channels, positions, mean + c, factor + c,
                             a + c, b + c);
    });
  }
};
template <class T>
using ChannelsLastImage = BlocksImage<0, T>;
template <class T>
using Image8c = BlocksImage<8, T>;
template <class T>
using Image16c = BlocksImage<16, T>;

/// Numbers of each channel of each image, in the workspace.
class ChannelNumbers {
 public:
  ChannelNumbers(void* memory, int64_t images, int64_t channels)
      : memory_(memory), images_(images), channels_(channels) {}
  static size_t Bytes(int64_t images, int64_t channels, int doubles, int floats) {
    return static_cast<size_t>(images * channels) * (static_cast<size_t>(doubles) * sizeof(double) +
                                                     static_cast<size_t>(floats) * sizeof(float));
  }
  double* Doubles(int i, int64_t image) const {
    return static_cast<double*>(memory_) + (i * images_ + image) * channels_;
  }
  /// Behind so many arrays of doubles.
  float* Floats(int doubles, int i, int64_t image) const {
    return reinterpret_cast<float*>(Doubles(doubles, 0)) + (i * images_ + image) * channels_;
  }

 private:
  void* memory_;
  int64_t images_, channels_;
};

template <class Spec>
class GroupNormPlan : public Plan {
 public:
  GroupNormPlan(const Spec& spec, LayoutPtr layout)
      : Plan("cpu"), spec_(spec), layout_(std::move(layout)) {}
  std::string Describe() const override { return "cpu group norm"; }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }

 protected:
  /// Calls f(n, first group, end, loops over their channels) for each image n and each of its
  /// groups, or for all groups of an image at a time.
  template <class Image, class F>
  void ForImages(const F& f) const {
    const int64_t at_a_time = Image::kAllGroups ? spec_.groups : 1;
    const int64_t parts = spec_.groups / at_a_time, width = spec_.group_channels();
    const int64_t work = at_a_time * width * spec_.positions() * 4 + 1;
    ParallelFor(spec_.shape[0] * parts, kParallelGrain / work + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = i % parts * at_a_time;
        f(i / parts, group, group + at_a_time,
          Image{spec_.channels(), spec_.positions(), group * width, (group + at_a_time) * width});
      }
    });
  }
  /// Sum of numbers of a group's channels, each times `weight(c)`.
  template <class Weight>
  double GroupSum(const double* numbers, int64_t group, const Weight& weight) const {
    const int64_t width = spec_.group_channels();
    double sum = 0;
    for (int64_t c = group * width; c < (group + 1) * width; ++c) sum += numbers[c] * weight(c);
    return sum;
  }
  /// With the channels that fill the last block.
  template <class Image>
  int64_t StoredChannels() const {
    return Image::Stored(spec_.channels());
  }
  template <class Image>
  int64_t ImageSize() const {
    return StoredChannels<Image>() * spec_.positions();
  }

  Spec spec_;
  LayoutPtr layout_;
};

template <template <class> class Image, class T>
class ForwardPlan final : public GroupNormPlan<NormForwardSpec> {
 public:
  using GroupNormPlan::GroupNormPlan;
  LayoutPtr input_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }
  size_t workspace_bytes() const override {
    return ChannelNumbers::Bytes(spec_.shape[0], this->template StoredChannels<Image<T>>(), 2, 3);
  }

  void Run(const Execution& execution) const override {
    const int64_t stored = this->template StoredChannels<Image<T>>();
    const ChannelNumbers numbers(execution.workspace, spec_.shape[0], stored);
    const auto count = static_cast<double>(std::max<int64_t>(spec_.values(), 1));
    const auto one = [](int64_t) { return 1.0; };
    const int64_t channels = spec_.channels(), size = this->template ImageSize<Image<T>>();
    ForImages<Image<T>>([&](int64_t n, int64_t begin, int64_t end, const Image<T>& image) {
      const T* x = execution.in<T>(0) + n * size;
      double *sums = numbers.Doubles(0, n), *squares = numbers.Doubles(1, n);
      float *mean = numbers.Floats(2, 0, n), *factor = numbers.Floats(2, 1, n);
      float* bias = numbers.Floats(2, 2, n);
      const int64_t width = spec_.group_channels();
      for (float* array : {mean, factor, bias}) std::fill(array + channels, array + stored, 0.0f);
      if (spec_.centered) image.Sums(x, sums);
      for (int64_t g = begin; g < end; ++g)
        std::fill_n(mean + g * width, width,
                    spec_.centered ? static_cast<float>(GroupSum(sums, g, one) / count) : 0);
      image.Deviate(x, mean, sums, squares);
      for (int64_t g = begin; g < end; ++g) {
        const NormMoments m =
            CorrectedMoments({GroupSum(sums, g, one), GroupSum(squares, g, one)}, count,
                             mean[g * width], spec_.centered, spec_.epsilon);
        std::fill_n(mean + g * width, width, m.mean);
        if (spec_.centered) execution.out<float>(1)[n * spec_.groups + g] = m.mean;
        execution.out<float>(2)[n * spec_.groups + g] = m.inv_std;
        for (int64_t c = g * width; c < (g + 1) * width; ++c) {
          factor[c] = m.inv_std * execution.value_or<float>(1, c, 1);
          bias[c] = execution.value_or<float>(2, c, 0);
        }
      }
      image.Normalize(x, execution.out<T>(0) + n * size, mean, factor, bias);
    });
  }
};

template <template <class> class Image, class T>
class BackwardPlan final : public GroupNormPlan<NormBackwardSpec> {
 public:
  using GroupNormPlan::GroupNormPlan;
  LayoutPtr input_layout(size_t i) const override { return i <= 1 ? layout_ : nullptr; }
  int inplace_input(size_t i) const override { return i == 0 ? 0 : -1; }
  size_t workspace_bytes() const override {
    return ChannelNumbers::Bytes(spec_.shape[0], this->template StoredChannels<Image<T>>(), 2, 4);
  }

  void Run(const Execution& execution) const override {
    const int64_t stored = this->template StoredChannels<Image<T>>();
    const ChannelNumbers numbers(execution.workspace, spec_.shape[0], stored);
    const auto count = static_cast<double>(std::max<int64_t>(spec_.values(), 1));
    const auto scale = [&](int64_t c) { return execution.value_or<float>(2, c, 1); };
    const int64_t channels = spec_.channels(), size = this->template ImageSize<Image<T>>();
    ForImages<Image<T>>([&](int64_t n, int64_t begin, int64_t end, const Image<T>& image) {
      const T *dy = execution.in<T>(0) + n * size, *x = execution.in<T>(1) + n * size;
      double *sums = numbers.Doubles(0, n), *products = numbers.Doubles(1, n);
      float *mean = numbers.Floats(2, 0, n), *factor = numbers.Floats(2, 1, n);
      float *a = numbers.Floats(2, 2, n), *b = numbers.Floats(2, 3, n);
      const int64_t width = spec_.group_channels();
      for (float* array : {mean, factor, a, b}) std::fill(array + channels, array + stored, 0.0f);
      for (int64_t g = begin; g < end; ++g)
        std::fill_n(mean + g * width, width, execution.value_or<float>(3, n * spec_.groups + g, 0));
      image.GradientSums(dy, x, mean, sums, products);
      for (int64_t g = begin; g < end; ++g) {
        const double inv_std = execution.in<float>(4)[n * spec_.groups + g];
        const double through_mean = spec_.centered ? inv_std * GroupSum(sums, g, scale) / count : 0;
        const double through_std =
            inv_std * inv_std * inv_std * GroupSum(products, g, scale) / count;
        for (int64_t c = g * width; c < (g + 1) * width; ++c) {
          factor[c] = static_cast<float>(inv_std * scale(c));
          a[c] = static_cast<float>(through_mean);
          b[c] = static_cast<float>(through_std);
          products[c] *= inv_std;
        }
      }
      if (spec_.need_x) image.Gradient(dy, x, execution.out<T>(0) + n * size, mean, factor, a, b);
    });
    if (spec_.need_scale) AddImages(numbers, 1, execution.out<float>(1));
    if (spec_.need_bias) AddImages(numbers, 0, execution.out<float>(2));
  }

 private:
  void AddImages(const ChannelNumbers& numbers, int of, float* out) const {
    for (int64_t c = 0; c < spec_.channels(); ++c) {
      double sum = 0;
      for (int64_t n = 0; n < spec_.shape[0]; ++n) sum += numbers.Doubles(of, n)[c];
      out[c] = static_cast<float>(sum);
    }
  }
};

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  if (spec.per_position) return "each position has statistics of its own";
  if (spec.groups == 1 && spec.positions() == 1) return "x is rows of one group";
  return "";
}

template <template <template <class> class, class> class P, template <class> class Image,
          class Spec>
PlanOrReason MakeFor(const Spec& spec, LayoutPtr layout) {
  if (spec.dtype == kBFloat16) return std::make_shared<P<Image, BFloat16>>(spec, std::move(layout));
  return std::make_shared<P<Image, float>>(spec, std::move(layout));
}

template <template <template <class> class, class> class P, class Spec>
PlanOrReason Make(const Spec& spec) {
  if (spec.positions() == 1) return MakeFor<P, ChannelsLastImage>(spec, nullptr);
  if (!spec.x_layout || spec.shape.rank() != 4) return MakeFor<P, RowMajorImage>(spec, nullptr);
  const auto tag = LaneTagOf(spec.x_layout, spec.shape, spec.dtype).value_or(LaneTag::kNhwc);
  LayoutPtr layout = LaneLayout(spec.shape, spec.dtype, tag);
  switch (tag) {
    case LaneTag::kNChw8c:
      return MakeFor<P, Image8c>(spec, std::move(layout));
    case LaneTag::kNChw16c:
      return MakeFor<P, Image16c>(spec, std::move(layout));
    default:
      return MakeFor<P, ChannelsLastImage>(spec, std::move(layout));
  }
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<NormForwardSpec>(
      DeviceKind::kCpu, "cpu",
      {.refuses = Refuses<NormForwardSpec>, .make = Make<ForwardPlan, NormForwardSpec>});
  Register<NormBackwardSpec>(
      DeviceKind::kCpu, "cpu",
      {.refuses = Refuses<NormBackwardSpec>, .make = Make<BackwardPlan, NormBackwardSpec>});
}

}  // namespace singa::cpu

// Convolution as a matrix product, for each image and group. `col` is the im2col matrix of an
// image: col_height rows, one per weight of a filter, and col_width columns, one per output pixel.
//
//   y  = W · col            W (out / group, col_height)
//   dW = Σ dy · colᵀ        over the images
//   dx = col2im(Wᵀ · dy)
//
// The matrix is made in tiles that fit in the cache. The tiling depends on the geometry alone, so
// that results do not depend on the number of threads.

#include <algorithm>
#include <cstring>

#include "backend/reference/arguments.h"
#include "backend/reference/gemm.h"
#include "backend/reference/im2col.h"
#include "model/dispatch/kernel.h"
#include "model/formula/activation.h"
#include "model/operation/conv/spec.h"

namespace singa::reference {
namespace {

constexpr int64_t kColBytes = int64_t{2} << 20;  // of a tile, about a core's share of the cache

/// How the im2col matrix of one group is tiled.
struct Tiling {
  int64_t channels;  ///< input channels of a block of rows
  int64_t blocks;    ///< blocks of rows
  int64_t columns;   ///< output pixels of a piece
  int64_t pieces;    ///< pieces of columns
  int64_t rows;      ///< rows of a block

  Tiling(const Recorder& g, int64_t channels_per_block)
      : channels(std::clamp<int64_t>(channels_per_block, 1, g.in_channels / g.group)) {
    const int64_t kernel = g.taps();
    blocks = (g.in_channels / g.group + channels - 1) / channels;
    rows = channels * kernel;
    columns = std::clamp<int64_t>(kColBytes / (8 * rows), 64, 1024);
    columns = std::min(columns, g.col_width);
    pieces = (g.col_width + columns - 1) / columns;
  }
  int64_t elements() const { return rows * columns; }
};

/// Forward multiplies whole columns; the gradients divide the rows among the threads.
Tiling ForwardTiling(const Recorder& g) { return Tiling(g, g.in_channels / g.group); }
Tiling BackwardTiling(const Recorder& g) { return Tiling(g, 256 / g.taps()); }

template <class T>
struct Scratch {
  T* base;
  int64_t elements;
  int64_t slots;
  T* of(int64_t slot) const { return base + slot * elements; }
};

/// y (N, out, output pixels). b and `add` may be null; `add` may be y itself.
template <class T>
void Forward(const Recorder& g, const T* x, const T* w, const T* b, const T* add,
             const Activation& after, T* y, Scratch<T> scratch) {
  const Tiling tiling = ForwardTiling(g);
  const int64_t filters = g.out_channels / g.group, channels = g.in_channels / g.group;
  const int64_t items = g.batchsize * g.group * tiling.pieces;
  ParallelItems(items, scratch.slots, filters * tiling.elements(), [&](int64_t item, int64_t slot) {
    const int64_t p0 = item % tiling.pieces * tiling.columns;
    const int64_t columns = std::min(tiling.columns, g.col_width - p0);
    const int64_t group = item / tiling.pieces % g.group, n = item / tiling.pieces / g.group;
    T* col = scratch.of(slot);
    Im2Col(g, x + n * g.imagesize + group * channels * g.pixels(), channels, p0, p0 + columns, col);
    const int64_t first = (n * g.out_channels + group * filters) * g.col_width + p0;
    T* out = y + first;
    for (int64_t m = 0; (b || add) && m < filters; ++m) {
      const T shift = b ? b[group * filters + m] : T(0);
      T* row = out + m * g.col_width;
      const T* other = add ? add + first + m * g.col_width : nullptr;
      for (int64_t p = 0; p < columns; ++p) row[p] = other ? other[p] + shift : shift;
    }
    Gemm(false, false, filters, columns, g.col_height, T(1), w + group * filters * g.col_height,
         g.col_height, col, columns, T(b || add ? 1 : 0), out, g.col_width);
    for (int64_t m = 0; after && m < filters; ++m) {
      T* row = out + m * g.col_width;
      for (int64_t p = 0; p < columns; ++p)
        row[p] = formula::Activated(after.kind, row[p], static_cast<T>(after.low),
                                    static_cast<T>(after.high));
    }
  });
}

/// dx (N, in, pixels), plus b (in) if it is not null.
template <class T>
void BackwardX(const Recorder& g, const T* dy, const T* w, const T* b, T* dx, Scratch<T> scratch) {
  const Tiling tiling = BackwardTiling(g);
  const int64_t filters = g.out_channels / g.group, channels = g.in_channels / g.group;
  const int64_t kernel = g.taps(), pixels = g.pixels();
  const int64_t items = g.batchsize * g.group * tiling.blocks;
  ParallelItems(
      items, scratch.slots, filters * tiling.rows * g.col_width, [&](int64_t item, int64_t slot) {
        const int64_t c0 = item % tiling.blocks * tiling.channels;
        const int64_t c_count = std::min(tiling.channels, channels - c0);
        const int64_t group = item / tiling.blocks % g.group, n = item / tiling.blocks / g.group;
        T* col = scratch.of(slot);
        T* image = dx + n * g.imagesize + (group * channels + c0) * pixels;
        for (int64_t c = 0; c < c_count; ++c)
          std::fill_n(image + c * pixels, pixels, b ? b[group * channels + c0 + c] : T(0));
        for (int64_t p0 = 0; p0 < g.col_width; p0 += tiling.columns) {
          const int64_t columns = std::min(tiling.columns, g.col_width - p0);
          Gemm(true, false, c_count * kernel, columns, filters, T(1),
               w + group * filters * g.col_height + c0 * kernel, g.col_height,
               dy + (n * g.out_channels + group * filters) * g.col_width + p0, g.col_width, T(0),
               col, columns);
          Col2ImAdd(g, col, c_count, p0, p0 + columns, image);
        }
      });
}

/// dW (out, in / group, kernel).
template <class T>
void BackwardW(const Recorder& g, const T* dy, const T* x, T* dw, Scratch<T> scratch) {
  const Tiling tiling = BackwardTiling(g);
  const int64_t filters = g.out_channels / g.group, channels = g.in_channels / g.group;
  const int64_t kernel = g.taps();
  // One thread sums over all images. If there are few blocks, threads also divide the filters.
  const int64_t m_step = g.group * tiling.blocks >= 8 ? filters : std::min<int64_t>(filters, 32);
  const int64_t m_blocks = (filters + m_step - 1) / m_step;
  const int64_t items = g.group * tiling.blocks * m_blocks;
  ParallelItems(
      items, scratch.slots, m_step * tiling.rows * g.col_width * g.batchsize,
      [&](int64_t item, int64_t slot) {
        const int64_t m0 = item % m_blocks * m_step, m_count = std::min(m_step, filters - m0);
        const int64_t block = item / m_blocks % tiling.blocks;
        const int64_t c0 = block * tiling.channels;
        const int64_t c_count = std::min(tiling.channels, channels - c0);
        const int64_t group = item / m_blocks / tiling.blocks;
        T* col = scratch.of(slot);
        T* out = dw + (group * filters + m0) * g.col_height + c0 * kernel;
        for (int64_t n = 0; n < g.batchsize; ++n) {
          const T* image = x + n * g.imagesize + (group * channels + c0) * g.pixels();
          const T* gradient = dy + (n * g.out_channels + group * filters + m0) * g.col_width;
          for (int64_t p0 = 0; p0 < g.col_width; p0 += tiling.columns) {
            const int64_t columns = std::min(tiling.columns, g.col_width - p0);
            Im2Col(g, image, c_count, p0, p0 + columns, col);
            Gemm(false, true, m_count, c_count * kernel, columns, T(1), gradient + p0, g.col_width,
                 col, columns, T(n == 0 && p0 == 0 ? 0 : 1), out, g.col_height);
          }
        }
      });
}

/// db (channels): the sum of dy (batch, channels, pixels), accumulated in float64.
template <class T>
void BackwardB(int64_t batch, int64_t channels, int64_t pixels, const T* dy, T* db) {
  ParallelFor(channels, kParallelGrain / std::max<int64_t>(1, batch * pixels),
              [&](int64_t begin, int64_t end) {
                for (int64_t c = begin; c < end; ++c) {
                  double sum = 0;
                  for (int64_t n = 0; n < batch; ++n) {
                    const T* row = dy + (n * channels + c) * pixels;
                    for (int64_t p = 0; p < pixels; ++p) sum += static_cast<double>(row[p]);
                  }
                  db[c] = static_cast<T>(sum);
                }
              });
}

/// Elements of im2col scratch per thread; 0 for the bias gradient.
int64_t ScratchElements(ConvPass matrix_pass, const Recorder& g) {
  switch (matrix_pass) {
    case ConvPass::kForward:
      return ForwardTiling(g).elements();
    case ConvPass::kBackwardX:
    case ConvPass::kBackwardW:
      return BackwardTiling(g).elements();
    case ConvPass::kBackwardB:
      break;
  }
  return 0;
}

/// A transposed convolution is the input gradient of a convolution, and vice versa.
ConvPass MatrixPass(const ConvSpec& spec) { return spec.pass; }
ConvPass MatrixPass(const ConvTransposeSpec& spec) {
  if (spec.pass == ConvPass::kForward) return ConvPass::kBackwardX;
  if (spec.pass == ConvPass::kBackwardX) return ConvPass::kForward;
  return spec.pass;
}

template <class Spec>
size_t Workspace(const Spec& spec) {
  const Recorder& g = spec.geometry;
  const size_t element = spec.dtype == kFloat64 ? sizeof(double) : sizeof(float);
  const int64_t x = g.input_shape().Count(), w = g.weight_shape().Count(),
                y = g.output_shape().Count();
  const int64_t bias = std::max(g.in_channels, g.out_channels);
  size_t arguments = 0;
  switch (spec.pass) {
    case ConvPass::kForward:
    case ConvPass::kBackwardW:
      arguments = ArgumentBytes(spec.dtype, {x, w, y, bias, spec.has_add ? y : 0});
      break;
    case ConvPass::kBackwardX:
      arguments = ArgumentBytes(spec.dtype, {x, w, y});
      break;
    case ConvPass::kBackwardB:
      arguments = ArgumentBytes(spec.dtype, {std::max(x, y), bias});
      break;
  }
  return arguments + static_cast<size_t>(spec.threads) *
                         static_cast<size_t>(ScratchElements(MatrixPass(spec), g)) * element;
}

template <class C>
Scratch<C> ScratchOf(ConvPass matrix_pass, const ConvSpec& spec, char* memory) {
  return {reinterpret_cast<C*>(memory), ScratchElements(matrix_pass, spec.geometry), spec.threads};
}

void RunConv(const ConvSpec& spec, const Execution& execution) {
  const Recorder& g = spec.geometry;
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    Arguments<T> a(execution);  // in[2] is null without a bias
    const auto scratch = ScratchOf<ComputeType<T>>(MatrixPass(spec), spec, a.rest());
    switch (spec.pass) {
      case ConvPass::kForward:
        Forward(g, a.in[0], a.in[1], g.bias ? a.in[2] : nullptr,
                spec.has_add ? a.in[spec.add_input()] : nullptr, spec.activation, a.out[0],
                scratch);
        break;
      case ConvPass::kBackwardX:
        BackwardX(g, a.in[0], a.in[1], a.in[2], a.out[0], scratch);
        break;
      case ConvPass::kBackwardW:
        BackwardW(g, a.in[0], a.in[1], a.out[0], scratch);
        if (g.bias) BackwardB(g.batchsize, g.out_channels, g.col_width, a.in[0], a.out[1]);
        break;
      case ConvPass::kBackwardB:
        BackwardB(g.batchsize, g.out_channels, g.conv_pixels(), a.in[0], a.out[0]);
        break;
    }
    a.Store();
  });
}

/// The statistics are those of y after rounding to T.
void RunConvStatistics(const ConvStatisticsSpec& spec, const Execution& execution) {
  RunConv(spec, {execution.device, execution.inputs, execution.outputs.first(1), execution.scalars,
                 execution.workspace});
  const Recorder& g = spec.geometry;
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using S = ComputeType<T>;
    ParallelFor(g.out_channels, kParallelGrain / std::max<int64_t>(1, g.batchsize * g.col_width),
                [&](int64_t begin, int64_t end) {
                  for (int64_t c = begin; c < end; ++c) {
                    double sum = 0, squares = 0;
                    for (int64_t n = 0; n < g.batchsize; ++n) {
                      const T* y = execution.out<T>(0) + (n * g.out_channels + c) * g.col_width;
                      for (int64_t p = 0; p < g.col_width; ++p) {
                        const auto value = Convert<double>(y[p]);
                        sum += value;
                        squares += value * value;
                      }
                    }
                    execution.out<S>(1)[c] = static_cast<S>(sum);
                    execution.out<S>(2)[c] = static_cast<S>(squares);
                  }
                });
  });
}

void RunConvTranspose(const ConvTransposeSpec& spec, const Execution& execution) {
  const Recorder& g = spec.geometry;
  const int64_t pixels = g.pixels();  // of y
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    Arguments<T> a(execution);  // in[2] is null without a bias
    const auto scratch = ScratchOf<ComputeType<T>>(MatrixPass(spec), spec, a.rest());
    switch (spec.pass) {
      case ConvPass::kForward:
        BackwardX(g, a.in[0], a.in[1], a.in[2], a.out[0], scratch);
        break;
      case ConvPass::kBackwardX:
        Forward<ComputeType<T>>(g, a.in[0], a.in[1], nullptr, nullptr, {}, a.out[0], scratch);
        break;
      case ConvPass::kBackwardW:
        BackwardW(g, a.in[1], a.in[0], a.out[0], scratch);
        if (g.bias) BackwardB(g.batchsize, g.in_channels, pixels, a.in[0], a.out[1]);
        break;
      case ConvPass::kBackwardB:
        BackwardB(g.batchsize, g.in_channels, pixels, a.in[0], a.out[0]);
        break;
    }
    a.Store();
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<ConvSpec, RunConv, Workspace<ConvSpec>>();
  RegisterReference<ConvStatisticsSpec, RunConvStatistics, Workspace<ConvStatisticsSpec>>();
  RegisterReference<ConvTransposeSpec, RunConvTranspose, Workspace<ConvTransposeSpec>>();
}

}  // namespace singa::reference

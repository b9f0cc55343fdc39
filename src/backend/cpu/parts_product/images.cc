#include "backend/cpu/parts_product/images.h"

#include <algorithm>

namespace singa::cpu::parts_product {

using batch_blocked::kSide;
using batch_blocked::kSums;

Window::Window(const Recorder& r, bool backward)
    : down{backward ? r.height() : r.conv_height(),
           backward ? r.conv_height() : r.height(),
           r.kernel_h(),
           r.stride_h(),
           r.dilation_h(),
           r.pad_top(),
           backward},
      across{backward ? r.width() : r.conv_width(),
             backward ? r.conv_width() : r.width(),
             r.kernel_w(),
             r.stride_w(),
             r.dilation_w(),
             r.pad_left(),
             backward} {}

void Pixels::Locate(int64_t, int64_t row, int64_t term, Runs* runs) const {
  const int64_t first = along() ? row : term, count = along() ? kPanel : kChunk;
  const int64_t first_run = (along() ? term : row) / kRun, run_count = along() ? kChunkRuns : 2;
  const int64_t runs_of_tap = memory_.runs(), all_runs = window_.taps() * runs_of_tap;
  const int64_t all = memory_.lanes.images * window_.pixels();
  const Window::Axis &down = window_.down, &across = window_.across;
  for (int64_t r = 0; r < run_count; ++r) {
    const int64_t run = first_run + r, tap = run / runs_of_tap, channels = run % runs_of_tap;
    const float** to = runs->at + r * count;
    if (run >= all_runs) {
      runs->length[r] = 0;
      std::fill_n(to, count, kZeros);
      continue;
    }
    runs->length[r] = memory_.run_length(channels);
    const float* data = data_ + channels * memory_.run_step;
    int64_t image = first / window_.pixels(), h = first % window_.pixels() / across.results,
            w = first % across.results;
    const int64_t tap_down = tap / across.taps, tap_across = tap % across.taps;
    int64_t source_row = down.SourceOf(h, tap_down);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t source = across.SourceOf(w, tap_across);
      const bool inside = first + i < all && source_row >= 0 && source >= 0;
      to[i] = inside ? data + memory_.offset(image, source_row * across.sources + source) : kZeros;
      if (++w < across.results) continue;
      w = 0;
      if (++h == down.results) h = 0, ++image;
      source_row = down.SourceOf(h, tap_down);
    }
  }
}

void Filters::Locate(int64_t, int64_t row, int64_t term, Runs* runs) const {
  if (along()) {
    const int64_t runs_of_tap = CeilDivide(in_, kRun);
    for (int64_t r = 0; r < kChunkRuns; ++r) {
      const int64_t run = term / kRun + r, tap = run / runs_of_tap;
      const int64_t channel = run % runs_of_tap * kRun;
      runs->length[r] = tap < taps_ ? std::min(kRun, in_ - channel) : 0;
      for (int64_t i = 0; i < kPanel; ++i)
        runs->at[r * kPanel + i] = tap < taps_ && row + i < out_
                                       ? data_ + ((row + i) * taps_ + tap) * in_ + channel
                                       : kZeros;
    }
    return;
  }
  const int64_t outputs = RoundUp(out_, kRun);
  for (int64_t r = 0; r < 2; ++r) {
    const int64_t channel = row + r * kRun;
    runs->length[r] = std::clamp<int64_t>(in_ - channel, 0, kRun);
    for (int64_t k = 0; k < kChunk; ++k) {
      const int64_t tap = (term + k) / outputs, o = (term + k) % outputs;
      runs->at[r * kChunk + k] = tap < taps_ && o < out_ && channel < in_
                                     ? data_ + (o * taps_ + tap) * in_ + channel
                                     : kZeros;
    }
  }
}

void ImageTarget::Store(int64_t, int64_t row, int64_t column, const float* sums) const {
  const int64_t pixels = height * width, rows = memory.lanes.images * pixels;
  for (int64_t i = 0; i < 2; ++i) {
    const int64_t first = row + i * kSide, count = std::min(kSide, rows - first);
    if (count <= 0) return;
    int64_t offsets[kSide];
    int64_t image = first / pixels, at = first % pixels;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t pixel =
          stride == 1 ? at : at / width * stride * memory.lanes.width + at % width * stride;
      offsets[k] = memory.offset(image, pixel);
      if (++at == pixels) at = 0, ++image;
    }
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t channel = column + j * kSide, run = channel / kRun;
      if (run >= memory.runs()) break;
      TilePlaces places;
      places.rows = count;
      places.columns = memory.run_length(run);
      places.first_step = 1;
      for (int64_t k = 0; k < count; ++k) {
        const int64_t offset = offsets[k] + run * memory.run_step;
        places.to[k] = data + offset;
        places.first[k] = bias ? bias + channel : nullptr;
        places.second[k] = added ? added + offset : nullptr;
      }
      StoreTile(sums + (2 * i + j) * kSums, places, finish);
    }
  }
}

void FilterTarget::Store(int64_t, int64_t row, int64_t column, const float* sums) const {
  const int64_t runs_of_tap = CeilDivide(in, kRun);
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t first = row + i * kSide, run = column / kRun + j, tap = run / runs_of_tap;
      const int64_t channel = run % runs_of_tap * kRun;
      TilePlaces places;
      places.rows = std::min(kSide, out - first);
      places.columns = std::min(kRun, in - channel);
      if (places.rows <= 0 || tap >= taps) continue;
      places.first_step = 0;
      for (int64_t k = 0; k < places.rows; ++k) {
        places.to[k] = data + ((first + k) * taps + tap) * in + channel;
        places.first[k] = places.second[k] = nullptr;
      }
      StoreTile(sums + (2 * i + j) * kSums, places, finish);
    }
}

}  // namespace singa::cpu::parts_product

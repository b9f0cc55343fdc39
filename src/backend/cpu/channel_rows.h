#pragma once

// Rows of images in layouts with channels innermost, moved from one image to another.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"

namespace singa::cpu {

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

/// A row of one of the images.
struct Row {
  int64_t image, row;
};

/// Copies `count` channels of the first `width` pixels of a row. Elements have so many bytes.
inline void MoveRow(const Side& from, Row source_row, const Side& to, Row target_row, int64_t count,
                    int64_t width, int64_t bytes) {
  for (int64_t c = 0; c < count;) {
    const int64_t run = std::min({from.LeftInBlock(c), to.LeftInBlock(c), count - c});
    const char* source = from.At(source_row.image, c, source_row.row, bytes);
    char* target = to.At(target_row.image, c, target_row.row, bytes);
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

/// Zeros what pads the channels of a row.
inline void ZeroPadding(const Side& side, Row row, int64_t bytes) {
  const Lanes& lanes = side.lanes;
  const int64_t last = lanes.blocks - 1;
  singa::ZeroPadding(lanes, lanes.filled(last),
                     side.At(row.image, last * lanes.lanes, row.row, bytes),
                     static_cast<size_t>(bytes));
}

/// Calls body(row) for all rows, in parallel.
template <class Body>
void ForRows(const Lanes& lanes, const Body& body) {
  ParallelFor(lanes.images * lanes.rows(), kParallelGrain / (lanes.width * lanes.channels) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) body(Row{i / lanes.rows(), i % lanes.rows()});
              });
}

}  // namespace singa::cpu

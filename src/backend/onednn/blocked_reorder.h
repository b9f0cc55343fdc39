#pragma once

// Moves elements between any two of oneDNN's blocked layouts. For pairs such as filters whose inner
// blocks do not divide one another (32 channels against 48, or blocks that the channels do not
// fill) oneDNN has only its reference reorder, which takes hundreds of times as long as this one.

#include <cstdint>
#include <vector>

#include "backend/onednn/engine.h"

namespace singa::onednn {

/// Of two descriptors of the same axes and type. Immutable.
class BlockedReorder {
 public:
  /// Whether it knows these: blocked formats of elements of 2 or 4 bytes.
  static bool Takes(const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  BlockedReorder(const dnnl::memory::desc& from, const dnnl::memory::desc& to);

  /// Writes all of `dst`, zeros where `to` pads. What `from` pads has to be zero.
  void Move(const void* src, void* dst) const;
  size_t bytes() const;

 private:
  /// Where the positions of an axis lie, in bytes from its start.
  struct Axis {
    std::vector<int64_t> from, to;
    int64_t size() const { return static_cast<int64_t>(from.size()); }
  };

  int64_t element_;  ///< bytes that lie side by side on both sides
  bool pairs_;       ///< of elements, along `inner_` on this side and along `outer_` on that
  bool pads_;
  size_t to_bytes_;
  // Innermost in `from` is inner_, in `to` outer_, or inner_ as well.
  Axis outer_, inner_;
  Axis rest_;  ///< all others
};

}  // namespace singa::onednn

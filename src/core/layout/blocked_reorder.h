#pragma once

// Copies elements between any two blocked layouts. For some pairs oneDNN has only its reference
// reorder, which takes hundreds of times as long: filters where the block size of one layout does
// not divide the other's (32 and 48 channels), or where channels do not fill the blocks.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/layout/blocked_layout.h"

namespace singa {

/// Why BlockedReorder does not support this pair of layouts (null: row-major); empty if it does.
std::string RefusesBlockedReorder(const LayoutPtr& from, const LayoutPtr& to);

/// A reorder between two placements of the same axes. Immutable.
class BlockedReorder {
 public:
  BlockedReorder(const Placement& from, const Placement& to, size_t element_bytes);

  /// Writes all of `dst`, including zeros in the padding of `to`. The padding of `from` must be
  /// zero.
  void Move(const void* src, void* dst) const;
  size_t bytes() const;

 private:
  /// Offsets in bytes of the positions along an axis.
  struct Axis {
    std::vector<int64_t> from, to;
    int64_t size() const { return static_cast<int64_t>(from.size()); }
  };

  int64_t element_;  ///< bytes that are contiguous in both placements
  bool pairs_;       ///< elements are adjacent in pairs, along inner_ in `from` and outer_ in `to`
  bool pads_;
  size_t to_bytes_;
  // inner_ is the innermost axis of `from`. outer_ is that of `to`, unless it is the same axis.
  Axis outer_, inner_;
  Axis rest_;  ///< all other axes together
};

}  // namespace singa

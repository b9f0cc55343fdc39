#pragma once

#include <algorithm>
#include <mutex>
#include <vector>

#include "core/hidden.h"
#include "singa/core/tensor.h"

namespace singa {

/// The layouts in which a block was wanted since it was written, the last one first. Threads that
/// read the same weights share them.
struct SINGA_HIDDEN Block::Copies {
  struct Copy {
    LayoutPtr layout;
    BlockPtr block;  ///< null while it was wanted once
  };
  static constexpr size_t kMost = 4;

  /// Whether it was wanted in this layout, which then comes first.
  bool Find(const LayoutPtr& layout) {
    const auto found = std::find_if(copies.begin(), copies.end(), [&](const Copy& copy) {
      return SameLayout(copy.layout, layout);
    });
    if (found == copies.end()) return false;
    std::rotate(copies.begin(), found, found + 1);
    return true;
  }

  std::mutex mutex;
  std::vector<Copy> copies;
};

/// `t.ToLayout(layout)` for a tensor that is read more often than written, such as a weight. Where
/// the same elements are wanted in that layout again, the second copy is kept beside the block of
/// `t` until that is written, moved, lent to NumPy or DLPack, or freed. Nothing is kept for views,
/// for memory that others own, and while a step is recorded: a graph keeps its own.
Tensor InKeptLayout(const Tensor& t, const LayoutPtr& layout);

}  // namespace singa

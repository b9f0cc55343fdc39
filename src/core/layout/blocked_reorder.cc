#include "core/layout/blocked_reorder.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/device/parallel.h"

namespace singa {
namespace {

/// A placement with the innermost block first and strides in bytes.
struct Blocked {
  struct Block {
    int64_t axis, size;
  };

  Blocked(const Placement& placement, size_t element_bytes)
      : dims(placement.dims.ToVector()),
        strides(placement.strides.ToVector()),
        element(static_cast<int64_t>(element_bytes)),
        padded_elements(placement.padded_elements()) {
    for (int64_t& stride : strides) stride *= element;
    for (auto block = placement.blocks.rbegin(); block != placement.blocks.rend(); ++block)
      if (block->size > 1) blocks.push_back({block->axis, block->size});
  }

  /// Combines `count` neighbouring elements of the innermost block into one.
  void Join(int64_t count) {
    const int64_t axis = blocks[0].axis;
    element *= count;
    padded_elements /= count;
    dims[axis] = (dims[axis] + count - 1) / count;
    blocks[0].size /= count;
    if (blocks[0].size == 1) blocks.erase(blocks.begin());
  }

  /// Offsets in bytes of the positions along an axis.
  std::vector<int64_t> Places(int64_t axis) const {
    std::vector<int64_t> places(static_cast<size_t>(dims[axis]));
    for (int64_t i = 0; i < dims[axis]; ++i) {
      int64_t left = i, step = element, place = 0;
      for (const Block& block : blocks) {
        if (block.axis == axis) {
          place += left % block.size * step;
          left /= block.size;
        }
        step *= block.size;
      }
      places[static_cast<size_t>(i)] = place + left * strides[axis];
    }
    return places;
  }

  int64_t elements() const {
    return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  }

  std::vector<int64_t> dims, strides;
  std::vector<Block> blocks;
  int64_t element, padded_elements;
};

/// The axis whose neighbouring elements are closest in memory.
int64_t Innermost(const Blocked& side) {
  if (!side.blocks.empty()) return side.blocks[0].axis;
  int64_t best = 0;
  for (int64_t axis = 0; axis < static_cast<int64_t>(side.dims.size()); ++axis)
    if (side.dims[best] == 1 || (side.dims[axis] > 1 && side.strides[axis] < side.strides[best]))
      best = axis;
  return best;
}

/// True if elements are adjacent in pairs.
bool InPairs(const std::vector<int64_t>& places, int64_t element) {
  for (size_t i = 0; i + 1 < places.size(); i += 2)
    if (places[i + 1] != places[i] + element) return false;
  return places.size() > 1;
}

// Edge of a tile of two axes. The cache lines of a tile fit into the first-level cache.
constexpr int64_t kTile = 64;

struct Places {
  const int64_t *from, *to;
  int64_t size;
};

template <int64_t kBytes>
SINGA_MULTI_ISA void MoveTile(const Places& outer, const Places& inner, const char* src,
                              char* dst) {
  for (int64_t o = 0; o < outer.size; ++o)
    for (int64_t i = 0; i < inner.size; ++i)
      std::memcpy(dst + outer.to[o] + inner.to[i], src + outer.from[o] + inner.from[i], kBytes);
}

void MoveTileOf(int64_t bytes, const Places& outer, const Places& inner, const char* src,
                char* dst) {
  for (int64_t o = 0; o < outer.size; ++o)
    for (int64_t i = 0; i < inner.size; ++i)
      std::memcpy(dst + outer.to[o] + inner.to[i], src + outer.from[o] + inner.from[i],
                  static_cast<size_t>(bytes));
}

/// For elements of half a Word that are adjacent in pairs, along `inner` in the source and along
/// `outer` in the destination: transposes two pairs at a time.
template <class Word>
SINGA_MULTI_ISA void MoveTileOfPairs(const Places& outer, const Places& inner, const char* src,
                                     char* dst) {
  constexpr int64_t kBytes = sizeof(Word) / 2;
  constexpr int kBits = 8 * kBytes;
  constexpr Word kLow = std::numeric_limits<Word>::max() >> kBits;
  int64_t o = 0;
  for (; o + 1 < outer.size; o += 2) {
    const char *first = src + outer.from[o], *second = src + outer.from[o + 1];
    char* to = dst + outer.to[o];
    int64_t i = 0;
    for (; i + 1 < inner.size; i += 2) {
      Word a, b;
      std::memcpy(&a, first + inner.from[i], sizeof(a));
      std::memcpy(&b, second + inner.from[i], sizeof(b));
      const auto low = static_cast<Word>((a & kLow) | (b << kBits));
      const auto high = static_cast<Word>((a >> kBits) | (b & ~kLow));
      std::memcpy(to + inner.to[i], &low, sizeof(low));
      std::memcpy(to + inner.to[i + 1], &high, sizeof(high));
    }
    if (i < inner.size) {
      std::memcpy(to + inner.to[i], first + inner.from[i], kBytes);
      std::memcpy(to + inner.to[i] + kBytes, second + inner.from[i], kBytes);
    }
  }
  const Places last{outer.from + o, outer.to + o, outer.size - o};
  MoveTile<kBytes>(last, inner, src, dst);
}

}  // namespace

std::string RefusesBlockedReorder(const LayoutPtr& from, const LayoutPtr& to) {
  const BlockedLayout *a = AsBlocked(from), *b = AsBlocked(to);
  if (!a && !b) return "neither layout is blocked";
  if ((from && !a) || (to && !b)) return "one layout is of another kind";
  // Grouped filters have one more axis; transposed filters have another order of axes.
  if (a && b && !(a->plain() == b->plain())) return "the layouts have different axes";
  return "";
}

BlockedReorder::BlockedReorder(const Placement& from, const Placement& to, size_t element_bytes)
    : to_bytes_(static_cast<size_t>(to.padded_elements()) * element_bytes) {
  Blocked a(from, element_bytes), b(to, element_bytes);
  // Elements that are adjacent in both placements are moved together, padding included.
  while (!a.blocks.empty() && !b.blocks.empty() && a.blocks[0].axis == b.blocks[0].axis) {
    const int64_t common = std::gcd(a.blocks[0].size, b.blocks[0].size);
    if (common == 1) break;
    a.Join(common);
    b.Join(common);
  }
  element_ = a.element;
  pads_ = b.elements() < b.padded_elements;
  const int64_t inner = Innermost(a);
  int64_t outer = Innermost(b);
  if (outer == inner) {  // use the longest of the other axes
    outer = inner == 0 ? 1 : 0;
    for (int64_t axis = 0; axis < static_cast<int64_t>(a.dims.size()); ++axis)
      if (axis != inner && a.dims[axis] > a.dims[outer]) outer = axis;
  }
  inner_ = {a.Places(inner), b.Places(inner)};
  outer_ = {{0}, {0}};
  if (outer < static_cast<int64_t>(a.dims.size())) outer_ = {a.Places(outer), b.Places(outer)};
  const bool has_word = element_ == 1 || element_ == 2 || element_ == 4;
  pairs_ = has_word && InPairs(inner_.from, element_) && InPairs(outer_.to, element_);
  rest_ = {{0}, {0}};
  for (int64_t axis = 0; axis < static_cast<int64_t>(a.dims.size()); ++axis) {
    if (axis == inner || axis == outer) continue;
    const Axis more{a.Places(axis), b.Places(axis)};
    Axis all;
    for (int64_t i = 0; i < rest_.size(); ++i) {
      for (int64_t j = 0; j < more.size(); ++j) {
        all.from.push_back(rest_.from[i] + more.from[j]);
        all.to.push_back(rest_.to[i] + more.to[j]);
      }
    }
    rest_ = std::move(all);
  }
}

size_t BlockedReorder::bytes() const {
  const int64_t places = outer_.size() + inner_.size() + rest_.size();
  return sizeof(*this) + static_cast<size_t>(2 * places) * sizeof(int64_t);
}

void BlockedReorder::Move(const void* src, void* dst) const {
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  if (pads_) {
    constexpr int64_t kPiece = 4096;
    const auto size = static_cast<int64_t>(to_bytes_);
    ParallelFor((size + kPiece - 1) / kPiece, kParallelGrain * 4 / kPiece,
                [&](int64_t begin, int64_t end) {
                  const int64_t last = std::min(end * kPiece, size);
                  std::memset(to + begin * kPiece, 0, static_cast<size_t>(last - begin * kPiece));
                });
  }
  const int64_t down = (outer_.size() + kTile - 1) / kTile;
  const int64_t across = (inner_.size() + kTile - 1) / kTile;
  const int64_t work = std::min(outer_.size(), kTile) * std::min(inner_.size(), kTile);
  ParallelFor(rest_.size() * down * across, kParallelGrain / (work + 1) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t piece = begin; piece < end; ++piece) {
                  const int64_t r = piece % rest_.size(), tile = piece / rest_.size();
                  const auto part = [](const Axis& axis, int64_t first) {
                    return Places{axis.from.data() + first, axis.to.data() + first,
                                  std::min(kTile, axis.size() - first)};
                  };
                  const Places outer = part(outer_, tile / across * kTile);
                  const Places inner = part(inner_, tile % across * kTile);
                  const char* s = from + rest_.from[r];
                  char* d = to + rest_.to[r];
                  if (pairs_ && element_ == 1) {
                    MoveTileOfPairs<uint16_t>(outer, inner, s, d);
                  } else if (pairs_ && element_ == 2) {
                    MoveTileOfPairs<uint32_t>(outer, inner, s, d);
                  } else if (pairs_) {
                    MoveTileOfPairs<uint64_t>(outer, inner, s, d);
                  } else if (element_ == 2) {
                    MoveTile<2>(outer, inner, s, d);
                  } else if (element_ == 4) {
                    MoveTile<4>(outer, inner, s, d);
                  } else if (element_ == 64) {
                    MoveTile<64>(outer, inner, s, d);
                  } else {
                    MoveTileOf(element_, outer, inner, s, d);
                  }
                }
              });
}

}  // namespace singa

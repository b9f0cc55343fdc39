#include "core/layout/blocked_layout.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

#include "core/layout/blocked_reorder.h"
#include "core/tensor/round_up.h"

namespace singa {
namespace {

const char* DefaultLetters(int rank) {
  switch (rank) {
    case 2:
      return "nc";
    case 3:
      return "ncw";
    case 4:
      return "nchw";
    case 5:
      return "ncdhw";
    default:
      return "abcdefghijkl";
  }
}

/// The letters of a filter's axes.
const char* FilterLetters(int rank) { return rank == 3 ? "oiw" : rank == 4 ? "oihw" : "oidhw"; }
const char* GroupedFilterLetters(int rank) {
  return rank == 3 ? "goiw" : rank == 4 ? "goihw" : "goidhw";
}

size_t HashOf(const std::vector<int64_t>& key, size_t bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15u ^ bytes;
  for (int64_t word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

Placement Placement::Of(const Shape& dims, const std::vector<int>& order,
                        const std::vector<Block>& blocks) {
  Placement result{dims, dims, dims, blocks};
  Shape outer = dims;  // number of positions, or of blocks, along each axis
  int64_t stride = 1;
  for (const Block& block : blocks) stride *= block.size;
  for (int axis = 0; axis < dims.rank(); ++axis) {
    int64_t size = 1;
    for (const Block& block : blocks)
      if (block.axis == axis) size *= block.size;
    result.padded[axis] = RoundUp(dims[axis], size);
    outer[axis] = result.padded[axis] / size;
  }
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    result.strides[*axis] = stride;
    stride *= outer[*axis];
  }
  return result;
}

Placement Placement::RowMajor(const Shape& dims) {
  return {dims, dims, ContiguousStrides(dims), {}};
}

std::vector<int64_t> Placement::Key() const {
  std::vector<int64_t> key(dims.begin(), dims.end());
  key.insert(key.end(), padded.begin(), padded.end());
  Shape outer = padded;
  for (const Block& block : blocks) {
    key.push_back(block.size);
    key.push_back(block.axis);
    outer[block.axis] /= block.size;
  }
  for (int axis = 0; axis < dims.rank(); ++axis) key.push_back(outer[axis] > 1 ? strides[axis] : 0);
  return key;
}

std::string Placement::Tag(const char* letters) const {
  const int rank = dims.rank();
  if (!letters) letters = DefaultLetters(rank);
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return strides[a] > strides[b]; });
  std::string tag;
  for (int axis : order) {
    const bool blocked = std::any_of(blocks.begin(), blocks.end(),
                                     [&](const Block& block) { return block.axis == axis; });
    tag += blocked ? static_cast<char>(letters[axis] - 'a' + 'A') : letters[axis];
  }
  for (const Block& block : blocks) tag += std::to_string(block.size) + letters[block.axis];
  return tag;
}

std::optional<Placement> Placement::FromTag(std::string_view tag, const Shape& dims,
                                            const char* letters) {
  constexpr int64_t kMostInBlocks = int64_t{1} << 16;
  const std::string_view names(letters ? letters : DefaultLetters(dims.rank()));
  std::vector<int> order;
  std::vector<bool> cut(static_cast<size_t>(dims.rank()));
  std::vector<Block> blocks;
  int64_t size = 0, in_blocks = 1;  // of the current block, and of all blocks
  for (const char c : tag) {
    if (c >= '0' && c <= '9') {
      size = size * 10 + (c - '0');
      if (size > kMostInBlocks) return std::nullopt;
      continue;
    }
    const bool upper = c >= 'A' && c <= 'Z';
    const size_t found = names.find(upper ? static_cast<char>(c - 'A' + 'a') : c);
    if (found >= static_cast<size_t>(dims.rank())) return std::nullopt;
    const int axis = static_cast<int>(found);
    if (size > 0) {
      in_blocks *= size;
      if (upper || !cut[found] || in_blocks > kMostInBlocks) return std::nullopt;
      blocks.push_back({axis, std::exchange(size, 0)});
    } else {
      if (!blocks.empty()) return std::nullopt;
      if (std::find(order.begin(), order.end(), axis) != order.end()) return std::nullopt;
      order.push_back(axis);
      cut[found] = upper;
    }
  }
  if (size > 0 || order.size() != static_cast<size_t>(dims.rank())) return std::nullopt;
  for (const Block& block : blocks) cut[static_cast<size_t>(block.axis)] = false;
  if (std::find(cut.begin(), cut.end(), true) != cut.end()) return std::nullopt;
  return Of(dims, order, blocks);
}

BlockedLayout::BlockedLayout(Placement placement, Placement plain, const Shape& shape, DType dtype,
                             const char* letters)
    : OpaqueLayout(shape, dtype),
      placement_(std::move(placement)),
      plain_(std::move(plain)),
      letters_(letters),
      key_(placement_.Key()),
      bytes_(static_cast<size_t>(placement_.padded_elements()) * SizeOf(dtype)),
      tag_(placement_.Tag(letters)) {
  const std::vector<int64_t> other = plain_.Key();
  key_.insert(key_.end(), other.begin(), other.end());
  hash_ = HashOf(key_, bytes_);
}

bool BlockedLayout::Equals(const OpaqueLayout& other) const {
  if (shape() != other.shape() || dtype() != other.dtype()) return false;
  const auto* blocked = dynamic_cast<const BlockedLayout*>(&other);
  return blocked && hash_ == blocked->hash_ && key_ == blocked->key_;
}

LayoutPtr BlockedLayout::WithType(DType wanted) const {
  const auto in_both = [](DType type) { return type == kFloat32 || type == kBFloat16; };
  if (!in_both(wanted) || !in_both(dtype())) return nullptr;
  return std::make_shared<BlockedLayout>(placement_, plain_, shape(), wanted, letters_);
}

std::optional<Strides> BlockedLayout::strides() const {
  if (!placement_.blocks.empty() || placement_.dims != shape()) return std::nullopt;
  if (!(plain_ == Placement::RowMajor(shape()))) return std::nullopt;
  return placement_.strides;
}

void BlockedLayout::Pack(const void* plain, void* opaque) const {
  BlockedReorder(plain_, placement_, SizeOf(dtype())).Move(plain, opaque);
}

void BlockedLayout::Unpack(const void* opaque, void* plain) const {
  BlockedReorder(placement_, plain_, SizeOf(dtype())).Move(opaque, plain);
}

namespace {

/// The layout of a tensor of this shape, which is row-major on the placement's axes when plain.
LayoutPtr MakeFor(const Shape& shape, const Placement& placement, DType dtype,
                  const char* letters) {
  if (placement.padded_elements() == 0) return nullptr;
  Placement plain = Placement::RowMajor(placement.dims);
  if (placement == plain) return nullptr;
  return std::make_shared<BlockedLayout>(placement, std::move(plain), shape, dtype, letters);
}

}  // namespace

LayoutPtr MakeBlockedLayout(const Placement& placement, DType dtype, const char* letters) {
  return MakeFor(placement.dims, placement, dtype, letters);
}

std::string NameOf(const BlockedLayout& layout) {
  const Shape& dims = layout.placement().dims;
  const bool grouped = dims.rank() == layout.shape().rank() + 1;
  return layout.ToString() + (grouped ? "/" + std::to_string(dims[0]) : "");
}

LayoutPtr BlockedLayoutNamed(const std::string& name, const Shape& shape, DType dtype) {
  const size_t slash = name.find('/');
  const std::string tag = name.substr(0, slash);
  const bool filter = tag.find_first_of("oO") != std::string::npos;
  const char* letters = filter ? FilterLetters(shape.rank()) : nullptr;
  if (shape.rank() == 0 || shape.Count() == 0) return nullptr;
  if (filter && (shape.rank() < 3 || shape.rank() > 5)) return nullptr;
  Shape dims = shape;
  if (slash != std::string::npos) {
    const char* end = name.data() + name.size();
    int64_t groups = 0;
    const auto parsed = std::from_chars(name.data() + slash + 1, end, groups);
    if (!filter || parsed.ec != std::errc() || parsed.ptr != end) return nullptr;
    if (groups < 1 || shape[0] % groups != 0) return nullptr;
    letters = GroupedFilterLetters(shape.rank());
    std::vector<int64_t> sizes = shape.ToVector();
    sizes[0] /= groups;
    sizes.insert(sizes.begin(), groups);
    dims = Shape(sizes);
  }
  const std::optional<Placement> placement = Placement::FromTag(tag, dims, letters);
  if (!placement) return nullptr;
  CheckShape("layout", placement->padded, SizeOf(dtype));
  return MakeFor(shape, *placement, dtype, letters);
}

const BlockedLayout* AsBlocked(const LayoutPtr& layout) {
  return dynamic_cast<const BlockedLayout*>(layout.get());
}

}  // namespace singa

#pragma once

// Blocked layouts, described without a vendor's types, for our own kernels.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// Positions of the elements of a dense tensor in memory. An axis may be split into blocks; the
/// blocks of all axes are the innermost dimensions. Strides are in elements.
struct Placement {
  struct Block {
    int axis;
    int64_t size;
    bool operator==(const Block&) const = default;
  };

  Shape dims;
  Shape padded;               ///< dims, rounded up to whole blocks
  Strides strides;            ///< between positions of an axis; of a split axis: between blocks
  std::vector<Block> blocks;  ///< outermost first

  /// `order` lists the axes and `blocks` the blocks, outermost first: dims NCHW, order {0, 1, 2, 3}
  /// and blocks {{1, 16}} give nChw16c.
  static Placement Of(const Shape& dims, const std::vector<int>& order,
                      const std::vector<Block>& blocks = {});
  static Placement RowMajor(const Shape& dims);

  int64_t elements() const { return dims.Count(); }
  int64_t padded_elements() const { return padded.Count(); }
  /// The placement with this Tag(). Returns nothing if an axis is missing or repeated, or if the
  /// blocks have more than 2^16 elements.
  static std::optional<Placement> FromTag(std::string_view tag, const Shape& dims,
                                          const char* letters = nullptr);
  /// Numbers that determine the position of each element: placements with equal keys are equal. The
  /// stride of an axis with a single position or block has no effect and is 0 in the key.
  std::vector<int64_t> Key() const;
  bool operator==(const Placement& other) const { return Key() == other.Key(); }
  /// oneDNN's tag: the axes, outermost first and in upper case if split, then the blocks. `letters`
  /// has a letter for each axis; null means "nchw" for four axes, "ncdhw" for five, and so on.
  std::string Tag(const char* letters = nullptr) const;
};

/// A layout described by a Placement. Its axes may differ from the tensor's: a grouped filter has
/// one more, and a transposed filter has them in another order. `plain` is the placement of the
/// row-major tensor in terms of the layout's axes.
class BlockedLayout : public OpaqueLayout {
 public:
  BlockedLayout(Placement placement, Placement plain, const Shape& shape, DType dtype,
                const char* letters);

  const Placement& placement() const { return placement_; }
  const Placement& plain() const { return plain_; }
  const char* letters() const { return letters_; }

  const char* backend() const override { return "cpu"; }
  size_t bytes() const override { return bytes_; }
  size_t hash() const override { return hash_; }
  bool Equals(const OpaqueLayout& other) const override;
  std::string ToString() const override { return tag_; }
  /// For float32 and bfloat16; null for other types.
  LayoutPtr WithType(DType dtype) const override;
  std::optional<Strides> strides() const override;
  void Pack(const void* plain, void* opaque) const override;
  void Unpack(const void* opaque, void* plain) const override;

 private:
  Placement placement_, plain_;
  const char* letters_;
  std::vector<int64_t> key_;
  size_t bytes_, hash_;
  std::string tag_;
};

/// The layout of `placement`, which has the tensor's axes; null if it is row-major or has no
/// elements.
LayoutPtr MakeBlockedLayout(const Placement& placement, DType dtype, const char* letters = nullptr);
/// The layout's tag; for a grouped filter, the number of groups behind it: "gOIhw4i4o/2".
std::string NameOf(const BlockedLayout& layout);
/// The layout of a tensor of this shape with this NameOf(); null if there is none. A tag with the
/// letter o is a filter's (oiw, oihw or oidhw; with g in front, a grouped one's).
LayoutPtr BlockedLayoutNamed(const std::string& name, const Shape& shape, DType dtype);
/// The layout as a BlockedLayout; null if it is plain or another kind of layout.
const BlockedLayout* AsBlocked(const LayoutPtr& layout);

}  // namespace singa

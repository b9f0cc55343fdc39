#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "singa/core/dtype.h"
#include "singa/core/export.h"
#include "singa/core/shape.h"

namespace singa {

/// A memory layout of a whole dense tensor other than row-major, such as channels-last or blocks of
/// 8 or 16 channels. Only the backend that made it accesses its elements directly. Other code can
/// query its size, compare it, and convert it to row-major order. Immutable and shared. Elements
/// that pad the tensor to a multiple of the block size are zero after every operation.
class SINGA_API OpaqueLayout {
 public:
  OpaqueLayout(const Shape& shape, DType dtype) : shape_(shape), dtype_(dtype) {}
  virtual ~OpaqueLayout() = default;
  OpaqueLayout(const OpaqueLayout&) = delete;
  OpaqueLayout& operator=(const OpaqueLayout&) = delete;

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }

  /// Name of the backend that made the layout, such as "onednn".
  virtual const char* backend() const = 0;
  /// Size of a Block in this layout, in bytes, including padding.
  virtual size_t bytes() const = 0;
  /// Whether elements pad the tensor.
  bool is_padded() const { return bytes() != static_cast<size_t>(shape_.Count()) * SizeOf(dtype_); }
  virtual size_t hash() const = 0;
  virtual bool Equals(const OpaqueLayout& other) const = 0;
  /// The common tag if there is one, such as "nChw16c" or "nhwc".
  virtual std::string ToString() const = 0;

  /// The same layout for another float type: equal shape, positions and padding. Null if the
  /// backend has none.
  virtual std::shared_ptr<const OpaqueLayout> WithType(DType) const { return nullptr; }

  /// The strides of the tensor's axes, in elements, if the layout only has these in another order,
  /// as channels-last. Nothing for layouts with blocks or padding.
  virtual std::optional<Strides> strides() const { return std::nullopt; }

  /// Pack copies row-major elements into this layout and fills the padding with zeros; Unpack
  /// copies them back.
  virtual void Pack(const void* plain, void* opaque) const = 0;
  virtual void Unpack(const void* opaque, void* plain) const = 0;

 private:
  Shape shape_;
  DType dtype_;
};

/// Null means plain: row-major, or strided.
using LayoutPtr = std::shared_ptr<const OpaqueLayout>;

/// Whether both are plain, or equal.
inline bool SameLayout(const LayoutPtr& a, const LayoutPtr& b) {
  return a == b || (a && b && a->Equals(*b));
}

/// Layouts of results. kAuto, the default: an operation may return its result in an opaque layout.
/// kPlain: results are always plain, for comparison. Environment: SINGA_LAYOUT=plain.
enum class LayoutMode : int { kAuto = 0, kPlain = 1 };
/// Sets the mode of all threads.
SINGA_API void SetLayoutMode(LayoutMode mode);
/// The mode in force.
SINGA_API LayoutMode GetLayoutMode();

/// "plain" for null, else the layout's tag.
SINGA_API std::string LayoutName(const LayoutPtr& layout);

}  // namespace singa

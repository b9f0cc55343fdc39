#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "singa/core/dtype.h"
#include "singa/core/export.h"
#include "singa/core/shape.h"

namespace singa {

/// How the elements of one dense logical tensor lie in a Block when that is not row-major: blocked
/// by 8 or 16 channels, channels-last ... Only the backend that made it reads it; everyone else can
/// ask for its size, compare it, and turn it back into row-major order. Immutable and shared.
/// Elements that pad the tensor up to the block size are zero after every operation.
class SINGA_API OpaqueLayout {
 public:
  OpaqueLayout(const Shape& shape, DType dtype) : shape_(shape), dtype_(dtype) {}
  virtual ~OpaqueLayout() = default;
  OpaqueLayout(const OpaqueLayout&) = delete;
  OpaqueLayout& operator=(const OpaqueLayout&) = delete;

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }

  /// Name of the backend that made it, such as "onednn".
  virtual const char* backend() const = 0;
  /// Bytes that a Block needs, padding included.
  virtual size_t bytes() const = 0;
  virtual size_t hash() const = 0;
  virtual bool Equals(const OpaqueLayout& other) const = 0;
  /// The field's tag where there is one: "nChw16c", "nhwc" ...
  virtual std::string ToString() const = 0;

  /// The same places for elements of another float type, as many of them; null where the backend
  /// has no such layout.
  virtual std::shared_ptr<const OpaqueLayout> WithType(DType) const { return nullptr; }

  /// Copies row-major elements into this layout (writing zeros into the padding), and back.
  virtual void Pack(const void* plain, void* opaque) const = 0;
  virtual void Unpack(const void* opaque, void* plain) const = 0;

 private:
  Shape shape_;
  DType dtype_;
};

/// Null means plain: row-major with strides.
using LayoutPtr = std::shared_ptr<const OpaqueLayout>;

inline bool SameLayout(const LayoutPtr& a, const LayoutPtr& b) {
  return a == b || (a && b && a->Equals(*b));
}

/// Whether operations may leave their results in layouts of their own: kAuto, the default, or not
/// at all: kPlain, for comparison. Environment: SINGA_LAYOUT=plain.
enum class LayoutMode : int { kAuto = 0, kPlain = 1 };
SINGA_API void SetLayoutMode(LayoutMode mode);
SINGA_API LayoutMode GetLayoutMode();

/// "plain", or the opaque layout's tag.
SINGA_API std::string LayoutName(const LayoutPtr& layout);

}  // namespace singa

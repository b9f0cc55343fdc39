#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "singa/core/block.h"
#include "singa/core/dtype.h"
#include "singa/core/error.h"
#include "singa/core/export.h"
#include "singa/core/shape.h"

namespace singa {

/// A Block with a shape, element type, strides and offset. Cheap to copy; copies and views share
/// the Block. A tensor without a Block is empty: it stands for "no bias" or "gradient not wanted".
///
/// A Block in an opaque layout holds exactly one whole tensor. Taking a view of it first converts
/// it to plain.
class SINGA_API Tensor {
 public:
  Tensor() = default;
  /// An uninitialised tensor; a null device means the default CPU. Raises std::invalid_argument if
  /// a dimension is negative or the size overflows, and OutOfMemory.
  explicit Tensor(const Shape& shape, DevicePtr device = nullptr, DataType dtype = kFloat32);
  /// An uninitialised tensor in an opaque layout, with the layout's shape and type.
  Tensor(DevicePtr device, const LayoutPtr& layout);
  /// A view of an existing block; `offset` is in elements. Raises std::invalid_argument if an
  /// element lies outside the block.
  Tensor(BlockPtr block, const Shape& shape, const Strides& strides, int64_t offset,
         DataType dtype);

  bool empty() const { return block_ == nullptr; }
  const Shape& shape() const { return shape_; }
  int64_t shape(int axis) const;
  const Strides& strides() const { return strides_; }
  int64_t offset() const { return offset_; }
  DataType data_type() const { return dtype_; }
  int rank() const { return shape_.rank(); }
  /// Number of elements; 0 for an empty tensor.
  int64_t size() const { return block_ ? shape_.Count() : 0; }
  /// Size of the elements in bytes, without the padding of an opaque layout.
  int64_t bytes() const { return size() * static_cast<int64_t>(SizeOf(dtype_)); }
  /// Null for an empty tensor.
  DevicePtr device() const { return block_ ? block_->device() : nullptr; }
  const BlockPtr& block() const { return block_; }
  uint64_t version() const { return block_ ? block_->version() : 0; }

  /// Null if plain.
  const LayoutPtr& layout() const;
  bool is_blocked() const { return layout() != nullptr; }
  /// Row-major, dense and plain.
  bool is_contiguous() const;

  /// Address of the first element (plain) or of the block (opaque). For kernels, which know the
  /// layout.
  void* raw_data() const {
    return static_cast<char*>(block_->data()) + offset_ * static_cast<int64_t>(SizeOf(dtype_));
  }

  // Views. They share the block; an opaque block is first converted to plain. They raise
  // std::invalid_argument for arguments that do not fit the shape.
  /// Permutes the axes; by default reverses them. Of a channels-last image it is a view of a copy
  /// in the same order, so that the image keeps its layout.
  Tensor Transpose(const std::vector<int64_t>& axes = {}) const;
  /// Broadcasts to `shape` by NumPy's rules; new and repeated axes have stride 0.
  Tensor Broadcast(const Shape& shape) const;
  /// The slice start:stop:step along one axis, with Python's rules for negative and out-of-range
  /// values. `step` may be negative, but not 0.
  Tensor SliceAxis(int64_t axis, int64_t start, int64_t stop, int64_t step = 1) const;
  /// Removes `axes`, which must have length 1; by default all axes of length 1.
  Tensor Squeeze(const std::vector<int64_t>& axes = {}) const;
  /// Inserts axes of length 1 at the positions `axes` of the result.
  Tensor Unsqueeze(const std::vector<int64_t>& axes) const;
  /// One dimension may be -1, which stands for the rest. A view if the strides allow it, else a
  /// copy.
  Tensor Reshape(const Shape& shape) const;

  /// The same view of another block, which has the same size and layout.
  Tensor On(const BlockPtr& block) const {
    return Tensor(block, shape_, strides_, offset_, dtype_);
  }

  // Copies.
  Tensor Clone() const;       ///< a plain, contiguous copy in its own block
  Tensor Contiguous() const;  ///< this tensor if it is contiguous and plain, else Clone()
  /// Converts to `dtype`; returns this tensor if it already has that type. Float to integer
  /// truncates. A conversion between float types keeps an opaque layout if the backend has it for
  /// both.
  Tensor AsType(DataType dtype) const;
  Tensor ToDevice(DevicePtr device) const;  ///< this tensor if it is already on `device`
  /// The same values in plain layout, with any strides; this tensor if it is plain. Does not change
  /// the block. For readers that follow strides.
  Tensor Plain() const;
  /// The same values in `layout` (null: row-major, without gaps); this tensor if it lies so, else a
  /// new one. A reorder is counted. For readers that take elements as they lie in memory. Raises
  /// std::invalid_argument if the layout has another shape or type.
  Tensor ToLayout(const LayoutPtr& layout) const;

  // Writes in place. They increment the version; an opaque block is converted to plain if the write
  // needs it.
  /// Raises std::invalid_argument if an integer type cannot hold the whole part of `value`.
  void Fill(double value);
  /// Copies elementwise, with broadcasting and type conversion, also between devices.
  void CopyFrom(const Tensor& source);
  /// Copies `bytes` of row-major data from host memory to `byte_offset`. Raises
  /// std::invalid_argument if this tensor is not contiguous or the data does not fit.
  void CopyFromHost(const void* data, size_t bytes, size_t byte_offset = 0);
  /// Copies all elements to host memory in row-major order. Raises std::invalid_argument unless
  /// `bytes` is bytes().
  void CopyToHost(void* data, size_t bytes) const;

  /// The element of a tensor of size 1. Raises std::invalid_argument for other sizes.
  double Item() const;
  /// For messages: "(2, 3) float32 on cpu".
  std::string ToString() const;

 private:
  BlockPtr block_;
  Shape shape_;
  Strides strides_;
  int64_t offset_ = 0;
  DataType dtype_ = kFloat32;
};

/// A tensor filled with `value`, on the CPU unless a device is given.
SINGA_API Tensor Full(const Shape& shape, double value, DevicePtr device = nullptr,
                      DataType dtype = kFloat32);

#ifndef SWIG
/// Prints what ToString returns.
SINGA_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
#endif

}  // namespace singa

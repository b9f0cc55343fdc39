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

/// Block + shape + element type + strides + offset. Cheap to copy; copies and views share the
/// Block. A tensor without a block is empty ("no bias", "gradient not asked for").
///
/// A Block in an opaque layout only ever carries whole tensors: taking a view first makes it plain.
class SINGA_API Tensor {
 public:
  Tensor() = default;
  /// Not initialised. Device: the default CPU when null. Raises std::invalid_argument (negative or
  /// overflowing shape) and OutOfMemory.
  explicit Tensor(const Shape& shape, DevicePtr device = nullptr, DataType dtype = kFloat32);
  /// In an opaque layout, whose shape and type it takes.
  Tensor(DevicePtr device, const LayoutPtr& layout);
  /// A view of an existing block. `offset` in elements.
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
  /// Bytes of the elements in plain layout.
  int64_t bytes() const { return size() * static_cast<int64_t>(SizeOf(dtype_)); }
  /// Null for an empty tensor.
  DevicePtr device() const { return block_ ? block_->device() : nullptr; }
  const BlockPtr& block() const { return block_; }
  uint64_t version() const { return block_ ? block_->version() : 0; }

  /// Null for plain.
  const LayoutPtr& layout() const;
  bool is_blocked() const { return layout() != nullptr; }
  /// Row-major, dense and plain.
  bool is_contiguous() const;

  /// First element (plain), or the block's start (opaque). For kernels, which know the layout.
  void* raw_data() const {
    return static_cast<char*>(block_->data()) + offset_ * static_cast<int64_t>(SizeOf(dtype_));
  }

  // Views. They share the block; an opaque block is made plain first. Each raises
  // std::invalid_argument.
  Tensor Transpose(const std::vector<int64_t>& axes = {}) const;  ///< default: axes reversed
  Tensor Broadcast(const Shape& shape) const;                     ///< NumPy's rules, stride 0
  /// start:stop:step along one axis, as Python slices it (negative values and clipping included;
  /// step != 0, negative steps walk backwards).
  Tensor SliceAxis(int64_t axis, int64_t start, int64_t stop, int64_t step = 1) const;
  Tensor Squeeze(const std::vector<int64_t>& axes = {}) const;
  Tensor Unsqueeze(const std::vector<int64_t>& axes) const;
  /// One dimension may be -1. A view where strides allow it, else a copy.
  Tensor Reshape(const Shape& shape) const;

  /// The same view of another block, which is as large and lies alike.
  Tensor On(const BlockPtr& block) const {
    return Tensor(block, shape_, strides_, offset_, dtype_);
  }

  // Copies.
  Tensor Clone() const;       ///< plain and contiguous, own block
  Tensor Contiguous() const;  ///< itself when contiguous and plain, else Clone()
  /// Itself when of that type; float to integer truncates. Float types keep an opaque layout where
  /// its backend has it for both.
  Tensor AsType(DataType dtype) const;
  Tensor ToDevice(DevicePtr device) const;  ///< itself when there already
  /// Same values in plain layout (itself when plain); does not change the block.
  Tensor Plain() const;
  /// Same values in `layout` (null: plain), as a new tensor unless it lies so already. Counted as a
  /// reorder.
  Tensor ToLayout(const LayoutPtr& layout) const;

  // In place; an opaque block is made plain first where the write needs it; version goes up.
  void Fill(double value);
  /// Elementwise copy with broadcast and conversion of type, between devices too.
  void CopyFrom(const Tensor& source);
  /// Copies `bytes` of plain data from or to host memory; the tensor has to be contiguous for the
  /// first.
  void CopyFromHost(const void* data, size_t bytes, size_t byte_offset = 0);
  void CopyToHost(void* data, size_t bytes) const;

  /// The only element of a tensor of size 1.
  double Item() const;
  /// "(2, 3) float32 on cpu" for messages.
  std::string ToString() const;

 private:
  BlockPtr block_;
  Shape shape_;
  Strides strides_;
  int64_t offset_ = 0;
  DataType dtype_ = kFloat32;
};

/// Uninitialised tensor like `t`: same shape, type and device, plain.
SINGA_API Tensor EmptyLike(const Tensor& t);
SINGA_API Tensor Full(const Shape& shape, double value, DevicePtr device = nullptr,
                      DataType dtype = kFloat32);

#ifndef SWIG
SINGA_API std::ostream& operator<<(std::ostream& out, const Tensor& tensor);
#endif

}  // namespace singa

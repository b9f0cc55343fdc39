#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// Maximum number of dimensions of a tensor.
inline constexpr int kMaxRank = 12;

/// Up to kMaxRank integers, stored inline: copying a shape never allocates.
class SINGA_API Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(const std::vector<int64_t>& dims);
  /// `rank` dimensions, all equal to `value`. Raises std::invalid_argument if rank > kMaxRank.
  static Shape Filled(int rank, int64_t value);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t& operator[](int i) { return dims_[i]; }
  const int64_t* begin() const { return dims_; }
  const int64_t* end() const { return dims_ + rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t back() const { return dims_[rank_ - 1]; }

  void push_back(int64_t dim);
  void insert(int axis, int64_t dim);
  void erase(int axis);

  /// Product of the dimensions; 1 for rank 0. Does not check for overflow: creating a tensor does.
  int64_t Count() const;
  /// Product of dimensions [from, to).
  int64_t Count(int from, int to) const;
  std::vector<int64_t> ToVector() const { return {begin(), end()}; }
  /// "(2, 3, 8, 8)", as Python prints it.
  std::string ToString() const;

  bool operator==(const Shape& other) const;
  bool operator!=(const Shape& other) const { return !(*this == other); }

 private:
  int rank_ = 0;
  int64_t dims_[kMaxRank] = {};
};

/// Distance between neighbouring elements along each axis, in elements; 0 along a broadcast axis.
using Strides = Shape;

#ifndef SWIG
/// Prints (2, 3).
SINGA_API std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Row-major strides of a dense tensor.
SINGA_API Strides ContiguousStrides(const Shape& shape);

/// True if (shape, strides) is dense and row-major. Strides of axes of length 1 are ignored.
SINGA_API bool IsContiguous(const Shape& shape, const Strides& strides);

/// `axis`, or `axis + rank` if it is negative. Raises std::invalid_argument, naming `op`, if `axis`
/// is outside [-rank, rank).
SINGA_API int NormalizeAxis(const char* op, int64_t axis, int rank);

/// The shape to which `a` and `b` broadcast, by NumPy's rules. Raises std::invalid_argument, naming
/// `op`, if they do not broadcast.
SINGA_API Shape BroadcastShapes(const char* op, const Shape& a, const Shape& b);

/// Raises std::invalid_argument, naming `op`, if a dimension is negative or the size in bytes, with
/// zeros counted as 1, exceeds 2^62.
SINGA_API void CheckShape(const char* op, const Shape& shape, size_t element_size);
#endif

}  // namespace singa

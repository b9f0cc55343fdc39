#include "singa/core/shape.h"

#include <algorithm>
#include <atomic>
#include <ostream>

#include "singa/core/environment.h"
#include "singa/core/error.h"
#include "singa/core/layout.h"

namespace singa {

Shape::Shape(std::initializer_list<int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  Check(dims.size() <= kMaxRank, "shape", "more than ", kMaxRank, " dimensions: ", dims.size());
  for (int i = 0; i < rank_; ++i) dims_[i] = dims.begin()[i];
}

Shape::Shape(const std::vector<int64_t>& dims) {
  Check(dims.size() <= kMaxRank, "shape", "more than ", kMaxRank, " dimensions: ", dims.size());
  for (int64_t dim : dims) dims_[rank_++] = dim;
}

Shape Shape::Filled(int rank, int64_t value) {
  Check(rank >= 0 && rank <= kMaxRank, "shape", "rank must be in [0, ", kMaxRank, "], got ", rank);
  Shape shape;
  shape.rank_ = rank;
  std::fill_n(shape.dims_, rank, value);
  return shape;
}

void Shape::push_back(int64_t dim) { insert(rank_, dim); }

void Shape::insert(int axis, int64_t dim) {
  Check(rank_ < kMaxRank, "shape", "more than ", kMaxRank, " dimensions");
  std::copy_backward(dims_ + axis, dims_ + rank_, dims_ + rank_ + 1);
  dims_[axis] = dim;
  ++rank_;
}

void Shape::erase(int axis) {
  std::copy(dims_ + axis + 1, dims_ + rank_, dims_ + axis);
  --rank_;
}

int64_t Shape::Count() const { return Count(0, rank_); }

int64_t Shape::Count(int from, int to) const {
  int64_t count = 1;
  for (int i = from; i < to; ++i) count *= dims_[i];
  return count;
}

std::string Shape::ToString() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[i]);
  }
  return text + (rank_ == 1 ? ",)" : ")");
}

bool Shape::operator==(const Shape& other) const {
  if (rank_ != other.rank_) return false;
  for (int i = 0; i < rank_; ++i)  // shorter than a call of memcmp
    if (dims_[i] != other.dims_[i]) return false;
  return true;
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.ToString(); }

Strides ContiguousStrides(const Shape& shape) {
  Strides strides = shape;
  if (!shape.empty()) strides[shape.rank() - 1] = 1;
  for (int i = shape.rank() - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * std::max<int64_t>(shape[i + 1], 1);
  return strides;
}

bool IsContiguous(const Shape& shape, const Strides& strides) {
  int64_t expected = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

int NormalizeAxis(const char* op, int64_t axis, int rank) {
  Check(axis >= -rank && axis < rank, op, "axis ", axis, " is outside a tensor of ", rank,
        " dimensions");
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

Shape BroadcastShapes(const char* op, const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  Shape result = Shape::Filled(rank, 1);
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a[a.rank() - i] : 1;
    const int64_t y = i <= b.rank() ? b[b.rank() - i] : 1;
    Check(x == y || x == 1 || y == 1, op, "shapes do not broadcast: ", a, " with ", b);
    result[rank - i] = x == 1 ? y : x;
  }
  return result;
}

void CheckShape(const char* op, const Shape& shape, size_t element_size) {
  for (int64_t dim : shape) Check(dim >= 0, op, "negative dimension in shape ", shape);
  int64_t bytes = static_cast<int64_t>(element_size);
  bool overflow = false;
  bool zero = false;
  for (int64_t dim : shape) {
    zero |= dim == 0;
    overflow |= __builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes) ||
                bytes > (int64_t{1} << 62);
    if (overflow) break;
  }
  Check(!overflow || zero, op, "shape ", shape, " has too many elements");
  // Even with a dimension of 0 the strides would overflow.
  Check(!overflow, op, "shape ", shape, " has too many elements beside its zero");
}

namespace {

std::atomic<LayoutMode>& Mode() {
  static std::atomic<LayoutMode> mode =
      EnvironmentValue("SINGA_LAYOUT") == "plain" ? LayoutMode::kPlain : LayoutMode::kAuto;
  return mode;
}

}  // namespace

void SetLayoutMode(LayoutMode mode) { Mode().store(mode); }
LayoutMode GetLayoutMode() { return Mode().load(std::memory_order_relaxed); }

std::string LayoutName(const LayoutPtr& layout) { return layout ? layout->ToString() : "plain"; }

}  // namespace singa

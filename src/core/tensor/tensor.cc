#include "singa/core/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <ostream>
#include <string_view>

#include "core/graph/eager_scope.h"
#include "core/graph/recorded_step.h"
#include "core/statistics/counted_reorder.h"
#include "core/tensor/copy.h"
#include "core/tensor/element_copy.h"
#include "singa/core/device.h"

namespace singa {
namespace {

const LayoutPtr kPlain;

void CheckNotEmpty(const char* op, const Tensor& t) {
  Check(!t.empty(), op, "the tensor is empty");
}

/// The block, converted to plain for a view or a write through one.
const BlockPtr& PlainBlock(const char* op, const Tensor& t) {
  CheckNotEmpty(op, t);
  t.block()->MakePlain();
  return t.block();
}

/// Checks that an integer type can hold the whole part of `value`. Other conversions are undefined.
void CheckFits(const char* op, double value, DType dtype) {
  if (IsFloat(dtype) || dtype == kBool) return;
  // Powers of two are exact as doubles; `high` is the smallest value that does not fit.
  const int bits = static_cast<int>(SizeOf(dtype)) * 8;
  const double low = dtype == kUChar ? 0 : -std::ldexp(1.0, bits - 1);
  const double high = std::ldexp(1.0, dtype == kUChar ? bits : bits - 1);
  const double whole = std::trunc(value);
  Check(whole >= low && whole < high, op, "value ", value, " does not fit ", DTypeName(dtype));
}

/// Refuses to write to a broadcast view, whose elements share memory.
void CheckDistinct(const char* op, const Tensor& t) {
  for (int i = 0; i < t.rank(); ++i)
    Check(t.strides()[i] != 0 || t.shape()[i] <= 1, op, "elements of the broadcast view ", t,
          " share memory, so that it cannot be written to");
}

/// Returns `shape` after checking that its strides and size do not overflow.
const Shape& Checked(const Shape& shape, DType dtype) {
  CheckShape("tensor", shape, SizeOf(dtype));
  return shape;
}

/// Returns `layout` after checking that there is one.
const LayoutPtr& Given(const LayoutPtr& layout) {
  Check(layout != nullptr, "tensor", "no layout given");
  return layout;
}

/// A new block for a tensor. If there is no memory, the error names the tensor.
template <class... Arguments>
BlockPtr NewBlock(const Shape& shape, DType dtype, Arguments&&... arguments) {
  try {
    return std::make_shared<Block>(std::forward<Arguments>(arguments)...);
  } catch (const OutOfMemory& error) {
    std::string_view why = error.what();
    constexpr std::string_view kTag = "[memory] ";
    if (why.starts_with(kTag)) why.remove_prefix(kTag.size());
    throw OutOfMemory(
        detail::Message("memory", "a tensor of ", shape, " ", DTypeName(dtype), ": ", why));
  }
}

/// True if the tensor is in host memory.
bool OnHost(const Tensor& t) { return t.block()->device()->kind() == DeviceKind::kCpu; }

/// Copies a contiguous host tensor to new memory of another device. New memory is not used by
/// queued work, so the copy need not wait for it.
Tensor Sent(const Tensor& t, DevicePtr device) {
  const BlockPtr block = NewBlock(t.shape(), t.data_type(), std::move(device), t.raw_data(),
                                  static_cast<size_t>(t.bytes()));
  return Tensor(block, t.shape(), ContiguousStrides(t.shape()), 0, t.data_type());
}

/// A read of the host. What a step that is recorded has not written is read as it is, without an
/// operation of that step.
class HostRead {
 public:
  explicit HostRead(const Tensor& t) {
    if (RecordedStep* step = RecordedStep::Current(); step && step->ReadByHost(t)) now_.emplace();
  }

 private:
  std::optional<EagerScope> now_;
};

/// Copies a contiguous tensor from another device to `host`, which has the same shape and type.
void Fetch(const Tensor& t, const Tensor& host) {
  const HostRead read(t);
  t.device()->CopyToHost(host.raw_data(), t.raw_data(), static_cast<size_t>(t.bytes()));
  host.block()->Touch();
}

/// Executes a fill, copy or reorder on the device of `result`.
void Execute(const PlanPtr& plan, const char* op, std::span<const Tensor> inputs,
             const Tensor& result, const Scalars& scalars = {}) {
  result.device()->Exec(op, plan, inputs, {&result, 1}, scalars);
}

/// Computes strides for a view of (old_shape, old_strides) as `shape`. Returns false if there is no
/// such view.
bool ViewStrides(const Shape& old_shape, const Strides& old_strides, const Shape& shape,
                 Strides* result) {
  // Matches groups of old and new axes with equal products from the left. Within a group the old
  // axes must be dense relative to each other.
  *result = Shape::Filled(shape.rank(), 1);
  int i = 0, j = 0;
  while (i < old_shape.rank() || j < shape.rank()) {
    int64_t old_count = 1, new_count = 1;
    const int i0 = i, j0 = j;
    if (i < old_shape.rank()) old_count = old_shape[i++];
    if (j < shape.rank()) new_count = shape[j++];
    while (old_count != new_count) {
      if (old_count < new_count) {
        if (i == old_shape.rank()) return false;
        old_count *= old_shape[i++];
      } else {
        if (j == shape.rank()) return false;
        new_count *= shape[j++];
      }
    }
    int64_t stride = 1;
    int64_t dense = 0;  // required stride of the next outer axis, unless `first`
    bool first = true;
    for (int k = i - 1; k >= i0; --k) {
      if (old_shape[k] == 1) continue;
      if (first) {
        stride = old_strides[k];
      } else if (old_strides[k] != dense) {
        return false;
      }
      dense = old_strides[k] * old_shape[k];
      first = false;
    }
    for (int k = j - 1; k >= j0; --k) {
      (*result)[k] = stride;
      stride *= shape[k];
    }
  }
  return true;
}

}  // namespace

Tensor::Tensor(const Shape& shape, DevicePtr device, DataType dtype)
    : shape_(Checked(shape, dtype)), strides_(ContiguousStrides(shape)), dtype_(dtype) {
  if (!device) device = DefaultDevice();
  const size_t bytes = static_cast<size_t>(shape.Count()) * SizeOf(dtype);
  block_ = NewBlock(shape, dtype, std::move(device), bytes);
}

Tensor::Tensor(DevicePtr device, const LayoutPtr& layout)
    : shape_(Given(layout)->shape()), strides_(ContiguousStrides(shape_)), dtype_(layout->dtype()) {
  block_ = NewBlock(shape_, dtype_, std::move(device), layout->bytes());
  block_->set_layout(layout);
}

Tensor::Tensor(BlockPtr block, const Shape& shape, const Strides& strides, int64_t offset,
               DataType dtype)
    : block_(std::move(block)), shape_(shape), strides_(strides), offset_(offset), dtype_(dtype) {
  Check(block_ != nullptr, "tensor", "a view needs a block");
  Check(shape.rank() == strides.rank(), "tensor", "shape ", shape, " and strides ", strides,
        " differ in rank");
  int64_t low = offset, high = offset;
  bool any = true;
  for (int i = 0; i < shape.rank(); ++i) {
    any &= shape[i] > 0;
    (strides[i] < 0 ? low : high) += (shape[i] - 1) * strides[i];
  }
  Check(!any || (low >= 0 && (high + 1) * static_cast<int64_t>(SizeOf(dtype)) <=
                                 static_cast<int64_t>(block_->size())),
        "tensor", "a view of shape ", shape, ", strides ", strides, ", offset ", offset,
        " leaves its block of ", block_->size(), " bytes");
}

int64_t Tensor::shape(int axis) const {
  return shape_[NormalizeAxis("shape", axis, shape_.rank())];
}

const LayoutPtr& Tensor::layout() const { return block_ ? block_->layout() : kPlain; }

bool Tensor::is_contiguous() const { return block_ && !layout() && IsContiguous(shape_, strides_); }

Tensor Tensor::Transpose(const std::vector<int64_t>& axes) const {
  CheckNotEmpty("transpose", *this);
  if (const std::optional<Strides> strides = layout() ? layout()->strides() : std::nullopt) {
    const Tensor copy({size()}, device(), dtype_);
    Execute(MemoryCopyPlan(), "Copy", {this, 1}, copy);
    return Tensor(copy.block(), shape_, *strides, 0, dtype_).Transpose(axes);
  }
  const BlockPtr& block = PlainBlock("transpose", *this);
  std::vector<int64_t> order = axes;
  if (order.empty())
    for (int i = rank() - 1; i >= 0; --i) order.push_back(i);
  Check(static_cast<int>(order.size()) == rank(), "transpose", order.size(), " axes for shape ",
        shape_);
  Shape shape = shape_;
  Strides strides = strides_;
  unsigned seen = 0;
  for (int i = 0; i < rank(); ++i) {
    const int axis = NormalizeAxis("transpose", order[i], rank());
    Check(!(seen >> axis & 1u), "transpose", "axis ", axis, " appears twice for shape ", shape_);
    seen |= 1u << axis;
    shape[i] = shape_[axis];
    strides[i] = strides_[axis];
  }
  return Tensor(block, shape, strides, offset_, dtype_);
}

Tensor Tensor::Broadcast(const Shape& shape) const {
  if (!empty() && shape == shape_) return *this;
  const BlockPtr& block = PlainBlock("broadcast", *this);
  CheckShape("broadcast", shape, SizeOf(dtype_));
  const int extra = shape.rank() - rank();
  Check(extra >= 0, "broadcast", "shape ", shape_, " does not broadcast to ", shape);
  Strides strides = Shape::Filled(shape.rank(), 0);
  for (int i = 0; i < rank(); ++i) {
    Check(shape_[i] == shape[i + extra] || shape_[i] == 1, "broadcast", "shape ", shape_,
          " does not broadcast to ", shape);
    strides[i + extra] = shape_[i] == 1 ? 0 : strides_[i];
  }
  return Tensor(block, shape, strides, offset_, dtype_);
}

Tensor Tensor::SliceAxis(int64_t axis, int64_t start, int64_t stop, int64_t step) const {
  const BlockPtr& block = PlainBlock("slice", *this);
  const int a = NormalizeAxis("slice", axis, rank());
  Check(step != 0, "slice", "step is zero");
  Check(step != INT64_MIN, "slice", "step ", step, " is out of range");
  const int64_t n = shape_[a];
  // Python's slice.indices().
  const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
  if (start < 0) start = start < -n ? -1 - n : start;
  if (stop < 0) stop = stop < -n ? -1 - n : stop;
  start = start < 0 ? std::max(start + n, low) : std::min(start, high);
  stop = stop < 0 ? std::max(stop + n, low) : std::min(stop, high);
  const int64_t length = step > 0 ? (stop > start ? (stop - start - 1) / step + 1 : 0)
                                  : (start > stop ? (start - stop - 1) / -step + 1 : 0);
  Shape shape = shape_;
  Strides strides = strides_;
  shape[a] = length;
  strides[a] = length > 1 ? strides_[a] * step : strides_[a];
  return Tensor(block, shape, strides, length > 0 ? offset_ + start * strides_[a] : offset_,
                dtype_);
}

Tensor Tensor::Squeeze(const std::vector<int64_t>& axes) const {
  const BlockPtr& block = PlainBlock("squeeze", *this);
  unsigned drop = 0;
  for (int64_t axis : axes) {
    const int a = NormalizeAxis("squeeze", axis, rank());
    Check(shape_[a] == 1, "squeeze", "axis ", axis, " of shape ", shape_, " is not of length 1");
    drop |= 1u << a;
  }
  Shape shape;
  Strides strides;
  for (int i = 0; i < rank(); ++i) {
    if (axes.empty() ? shape_[i] == 1 : (drop >> i & 1u)) continue;
    shape.push_back(shape_[i]);
    strides.push_back(strides_[i]);
  }
  return Tensor(block, shape, strides, offset_, dtype_);
}

Tensor Tensor::Unsqueeze(const std::vector<int64_t>& axes) const {
  const BlockPtr& block = PlainBlock("unsqueeze", *this);
  const int rank = this->rank() + static_cast<int>(axes.size());
  Check(rank <= kMaxRank, "unsqueeze", "more than ", kMaxRank, " dimensions");
  unsigned added = 0;
  for (int64_t axis : axes) {
    const int a = NormalizeAxis("unsqueeze", axis, rank);
    Check(!(added >> a & 1u), "unsqueeze", "axis ", axis, " appears twice");
    added |= 1u << a;
  }
  Shape shape;
  Strides strides;
  for (int i = 0, old = 0; i < rank; ++i) {
    const bool fresh = added >> i & 1u;
    shape.push_back(fresh ? 1 : shape_[old]);
    strides.push_back(fresh ? 1 : strides_[old]);
    if (!fresh) ++old;
  }
  return Tensor(block, shape, strides, offset_, dtype_);
}

Tensor Tensor::Reshape(const Shape& shape) const {
  CheckNotEmpty("reshape", *this);
  Shape wanted = shape;
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < wanted.rank(); ++i) {
    if (wanted[i] == -1) {
      Check(unknown < 0, "reshape", "more than one -1 in ", shape);
      unknown = i;
    } else {
      Check(wanted[i] >= 0, "reshape", "negative dimension in ", shape);
      Check(!__builtin_mul_overflow(known, wanted[i], &known), "reshape", "shape ", shape,
            " has too many elements");
    }
  }
  if (unknown >= 0) {
    Check(known > 0 && size() % known == 0, "reshape", "shape ", shape_, " does not fit into ",
          shape);
    wanted[unknown] = size() / known;
  }
  Check(wanted.Count() == size(), "reshape", "shape ", shape_, " (", size(),
        " elements) does not fit into ", shape);
  if (wanted == shape_) return *this;
  const BlockPtr& block = PlainBlock("reshape", *this);
  Strides strides;
  if (size() == 0) return Tensor(block, wanted, ContiguousStrides(wanted), offset_, dtype_);
  if (ViewStrides(shape_, strides_, wanted, &strides))
    return Tensor(block, wanted, strides, offset_, dtype_);
  const Tensor dense = Clone();
  return Tensor(dense.block(), wanted, ContiguousStrides(wanted), 0, dtype_);
}

Tensor Tensor::Clone() const {
  CheckNotEmpty("clone", *this);
  Tensor copy(shape_, device(), dtype_);
  copy.CopyFrom(*this);
  return copy;
}

Tensor Tensor::Contiguous() const {
  CheckNotEmpty("contiguous", *this);
  return is_contiguous() ? *this : Clone();
}

Tensor Tensor::AsType(DataType dtype) const {
  CheckNotEmpty("as_type", *this);
  SizeOf(dtype);  // refuses unknown types
  if (dtype == dtype_) return *this;
  if (const LayoutPtr alike = layout() ? layout()->WithType(dtype) : nullptr) {
    const Tensor converted(device(), alike);
    Execute(CopyPlan(), "Copy", {this, 1}, converted);
    return converted;
  }
  Tensor converted(shape_, device(), dtype);
  converted.CopyFrom(*this);
  return converted;
}

Tensor Tensor::ToDevice(DevicePtr device) const {
  CheckNotEmpty("to_device", *this);
  Check(device != nullptr, "to_device", "no device given");
  if (device == this->device()) return *this;
  if (device->kind() != DeviceKind::kCpu) {
    const Tensor host = OnHost(*this) ? *this : ToDevice(DefaultDevice());
    return Sent(host.Plain().Contiguous(), std::move(device));
  }
  Tensor moved(shape_, device, dtype_);
  moved.CopyFrom(*this);
  return moved;
}

Tensor Tensor::Plain() const {
  CheckNotEmpty("to_layout", *this);
  return layout() ? ToLayout(nullptr) : *this;
}

Tensor Tensor::ToLayout(const LayoutPtr& wanted) const {
  CheckNotEmpty("to_layout", *this);
  if (!layout() && !wanted) return Contiguous();
  if (SameLayout(layout(), wanted)) return *this;
  if (wanted)
    Check(wanted->shape() == shape_ && wanted->dtype() == dtype_, "to_layout", "layout ",
          wanted->ToString(), " of ", wanted->shape(), " ", DTypeName(wanted->dtype()),
          " does not fit ", *this);
  if (LiesAs(*this, wanted)) {
    const Tensor flat(block_, {size()}, {1}, offset_, dtype_);
    Tensor result(device(), wanted);
    Execute(MemoryCopyPlan(), "Copy", {&flat, 1}, result);
    return result;
  }
  // A strided view must be made dense before it is packed.
  const Tensor source = layout() ? *this : Contiguous();
  Tensor result = wanted ? Tensor(device(), wanted) : Tensor(shape_, device(), dtype_);
  const char* reason = wanted ? "an operation wants it so" : "an operation wants it plain";
  if (RecordedStep::Current()) {
    Execute(ReorderPlan(reason), "Reorder", {&source, 1}, result);
  } else {
    CountedReorder(device(), source.layout(), wanted, shape_, dtype_, source.raw_data(),
                   result.raw_data(), reason);
  }
  return result;
}

void Tensor::Fill(double value) {
  CheckNotEmpty("fill", *this);
  CheckFits("fill", value, dtype_);
  if (value != 0) block_->MakePlain();  // zeros have the same bytes in all layouts
  Scalars scalars;
  scalars.v[0] = value;
  Execute(FillPlan(), "Fill", {}, *this, scalars);
}

void Tensor::CopyFrom(const Tensor& source) {
  CheckNotEmpty("copy", *this);
  CheckNotEmpty("copy", source);
  if (layout() && source.shape_ == shape_ && source.dtype_ == dtype_ &&
      SameLayout(layout(), source.layout())) {
    Execute(CopyPlan(), "Copy", {&source, 1}, *this);
    return;
  }
  CheckDistinct("copy", *this);
  block_->MakePlain();
  Tensor plain = source.Plain();
  if (source.device() != device() && !(OnHost(source) && OnHost(*this))) {
    plain = plain.Contiguous();
    if (!OnHost(plain)) {
      const bool straight =
          OnHost(*this) && is_contiguous() && plain.shape_ == shape_ && plain.dtype_ == dtype_;
      const Tensor fetched = straight ? *this : Tensor(plain.shape_, nullptr, plain.dtype_);
      Fetch(plain, fetched);
      if (straight) return;
      plain = fetched;
    }
    // Queued work may still use this tensor's memory, so the data goes to new memory first.
    if (!OnHost(*this)) plain = Sent(plain, device());
  }
  if (plain.shape_ != shape_) {
    Check(plain.rank() <= rank(), "copy", "shape ", source.shape_, " does not broadcast to ",
          shape_);
    plain = plain.Broadcast(shape_);
  }
  Execute(CopyPlan(), "Copy", {&plain, 1}, *this);
}

void Tensor::CopyFromHost(const void* data, size_t bytes, size_t byte_offset) {
  CheckNotEmpty("copy_from_host", *this);
  block_->MakePlain();
  Check(is_contiguous(), "copy_from_host", "the tensor is not contiguous: strides ", strides_);
  Check(byte_offset <= static_cast<size_t>(this->bytes()) &&
            bytes <= static_cast<size_t>(this->bytes()) - byte_offset,
        "copy_from_host", bytes, " bytes at ", byte_offset, " do not fit ", *this);
  if (block_->has_memory())  // what is new differs from recording to recording anyway
    RecordedStep::SetObstacleOf(*device(), "the step copies data of the host into a tensor");
  device()->CopyFromHost(static_cast<char*>(raw_data()) + byte_offset, data, bytes);
  block_->Touch();
}

void Tensor::CopyToHost(void* data, size_t bytes) const {
  CheckNotEmpty("copy_to_host", *this);
  Check(bytes == static_cast<size_t>(this->bytes()), "copy_to_host", bytes, " bytes for ", *this);
  const HostRead read(*this);
  const Tensor source = Plain().Contiguous();
  device()->CopyToHost(data, source.raw_data(), bytes);
}

double Tensor::Item() const {
  CheckNotEmpty("item", *this);
  Check(size() == 1, "item", "needs one element, got ", *this);
  double value = 0;
  const HostRead read(*this);
  Reshape({}).AsType(kFloat64).CopyToHost(&value, sizeof(value));
  return value;
}

std::string Tensor::ToString() const {
  if (empty()) return "empty tensor";
  std::string text = shape_.ToString() + " " + DTypeName(dtype_) + " on " + device()->name();
  if (layout()) text += " in " + layout()->ToString();
  return text;
}

Tensor Full(const Shape& shape, double value, DevicePtr device, DataType dtype) {
  Tensor t(shape, std::move(device), dtype);
  t.Fill(value);
  return t;
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  return out << tensor.ToString();
}

}  // namespace singa

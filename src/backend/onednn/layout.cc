// oneDNN's memory descriptors as opaque layouts.

#include <algorithm>
#include <numeric>

#include "backend/onednn/engine.h"
#include "singa/core/tensor.h"

namespace singa::onednn {
namespace {

using dnnl::memory;

/// Numbers that decide where each element lies: equal keys, equal memory. The stride of an axis
/// that is walked no further than its inner block says nothing and is left out. Empty for formats
/// that are not blocked.
std::vector<int64_t> PlacementKey(const memory::desc& desc) {
  if (desc.get_format_kind() != memory::format_kind::blocked) return {};
  const memory::dims dims = desc.get_dims(), padded = desc.get_padded_dims();
  const memory::dims strides = desc.get_strides(), blocks = desc.get_inner_blks();
  const memory::dims axes = desc.get_inner_idxs();
  std::vector<int64_t> key = {static_cast<int64_t>(desc.get_data_type()),
                              desc.get_submemory_offset()};
  key.insert(key.end(), dims.begin(), dims.end());
  key.insert(key.end(), padded.begin(), padded.end());
  std::vector<int64_t> outer(padded.begin(), padded.end());
  for (size_t i = 0; i < blocks.size(); ++i) {
    key.push_back(blocks[i]);
    key.push_back(axes[i]);
    outer[static_cast<size_t>(axes[i])] /= blocks[i];
  }
  for (size_t i = 0; i < strides.size(); ++i) key.push_back(outer[i] > 1 ? strides[i] : 0);
  return key;
}

/// Of a layout: where its elements lie, and where those of the row-major tensor.
std::vector<int64_t> JointKey(const memory::desc& desc, const memory::desc& plain) {
  std::vector<int64_t> key = PlacementKey(desc);
  if (key.empty()) return key;
  const std::vector<int64_t> other = PlacementKey(plain);
  key.insert(key.end(), other.begin(), other.end());
  return key;
}

const char* DefaultLetters(int rank) {
  switch (rank) {
    case 2:
      return "nc";
    case 3:
      return "ncw";
    case 4:
      return "nchw";
    default:
      return "abcdefghijkl";
  }
}

/// The field's tag: axes from the outermost in, upper case where a block of one follows.
std::string TagOf(const memory::desc& desc, const char* letters) {
  if (desc.get_format_kind() != memory::format_kind::blocked) return "packed";
  const int rank = desc.get_ndims();
  if (!letters) letters = DefaultLetters(rank);
  const memory::dims strides = desc.get_strides(), padded = desc.get_padded_dims();
  const memory::dims blocks = desc.get_inner_blks(), axes = desc.get_inner_idxs();
  std::vector<int> order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  auto blocked = [&](int axis) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); };
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return strides[a] > strides[b]; });
  std::string tag;
  for (int axis : order)
    tag += blocked(axis) ? static_cast<char>(letters[axis] - 'a' + 'A') : letters[axis];
  for (size_t i = 0; i < blocks.size(); ++i) tag += std::to_string(blocks[i]) + letters[axes[i]];
  return tag;
}

size_t HashOf(const std::vector<int64_t>& key, size_t bytes) {
  uint64_t hash = 0x9e3779b97f4a7c15u ^ bytes;
  for (int64_t word : key) {
    hash = (hash ^ static_cast<uint64_t>(word)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

/// `desc` with elements of another type, all else equal. oneDNN makes descriptors of inner blocks
/// from its tags alone, so that the tag has to be found; null where there is none.
memory::desc WithDataType(const memory::desc& desc, memory::data_type type) {
  if (desc.get_format_kind() != memory::format_kind::blocked) return {};
  const memory::dims dims = desc.get_dims();
  const auto fits = [&](const memory::desc& made) { return made && made == desc; };
  const memory::desc by_strides(dims, desc.get_data_type(), desc.get_strides(), true);
  if (fits(by_strides)) return memory::desc(dims, type, desc.get_strides());
  for (int i = static_cast<int>(memory::format_tag::any) + 1; i < dnnl_format_tag_last; ++i) {
    const auto tag = static_cast<memory::format_tag>(i);
    if (fits(memory::desc(dims, desc.get_data_type(), tag, true)))
      return memory::desc(dims, type, tag);
  }
  return {};
}

void ReorderNow(const memory::desc& from, const memory::desc& to, const void* src, void* dst) {
  Guarded("Reorder", [&] {
    memory source(from, Engine(), const_cast<void*>(src)), target(to, Engine(), dst);
    dnnl::reorder(source, target).execute(Stream(), source, target);
  });
}

}  // namespace

DnnlLayout::DnnlLayout(memory::desc desc, memory::desc plain, const Shape& shape, DType dtype,
                       const char* letters)
    : OpaqueLayout(shape, dtype),
      desc_(std::move(desc)),
      plain_(std::move(plain)),
      key_(JointKey(desc_, plain_)),
      bytes_(desc_.get_size()),
      hash_(HashOf(key_, bytes_)),
      letters_(letters),
      tag_(TagOf(desc_, letters)) {}

bool DnnlLayout::Equals(const OpaqueLayout& other) const {
  if (shape() != other.shape() || dtype() != other.dtype()) return false;
  const auto* dnnl_layout = dynamic_cast<const DnnlLayout*>(&other);
  if (!dnnl_layout || hash_ != dnnl_layout->hash_) return false;
  if (key_.empty() || dnnl_layout->key_.empty()) return desc_ == dnnl_layout->desc_;
  return key_ == dnnl_layout->key_;
}

LayoutPtr DnnlLayout::WithType(DType wanted) const {
  const auto in_both = [](DType type) { return type == kFloat32 || type == kBFloat16; };
  if (!in_both(wanted) || !in_both(dtype())) return nullptr;
  std::call_once(asked_other_type_, [&] {
    const DType other = dtype() == kFloat32 ? kBFloat16 : kFloat32;
    const memory::desc desc = WithDataType(desc_, DataTypeOf(other));
    const memory::desc plain = WithDataType(plain_, DataTypeOf(other));
    if (!desc || !plain) return;
    if (desc.get_size() / SizeOf(other) == bytes_ / SizeOf(dtype()))
      other_type_ = FromDesc(desc, shape(), other, letters_, &plain);
  });
  return other_type_;
}

void DnnlLayout::Pack(const void* plain, void* opaque) const {
  ReorderNow(plain_, desc_, plain, opaque);
}

void DnnlLayout::Unpack(const void* opaque, void* plain) const {
  ReorderNow(desc_, plain_, opaque, plain);
}

LayoutPtr FromDesc(const memory::desc& desc, const Shape& shape, DType dtype, const char* letters,
                   const memory::desc* plain) {
  if (desc.get_size() == 0) return nullptr;  // nothing there
  memory::desc row_major;
  if (plain) {
    row_major = *plain;
  } else {
    const memory::dims dims = desc.get_dims();
    row_major = memory::desc(dims, desc.get_data_type(), Dims(ContiguousStrides(Shape(dims))));
  }
  const std::vector<int64_t> key = PlacementKey(desc);
  if (!key.empty() && key == PlacementKey(row_major)) return nullptr;
  return std::make_shared<DnnlLayout>(desc, row_major, shape, dtype, letters);
}

LayoutPtr LayoutNamed(const std::string& name, const Shape& shape, DType dtype) {
  const memory::data_type type = DataTypeOf(dtype);
  if (type == memory::data_type::undef || shape.rank() == 0 || shape.Count() == 0) return nullptr;
  const bool filter = name.find_first_of("oO") != std::string::npos;
  for (int i = static_cast<int>(memory::format_tag::any) + 1; i < dnnl_format_tag_last; ++i) {
    const memory::desc desc(Dims(shape), type, static_cast<memory::format_tag>(i), true);
    if (!desc || desc.get_size() == 0) continue;
    const LayoutPtr layout = FromDesc(desc, shape, dtype, filter ? "oihw" : nullptr);
    if (layout && layout->ToString() == name) return layout;
  }
  return nullptr;
}

const DnnlLayout* AsDnnl(const LayoutPtr& layout) {
  return dynamic_cast<const DnnlLayout*>(layout.get());
}

memory::desc ToDesc(const LayoutPtr& layout, const Shape& shape, DType dtype) {
  if (!layout) return PlainDesc(shape, dtype);
  const DnnlLayout* ours = AsDnnl(layout);
  Check<std::runtime_error>(ours != nullptr, "onednn", "layout ", layout->ToString(),
                            " was made by ", layout->backend());
  return ours->desc();
}

memory::desc ToDesc(const Tensor& t) { return ToDesc(t.layout(), t.shape(), t.data_type()); }

}  // namespace singa::onednn

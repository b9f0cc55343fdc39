// Conversion between blocked layouts and oneDNN's memory descriptors.

#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "backend/onednn/engine.h"
#include "singa/core/tensor.h"

namespace singa::onednn {
namespace {

using dnnl::memory;

constexpr int kFirstTag = static_cast<int>(memory::format_tag::any) + 1;

/// oneDNN's descriptor for these blocks; none if no tag of oneDNN fits. oneDNN can make descriptors
/// with inner blocks only from its tags. Which tag fits may depend on axes of length 1.
std::optional<memory::desc> SearchTags(const memory::dims& dims, memory::data_type type,
                                       const Placement& placement) {
  static std::mutex mutex;
  static auto& found = *new std::map<std::string, int>;  // tag by name, found before
  const std::string name = placement.Tag("abcdefghijkl");
  const auto fits = [&](int tag) -> std::optional<memory::desc> {
    memory::desc desc(dims, type, static_cast<memory::format_tag>(tag), true);
    if (desc && desc.get_ndims() == placement.dims.rank() && PlacementOf(desc) == placement)
      return desc;
    return std::nullopt;
  };
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (const auto known = found.find(name); known != found.end())
      if (auto desc = fits(known->second)) return desc;
  }
  for (int tag = kFirstTag; tag < dnnl_format_tag_last; ++tag) {
    if (auto desc = fits(tag)) {
      const std::lock_guard<std::mutex> lock(mutex);
      found[name] = tag;
      return desc;
    }
  }
  return std::nullopt;
}

}  // namespace

Placement PlacementOf(const memory::desc& desc) {
  Check<std::runtime_error>(desc.get_format_kind() == memory::format_kind::blocked, "onednn",
                            "this format has neither strides nor blocks");
  const auto shape_of = [](const memory::dims& dims) { return Shape(dims); };
  Placement placement{shape_of(desc.get_dims()),
                      shape_of(desc.get_padded_dims()),
                      shape_of(desc.get_strides()),
                      {}};
  const memory::dims sizes = desc.get_inner_blks(), axes = desc.get_inner_idxs();
  for (size_t i = 0; i < sizes.size(); ++i)
    placement.blocks.push_back({static_cast<int>(axes[i]), sizes[i]});
  return placement;
}

std::optional<memory::desc> DescOf(const Placement& placement, DType dtype) {
  const memory::dims dims = Dims(placement.dims);
  const memory::data_type type = DataTypeOf(dtype);
  if (placement.blocks.empty()) return memory::desc(dims, type, Dims(placement.strides));
  return SearchTags(dims, type, placement);
}

LayoutPtr FromDesc(const memory::desc& desc, const Shape& shape, DType dtype, const char* letters,
                   const memory::desc* plain) {
  if (desc.get_size() == 0) return nullptr;  // empty
  Placement placement = PlacementOf(desc);
  Placement row_major = plain ? PlacementOf(*plain) : Placement::RowMajor(placement.dims);
  if (placement == row_major) return nullptr;
  return std::make_shared<BlockedLayout>(std::move(placement), std::move(row_major), shape, dtype,
                                         letters);
}

memory::desc ToDesc(const LayoutPtr& layout, const Shape& shape, DType dtype) {
  if (!layout) return PlainDesc(shape, dtype);
  const BlockedLayout* blocked = AsBlocked(layout);
  std::optional<memory::desc> desc;
  if (blocked) desc = DescOf(blocked->placement(), layout->dtype());
  Check<std::runtime_error>(desc.has_value(), "onednn", "no format for layout ", layout->ToString(),
                            " of ", layout->backend());
  return *desc;
}

memory::desc ToDesc(const Tensor& t) { return ToDesc(t.layout(), t.shape(), t.data_type()); }

}  // namespace singa::onednn

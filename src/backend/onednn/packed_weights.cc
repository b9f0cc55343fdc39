#include "backend/onednn/packed_weights.h"

namespace singa::onednn {

using dnnl::memory;

namespace {

void Reorder(const memory::desc& from, const void* source, const memory::desc& to, void* target) {
  Guarded("Reorder", [&] {
    const dnnl::reorder::primitive_desc pd(Engine(), from, Engine(), to);
    memory given(from, Engine(), const_cast<void*>(source)), result(to, Engine(), target);
    dnnl::reorder(pd).execute(Stream(), given, result);
  });
}

}  // namespace

PackedWeights::PackedWeights(const Shape& shape, const memory::desc& plain,
                             const memory::desc& packed, const char* letters)
    : OpaqueLayout(shape, kInt8),
      plain_(plain),
      packed_(packed),
      name_(PlacementOf(packed).Tag(letters) + " with sums") {}

bool PackedWeights::Equals(const OpaqueLayout& other) const {
  const auto* same = dynamic_cast<const PackedWeights*>(&other);
  return same && shape() == same->shape() && packed_ == same->packed_ && plain_ == same->plain_;
}

void PackedWeights::Pack(const void* plain, void* opaque) const {
  Reorder(plain_, plain, packed_, opaque);
}

void PackedWeights::Unpack(const void* opaque, void* plain) const {
  // oneDNN does not read descriptors with sums. The blocks before them are those of one without.
  const auto blocks = DescOf(PlacementOf(packed_), kInt8);
  Check<std::runtime_error>(blocks.has_value(), "Reorder", "oneDNN has no format ", name_);
  Reorder(*blocks, opaque, plain_, plain);
}

}  // namespace singa::onednn

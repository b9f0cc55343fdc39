#include "backend/onednn/packed_weights.h"

namespace singa::onednn {

using dnnl::memory;

PackedWeights::PackedWeights(const Shape& shape, const memory::desc& plain,
                             const memory::desc& packed, const char* letters)
    : OpaqueLayout(shape, kInt8),
      plain_(plain),
      packed_(packed),
      blocks_(PlacementOf(packed), PlacementOf(plain), shape, kInt8, letters) {}

bool PackedWeights::Equals(const OpaqueLayout& other) const {
  const auto* same = dynamic_cast<const PackedWeights*>(&other);
  return same && shape() == same->shape() && packed_ == same->packed_ && plain_ == same->plain_;
}

void PackedWeights::Pack(const void* plain, void* opaque) const {
  Guarded("Reorder", [&] {
    const dnnl::reorder::primitive_desc pd(Engine(), plain_, Engine(), packed_);
    memory from(plain_, Engine(), const_cast<void*>(plain)), to(packed_, Engine(), opaque);
    dnnl::reorder(pd).execute(Stream(), from, to);
  });
}

}  // namespace singa::onednn

#pragma once

#include <string>

#include "backend/onednn/engine.h"

namespace singa::onednn {

/// Weights of int8 as a primitive reads them: blocks, and behind them sums of the weights, by which
/// oneDNN corrects its products of unsigned numbers for x's sign and zero point. Only oneDNN's
/// descriptor says which sums these are.
class PackedWeights final : public OpaqueLayout {
 public:
  /// `plain` describes the row-major weights of this shape with the axes of `packed`, which
  /// `letters` name.
  PackedWeights(const Shape& shape, const dnnl::memory::desc& plain,
                const dnnl::memory::desc& packed, const char* letters);

  const char* backend() const override { return "onednn"; }
  size_t bytes() const override { return packed_.get_size(); }
  size_t hash() const override { return std::hash<std::string>()(name_) + bytes(); }
  bool Equals(const OpaqueLayout& other) const override;
  std::string ToString() const override { return name_; }
  void Pack(const void* plain, void* opaque) const override;
  void Unpack(const void* opaque, void* plain) const override;

 private:
  dnnl::memory::desc plain_, packed_;
  std::string name_;
};

}  // namespace singa::onednn

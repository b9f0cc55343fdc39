#pragma once

// Computes recurrent networks of 16-bit types in float32, on copies of their arguments.

#include <initializer_list>
#include <memory>
#include <vector>

#include "core/tensor/copy.h"
#include "model/spec/rnn.h"
#include "singa/core/plan.h"

namespace singa::reference {

/// Elements of the copies; 0 for other types. `sizes` lists all tensors of the spec's type.
inline int64_t Float32Copies(const RnnFields& fields, std::initializer_list<int64_t> sizes) {
  int64_t elements = 0;
  if (fields.is_half())
    for (const int64_t size : sizes) elements += size;
  return elements;
}

/// A float32 tensor of t's shape at `place`, and advances `place` behind it. Returns t itself if it
/// is not of a 16-bit type.
inline Tensor Float32At(float*& place, const Tensor& t) {
  if (t.empty() || (t.data_type() != kFloat16 && t.data_type() != kBFloat16)) return t;
  const auto block = std::make_shared<Block>(t.device(), place,
                                             static_cast<size_t>(t.size()) * sizeof(float), [] {});
  place += t.size();
  return Tensor(block, t.shape(), ContiguousStrides(t.shape()), 0, kFloat32);
}

/// Calls run(spec, execution) in float32, with the copies at `place`.
template <class Spec, class Run>
void RunInFloat32(Spec spec, const Execution& execution, float* place, const Run& run) {
  spec.dtype = kFloat32;
  std::vector<Tensor> inputs, outputs;
  for (const Tensor& t : execution.inputs) {
    inputs.push_back(Float32At(place, t));
    if (!t.empty() && inputs.back().block() != t.block()) StridedCopy(t, inputs.back());
  }
  for (const Tensor& t : execution.outputs) outputs.push_back(Float32At(place, t));
  run(spec, Execution{execution.device, inputs, outputs, execution.scalars, execution.workspace});
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].empty() && outputs[i].block() != execution.outputs[i].block())
      StridedCopy(outputs[i], execution.outputs[i]);
}

}  // namespace singa::reference

#pragma once

// Shared by the CPU's kernels of recurrent networks: the order of the steps, which steps belong to
// a sequence, and the computation of 16-bit types in float32, on copies of their arguments.

#include <initializer_list>
#include <memory>
#include <vector>

#include "core/tensor/copy.h"
#include "model/operation/rnn/spec.h"
#include "singa/core/plan.h"

namespace singa::rnn {

/// The tensor's data; null if the tensor is empty.
template <class T>
const T* DataOrNull(const Tensor& t) {
  return t.empty() ? nullptr : static_cast<const T*>(t.raw_data());
}

class Steps {
 public:
  /// Throws std::invalid_argument, naming `op`, if a length is outside [0, steps].
  Steps(const char* op, const RnnFields& fields, const Tensor& seq_lengths)
      : steps_(fields.steps), lengths_(DataOrNull<int32_t>(seq_lengths)) {
    if (lengths_) CheckLengths(op, fields, {lengths_, static_cast<size_t>(fields.batch)});
  }

  /// The time of step s of a direction. Direction 1 runs backwards.
  int64_t time(int64_t direction, int64_t s) const { return direction == 0 ? s : steps_ - 1 - s; }
  /// Whether the sequence extends to this time.
  bool counts(int64_t time, int64_t sequence) const {
    return lengths_ == nullptr || time < lengths_[sequence];
  }

 private:
  int64_t steps_;
  const int32_t* lengths_;
};

/// First row of the state before step s; `initial` (or zeros) before the first step.
template <class T>
const T* PreviousState(const RnnFields& fields, const Steps& steps, int64_t direction, int64_t s,
                       const T* initial, const T* states) {
  if (s == 0) return initial;
  return states + steps.time(direction, s - 1) * fields.batch * fields.hidden;
}

/// Puts the gradients of the last states, or zeros, into dhx and dcx, which carry them from the
/// last step to the first.
inline void StartStateGradients(const Execution& execution) {
  for (const size_t i : {1, 2}) {
    const Tensor &given = execution.inputs[i], &carried = execution.outputs[i];
    if (carried.empty()) continue;
    if (given.empty()) {
      StridedFill(carried, 0);
    } else {
      StridedCopy(given, carried);
    }
  }
}

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

}  // namespace singa::rnn

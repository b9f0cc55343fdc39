#pragma once

// Lets kernels for float and double serve 16-bit floats as well, through converted copies in the
// workspace.

#include <array>
#include <cstddef>
#include <span>
#include <type_traits>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "core/tensor/round_up.h"
#include "singa/core/plan.h"

namespace singa::reference {

/// Bytes of workspace that Arguments need for tensors of these sizes.
inline size_t ArgumentBytes(DType dtype, std::initializer_list<int64_t> sizes) {
  if (dtype == kFloat32 || dtype == kFloat64) return 0;
  size_t bytes = 0;
  for (int64_t size : sizes) bytes += RoundUp(static_cast<size_t>(size) * sizeof(float), 64);
  return bytes;
}

/// Inputs and outputs of an execution as arrays of ComputeType<T>. rest() is the unused part of the
/// workspace.
template <class T>
class Arguments {
 public:
  using C = ComputeType<T>;
  static constexpr size_t kMost = 4;

  explicit Arguments(const Execution& execution)
      : execution_(execution), rest_(static_cast<char*>(execution.workspace)) {
    for (size_t i = 0; i < execution.inputs.size(); ++i) {
      const Tensor& input = execution.inputs[i];
      if constexpr (kDirect) {
        in[i] = execution.in<C>(i);
      } else {
        C* copy = Take(input.size());
        const T* source = execution.in<T>(i);
        ParallelFor(input.size(), kParallelGrain, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) copy[k] = Convert<C>(source[k]);
        });
        in[i] = copy;
      }
    }
    for (size_t i = 0; i < execution.outputs.size(); ++i)
      out[i] = kDirect ? execution.out<C>(i) : Take(execution.outputs[i].size());
  }

  /// Converts the results to T. Does nothing for float and double.
  void Store() const {
    if constexpr (!kDirect) {
      for (size_t i = 0; i < execution_.outputs.size(); ++i) {
        T* target = execution_.out<T>(i);
        const C* source = out[i];
        ParallelFor(execution_.outputs[i].size(), kParallelGrain, [&](int64_t begin, int64_t end) {
          for (int64_t k = begin; k < end; ++k) target[k] = Convert<T>(source[k]);
        });
      }
    }
  }

  char* rest() const { return rest_; }

  std::array<const C*, kMost> in{};
  std::array<C*, kMost> out{};

 private:
  static constexpr bool kDirect = std::is_same_v<T, C>;

  C* Take(int64_t size) {
    C* taken = reinterpret_cast<C*>(rest_);
    rest_ += RoundUp(static_cast<size_t>(size) * sizeof(C), 64);
    return taken;
  }

  const Execution& execution_;
  char* rest_;
};

}  // namespace singa::reference

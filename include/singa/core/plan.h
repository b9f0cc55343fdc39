#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "singa/core/export.h"
#include "singa/core/layout.h"
#include "singa/core/tensor.h"

namespace singa {

/// Numbers of one execution that may differ from step to step while the plan stays: learning rates,
/// scaling factors, positions in the random sequence. They are no part of the signature; a replay
/// reads them afresh.
struct Scalars {
  std::array<double, 8> v{};
  uint64_t seed = 0;    ///< random sequence ...
  uint64_t offset = 0;  ///< ... and the first position in it
  uint64_t draw = 0;    ///< which of the process's draws these two are; 0: none
};

/// Everything that one run of a Plan sees. Inputs and outputs are in the layouts that the plan
/// asked for.
struct Execution {
  Device& device;
  std::span<const Tensor> inputs;
  std::span<const Tensor> outputs;
  const Scalars& scalars;
  void* workspace;  ///< workspace_bytes() of memory, 64-byte aligned, contents undefined

  template <class T>
  const T* in(size_t i) const {
    return static_cast<const T*>(inputs[i].raw_data());
  }
  template <class T>
  T* out(size_t i) const {
    return static_cast<T*>(outputs[i].raw_data());
  }
};

/// A backend's compiled object for one signature. Immutable and shared between threads: bindings
/// and workspace belong to one execution.
class SINGA_API Plan {
 public:
  explicit Plan(const char* implementation) : implementation_(implementation) {}
  virtual ~Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  virtual void Run(const Execution& execution) const = 0;

  /// The backend's name: "onednn", "reference", "cudnn".
  const char* implementation() const { return implementation_; }
  /// One line saying what it is, such as "onednn brgconv:avx512_core".
  virtual std::string Describe() const { return implementation_; }
  virtual size_t workspace_bytes() const { return 0; }
  /// The layout in which argument `i` is wanted; null is plain and contiguous unless the operation
  /// says otherwise.
  virtual LayoutPtr input_layout(size_t i) const { return (void)i, nullptr; }
  virtual LayoutPtr output_layout(size_t i) const { return (void)i, nullptr; }
  /// Index of the input whose memory output `i` may take over, or -1.
  virtual int inplace_input(size_t i) const { return (void)i, -1; }
  /// Bytes of output `i` where that is a flat uint8 tensor which only this implementation's own
  /// backward reads (arg-max workspace ...); 0: the operation's common form.
  virtual size_t private_bytes(size_t i) const { return (void)i, 0; }
  /// The error of a result follows the largest terms in its plane (last two axes), not only its
  /// own: the method mixes neighbouring pixels.
  virtual bool spreads_error() const { return false; }
  /// Whether it does what `other` does: two recordings of one step are compared by this. Plans of
  /// operations come from the cache and are the same object.
  virtual bool SameAs(const Plan& other) const { return this == &other; }
  /// Bytes that the plan holds (an estimate for generated code).
  virtual size_t bytes() const { return 256; }

 private:
  const char* implementation_;
};
using PlanPtr = std::shared_ptr<const Plan>;

}  // namespace singa

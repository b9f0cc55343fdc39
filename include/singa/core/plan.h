#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "singa/core/export.h"
#include "singa/core/layout.h"
#include "singa/core/tensor.h"

namespace singa {

/// Numbers of one execution that may change from step to step while the plan stays the same:
/// learning rates, scaling factors, positions in the random sequence. The signature does not
/// contain them.
struct Scalars {
  std::array<double, 8> v{};
  uint64_t seed = 0;    ///< of the random sequence
  uint64_t offset = 0;  ///< first position in the random sequence
  uint64_t draw = 0;    ///< number of the draw that gave seed and offset; 0: none
};

/// The arguments of Plan::Run. Inputs and outputs lie in the layouts that the plan wants.
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
  /// Null where the argument is an empty tensor.
  template <class T>
  const T* in_or_null(size_t i) const {
    return inputs[i].empty() ? nullptr : in<T>(i);
  }
  template <class T>
  T* out_or_null(size_t i) const {
    return outputs[i].empty() ? nullptr : out<T>(i);
  }
  /// Element k of input i, or `otherwise` where the input is an empty tensor.
  template <class T>
  T value_or(size_t i, int64_t k, T otherwise) const {
    return inputs[i].empty() ? otherwise : in<T>(i)[k];
  }
};

/// A backend's compiled object for one signature. It is immutable and shared between threads.
/// Addresses and workspace belong to one execution.
class SINGA_API Plan {
 public:
  explicit Plan(const char* implementation) : implementation_(implementation) {}
  virtual ~Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  virtual void Run(const Execution& execution) const = 0;

  /// The backend's name: "onednn", "reference", "cudnn".
  const char* implementation() const { return implementation_; }
  /// The implementation in one line, such as "onednn brgconv:avx512_core".
  virtual std::string Describe() const { return implementation_; }
  virtual size_t workspace_bytes() const { return 0; }
  /// The layout in which input `i` has to lie. Null: plain and contiguous, unless the operation
  /// says otherwise.
  virtual LayoutPtr input_layout(size_t i) const { return (void)i, nullptr; }
  virtual LayoutPtr output_layout(size_t i) const { return (void)i, nullptr; }
  /// Index of the input whose memory output `i` may take over; -1: none.
  virtual int inplace_input(size_t i) const { return (void)i, -1; }
  /// Size of output `i`, if that is a flat uint8 tensor that only the backward of this
  /// implementation reads, such as positions of maxima. 0: the form that all implementations share.
  virtual size_t private_bytes(size_t i) const { return (void)i, 0; }
  /// Rounding errors spread over a plane (the last two axes), because the method mixes neighbouring
  /// pixels. OPCHECK then bounds an error by the largest terms of the plane.
  virtual bool spreads_error() const { return false; }
  /// The largest relative error of a product of two factors, where float32 factors are rounded to
  /// fewer bits (Float32Precision::kHigh). OPCHECK and spot checks allow as much in each term.
  virtual double factor_error() const { return 0; }
  /// Whether it computes the same as `other`. Two recordings of a step are compared by this. Plans
  /// of operations come from the cache, so equal ones are the same object.
  virtual bool SameAs(const Plan& other) const { return this == &other; }
  /// Memory that the plan holds, in bytes. Generated code is estimated.
  virtual size_t bytes() const { return 256; }

#ifndef SWIG
  /// What spot checks (singa/dispatch/spot_check.h) know of the plan's runs so far.
  struct Watch {
    std::atomic<bool> on{true};  ///< whether runs are counted, some of which will be checked
    std::atomic<uint32_t> runs{0};
    std::atomic<uint32_t> counted{0};  ///< checked runs that have said something
    std::atomic<bool> refused{false};  ///< it was wrong, so the results of all runs are replaced
  };
  Watch& watch() const { return watch_; }
#endif

 private:
  const char* implementation_;
  mutable Watch watch_;
};
using PlanPtr = std::shared_ptr<const Plan>;

}  // namespace singa

#pragma once

// Shared by all oneDNN kernels: the engine, layouts, and plans around a primitive. A kernel
// describes its primitive with format `any` where the layout is free, skips reference
// implementations, and passes the descriptor on:
//
//   auto pd = dnnl::convolution_forward::primitive_desc(Engine(), ..., ScratchpadAttr(), true);
//   if (!SkipReference(&pd)) return OnlyReference();
//   return std::make_shared<PrimitivePlan>(
//       "ConvForward", pd, dnnl::convolution_forward(pd),
//       {Bind(DNNL_ARG_SRC, pd.src_desc(), x_shape, dtype), ...},        // inputs, in order
//       {Bind(DNNL_ARG_DST, pd.dst_desc(), y_shape, dtype)});            // outputs

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/instruction_set.h"
#include "core/layout/blocked_layout.h"
#include "dnnl.hpp"
#include "model/dispatch/kernel.h"
#include "singa/core/dtype.h"
#include "singa/core/error.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/threads.h"
#include "singa/operation/activation.h"

namespace singa::onednn {

/// The only CPU engine. It is never destroyed.
const dnnl::engine& Engine();
/// The calling thread's stream.
dnnl::stream& Stream();

/// "oneDNN 3.2.1 isa 15": the facts that oneDNN's choice of kernels depends on.
std::string VersionAndIsa();
/// The instruction set that oneDNN generates code for. ONEDNN_MAX_CPU_ISA may limit it.
InstructionSet EffectiveInstructionSet();

/// Channels in a block of the layouts that oneDNN prefers on this CPU.
inline int64_t BlockedChannels() {
  return AllowedInstructionSet() >= InstructionSet::kAvx512 ? 16 : 8;
}

/// Sets the calling thread's OpenMP thread count to `threads` during its lifetime. oneDNN reads
/// that count when it makes a primitive and when it runs one.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

/// Rethrows an error of oneDNN with the message "[op] oneDNN: ...", as OutOfMemory or
/// std::runtime_error. For use in a handler of dnnl::error.
[[noreturn]] void Rethrow(const char* op, const dnnl::error& error);

/// Disables oneDNN's primitive cache while ours is enabled, else restores the capacity that the
/// environment set. To be called before a primitive is made.
void SyncPrimitiveCache();

/// Work below which a primitive runs on one thread: it ends sooner than a second thread could wake
/// up and fetch its share from the first one's cache.
inline constexpr int64_t kElementsWorthThreads = int64_t{1} << 16;      ///< read once and written
inline constexpr int64_t kMultiplyAddsWorthThreads = int64_t{1} << 18;  ///< of a convolution
/// Number of threads for `work`; `least` is one of the constants above.
inline int ThreadsWorth(int64_t work, int64_t least) { return work < least ? 1 : NumThreads(); }

/// Refuses a Spec for which oneDNN has only its reference loops, which are many times slower than
/// ours.
inline PlanOrReason OnlyReference() {
  return PlanOrReason::None("oneDNN has only its slow reference implementation");
}

/// Runs `make`, which makes a primitive or its descriptor. Sets the thread count, which the
/// primitive keeps, synchronises the cache, and rethrows oneDNN's errors as ours.
template <class Make>
auto Guarded(const char* op, int threads, const Make& make) {
  SyncPrimitiveCache();
  const ThreadScope scope(threads);
  try {
    return make();
  } catch (const dnnl::error& error) {
    Rethrow(op, error);
  }
}
template <class Make>
auto Guarded(const char* op, const Make& make) {
  return Guarded(op, NumThreads(), make);
}

// Types and descriptors ---------------------------------------------------------------------------

/// undef if oneDNN has no type for `dtype`.
dnnl::memory::data_type DataTypeOf(DType dtype);
/// Empty for float32, and for bfloat16 if oneDNN supports it on this CPU; else the reason.
std::string RefusesFloat(DType dtype);

inline dnnl::memory::dims Dims(const Shape& shape) { return shape.ToVector(); }
/// Dense, row-major.
dnnl::memory::desc PlainDesc(const Shape& shape, DType dtype);
/// Lets the primitive choose.
dnnl::memory::desc AnyDesc(const Shape& shape, DType dtype);

/// Converts a descriptor to a Placement (our blocks and strides) and back. DescOf returns none if
/// oneDNN has no format for the blocks.
Placement PlacementOf(const dnnl::memory::desc& desc);
std::optional<dnnl::memory::desc> DescOf(const Placement& placement, DType dtype);

/// The layout of a descriptor; null if it is plain, that is row-major up to axes of length 1.
/// `letters` name the descriptor's axes in the tag; null numbers them, so four axes are "nchw".
/// `plain` places the row-major tensor's elements in the descriptor's axes (BlockedLayout); null
/// means row-major in these axes.
LayoutPtr FromDesc(const dnnl::memory::desc& desc, const Shape& shape, DType dtype,
                   const char* letters = nullptr, const dnnl::memory::desc* plain = nullptr);
/// oneDNN's descriptor of a layout; null stands for a plain tensor. Throws std::runtime_error if
/// there is none.
dnnl::memory::desc ToDesc(const LayoutPtr& layout, const Shape& shape, DType dtype);
/// The descriptor of a tensor's layout. A plain tensor must be contiguous.
dnnl::memory::desc ToDesc(const Tensor& t);

// Primitives --------------------------------------------------------------------------------------

/// Makes the scratchpad an argument of each execution: it is the plan's workspace.
dnnl::primitive_attr ScratchpadAttr();

/// True for oneDNN's plain loops, which are slower than ours. "conv:any+ref:any" is a transposed
/// convolution by them.
inline bool IsReference(std::string_view implementation) {
  return implementation.starts_with("ref") || implementation.starts_with("simple:any") ||
         implementation.find("+ref:") != std::string_view::npos;
}

/// Advances to the first implementation that is not a reference. False if there is none, or if the
/// descriptor is empty.
template <class PrimitiveDesc>
bool SkipReference(PrimitiveDesc* pd) {
  if (!*pd) return false;
  while (IsReference(pd->impl_info_str()))
    if (!pd->next_impl()) return false;
  return true;
}

/// A tensor argument of a primitive: DNNL_ARG_..., oneDNN's descriptor, and our layout (null:
/// plain).
struct Argument {
  int id;
  dnnl::memory::desc desc;
  LayoutPtr layout;
};
inline Argument Bind(int id, const dnnl::memory::desc& desc, const Shape& shape, DType dtype,
                     const char* letters = nullptr, const dnnl::memory::desc* plain = nullptr) {
  return {id, desc, FromDesc(desc, shape, dtype, letters, plain)};
}

/// A primitive and the memory objects to run it with. It runs on the number of threads for which it
/// was made. One execution uses a set of objects at a time; one set is kept for the next execution,
/// so running in a loop allocates none. Thread-safe.
class BoundPrimitive {
 public:
  BoundPrimitive(dnnl::primitive primitive, const std::vector<Argument>& arguments,
                 const dnnl::memory::desc& scratchpad);
  ~BoundPrimitive();
  BoundPrimitive(const BoundPrimitive&) = delete;
  BoundPrimitive& operator=(const BoundPrimitive&) = delete;

  /// `pointers`: one per argument, in the constructor's order.
  void Run(const char* op, const void* const* pointers, void* scratchpad) const;
  size_t scratchpad_bytes() const { return scratchpad_bytes_; }

 private:
  struct Binding;

  dnnl::primitive primitive_;
  std::vector<int> ids_;
  std::vector<dnnl::memory::desc> descs_;
  size_t scratchpad_bytes_;
  int threads_;
  mutable std::atomic<Binding*> spare_{nullptr};
};

/// A plan that runs one primitive. Inputs that the operation may omit (the bias) come last.
class PrimitivePlan : public Plan {
 public:
  PrimitivePlan(const char* op, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
                std::vector<Argument> inputs, std::vector<Argument> outputs);

  /// Applies `activation` to the first output (float32 or bfloat16) after the primitive. With
  /// several groups, the first input and output consist of that many contiguous parts of equal
  /// size, and the primitive computes one part. Each part is activated while it is in the cache.
  void AddActivation(const Activation& activation, int64_t groups = 1) {
    activation_ = activation;
    groups_ = groups;
  }

  void Run(const Execution& execution) const override;
  std::string Describe() const override { return "onednn " + implementation_; }
  size_t workspace_bytes() const override { return bound_.scratchpad_bytes(); }
  LayoutPtr input_layout(size_t i) const override {
    return i < inputs_.size() ? inputs_[i].layout : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override {
    return i < outputs_.size() ? outputs_[i].layout : nullptr;
  }
  size_t bytes() const override { return bytes_; }

 protected:
  const char* op() const { return op_; }

 private:
  const char* op_;
  std::string implementation_;
  std::vector<Argument> inputs_;
  std::vector<Argument> outputs_;
  BoundPrimitive bound_;
  size_t bytes_;
  Activation activation_ = {};
  int64_t groups_ = 1;
};

}  // namespace singa::onednn

#pragma once

// What every oneDNN kernel needs: the engine, layouts, and plans around a primitive. A kernel
// describes its primitive with format `any` where it may choose, skips reference implementations,
// and hands the descriptor over:
//
//   auto pd = dnnl::convolution_forward::primitive_desc(Engine(), ..., ScratchpadAttr(), true);
//   if (!SkipReference(&pd)) return "oneDNN has only its reference implementation";
//   return std::make_shared<PrimitivePlan>(
//       "ConvForward", pd, dnnl::convolution_forward(pd),
//       {Bind(DNNL_ARG_SRC, pd.src_desc(), x_shape, dtype), ...},        // inputs, in order
//       {Bind(DNNL_ARG_DST, pd.dst_desc(), y_shape, dtype)});            // outputs

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dnnl.hpp"
#include "singa/core/dtype.h"
#include "singa/core/error.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/threads.h"

namespace singa::onednn {

/// The one CPU engine. Lives for ever.
const dnnl::engine& Engine();
/// The calling thread's stream.
dnnl::stream& Stream();

/// "oneDNN 3.2.1 avx2": what its choice of kernels depends on.
std::string VersionAndIsa();
/// Whether oneDNN generates code for AVX-512, which ONEDNN_MAX_CPU_ISA may forbid.
bool UsesAvx512();

/// oneDNN asks OpenMP how many threads there are, both when it makes a primitive and when it runs
/// it: says `threads` on the calling thread while it lives.
class ThreadScope {
 public:
  explicit ThreadScope(int threads);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
};

/// Rethrows what oneDNN threw as "[op] oneDNN: ...": OutOfMemory, else std::runtime_error. Call it
/// in a handler of dnnl::error.
[[noreturn]] void Rethrow(const char* op, const dnnl::error& error);

/// Before primitives are made: keeps oneDNN's own cache off while ours is on, and as the
/// environment says while it is off.
void SyncPrimitiveCache();

/// Work below which a primitive takes one thread: it is done before a second thread has woken up
/// and fetched its share from the first one's cache.
inline constexpr int64_t kElementsWorthThreads = int64_t{1} << 16;      ///< read once and written
inline constexpr int64_t kMultiplyAddsWorthThreads = int64_t{1} << 18;  ///< of a convolution
/// Threads for so much work; `least` is one of the constants above.
inline int ThreadsWorth(int64_t work, int64_t least) { return work < least ? 1 : NumThreads(); }

/// Everything that makes a primitive or its descriptor goes through here: the thread count, which
/// the primitive keeps, the cache, and errors as ours.
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

/// undef where oneDNN has no such type.
dnnl::memory::data_type DataTypeOf(DType dtype);
/// Empty for float32, and for bfloat16 where oneDNN computes with it on this CPU; else why not.
std::string RefusesFloat(DType dtype);
/// Likewise of our own kernels: they take bfloat16 on every CPU, for float32 that they load and
/// round.
std::string RefusesOwn(DType dtype);

inline dnnl::memory::dims Dims(const Shape& shape) { return shape.ToVector(); }
/// Dense, row-major.
dnnl::memory::desc PlainDesc(const Shape& shape, DType dtype);
/// Whatever the primitive likes best.
dnnl::memory::desc AnyDesc(const Shape& shape, DType dtype);

/// A layout that oneDNN chose. Views of one tensor may have more dimensions for oneDNN than for us
/// (groups of a filter), or others in another order; `plain` says where oneDNN finds the elements
/// of the row-major tensor.
class DnnlLayout final : public OpaqueLayout {
 public:
  DnnlLayout(dnnl::memory::desc desc, dnnl::memory::desc plain, const Shape& shape, DType dtype,
             const char* letters);

  const dnnl::memory::desc& desc() const { return desc_; }
  const dnnl::memory::desc& plain() const { return plain_; }

  const char* backend() const override { return "onednn"; }
  size_t bytes() const override { return bytes_; }
  size_t hash() const override { return hash_; }
  bool Equals(const OpaqueLayout& other) const override;
  std::string ToString() const override { return tag_; }
  /// Between float32 and bfloat16.
  LayoutPtr WithType(DType dtype) const override;
  void Pack(const void* plain, void* opaque) const override;
  void Unpack(const void* opaque, void* plain) const override;

 private:
  dnnl::memory::desc desc_;
  dnnl::memory::desc plain_;
  std::vector<int64_t> key_;  // what decides where each element lies
  size_t bytes_;
  size_t hash_;
  const char* letters_;
  std::string tag_;
  mutable std::once_flag asked_other_type_;
  mutable LayoutPtr other_type_;
};

/// The layout of oneDNN's that has this name, or null: see opcheck::AddLayoutMaker. Filters of
/// groups, whose number no name tells, are left out.
LayoutPtr LayoutNamed(const std::string& name, const Shape& shape, DType dtype);
/// The layout of a descriptor; null when that is plain (row-major up to axes of length 1).
/// `letters` name the descriptor's axes in the tag; null: by their number, "nchw" for four.
/// `plain`: see DnnlLayout; null: row-major in the descriptor's own axes.
LayoutPtr FromDesc(const dnnl::memory::desc& desc, const Shape& shape, DType dtype,
                   const char* letters = nullptr, const dnnl::memory::desc* plain = nullptr);
/// oneDNN's descriptor of a layout of ours or of a plain tensor. Null pointer inside means that
/// another backend made it.
const DnnlLayout* AsDnnl(const LayoutPtr& layout);
dnnl::memory::desc ToDesc(const LayoutPtr& layout, const Shape& shape, DType dtype);
/// The tensor's layout; it has to be contiguous when plain.
dnnl::memory::desc ToDesc(const Tensor& t);

// Primitives --------------------------------------------------------------------------------------

/// The caller brings the scratchpad: it is the plan's workspace.
dnnl::primitive_attr ScratchpadAttr();

/// True for oneDNN's own plain loops, which are slower than ours.
inline bool IsReference(std::string_view implementation) {
  return implementation.starts_with("ref") || implementation.starts_with("simple:any");
}

/// Moves on to the first implementation that is not a reference. False when there is none, or no
/// descriptor at all.
template <class PrimitiveDesc>
bool SkipReference(PrimitiveDesc* pd) {
  if (!*pd) return false;
  while (IsReference(pd->impl_info_str()))
    if (!pd->next_impl()) return false;
  return true;
}

/// One tensor of a primitive: DNNL_ARG_..., oneDNN's descriptor, and our layout (null: plain).
struct Argument {
  int id;
  dnnl::memory::desc desc;
  LayoutPtr layout;
};
inline Argument Bind(int id, const dnnl::memory::desc& desc, const Shape& shape, DType dtype,
                     const char* letters = nullptr, const dnnl::memory::desc* plain = nullptr) {
  return {id, desc, FromDesc(desc, shape, dtype, letters, plain)};
}

/// A primitive with memory objects to run it on, on as many threads as it was made for. Objects
/// belong to one execution at a time; one set is kept for the next, so that running in a loop makes
/// none. Thread-safe.
class BoundPrimitive {
 public:
  BoundPrimitive(dnnl::primitive primitive, const std::vector<Argument>& arguments,
                 const dnnl::memory::desc& scratchpad);
  ~BoundPrimitive();
  BoundPrimitive(const BoundPrimitive&) = delete;
  BoundPrimitive& operator=(const BoundPrimitive&) = delete;

  /// `pointers`: one for each argument, in their order.
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

/// A plan that runs one primitive. Inputs that the operation leaves out (no bias) come last.
class PrimitivePlan : public Plan {
 public:
  PrimitivePlan(const char* op, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
                std::vector<Argument> inputs, std::vector<Argument> outputs);

  /// ReLU of the first output, float32 or bfloat16, follows the primitive.
  void AddRelu() { relu_ = true; }

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
  bool relu_ = false;
};

}  // namespace singa::onednn

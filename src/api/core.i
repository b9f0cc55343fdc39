// The core: types, tensors, devices, statistics.

// These calls are too short for releasing the interpreter lock to pay off.
%feature("nothread") singa::Tensor::Tensor;
%feature("nothread") singa::Tensor::empty;
%feature("nothread") singa::Tensor::shape;
%feature("nothread") singa::Tensor::strides;
%feature("nothread") singa::Tensor::data_type;
%feature("nothread") singa::Tensor::type_and_place;
%feature("nothread") singa::Tensor::rank;
%feature("nothread") singa::Tensor::size;
%feature("nothread") singa::Tensor::bytes;
%feature("nothread") singa::Tensor::version;
%feature("nothread") singa::Tensor::device;
%feature("nothread") singa::Tensor::is_blocked;
%feature("nothread") singa::Tensor::is_contiguous;
%feature("nothread") singa::Tensor::Size;
%feature("nothread") singa::Tensor::same_shape;
%feature("nothread") singa::Tensor::alike;
%feature("nothread") singa::Tensor::matches;
%feature("nothread") singa::Device::graph_enabled;
%feature("nothread") singa::NumThreads;
%feature("nothread") Selection;
%feature("nothread") KindsOf;
%feature("nothread") singa::SetCurrentLayer;
%feature("nothread") singa::CurrentLayer;

// Their Python functions name their arguments, which is faster than to pass *args on.
%feature("compactdefaultargs", "0") singa::Tensor::data_type;
%feature("compactdefaultargs", "0") singa::Tensor::rank;
%feature("compactdefaultargs", "0") singa::Tensor::size;
%feature("compactdefaultargs", "0") singa::Tensor::device;
%feature("compactdefaultargs", "0") singa::Tensor::version;
%feature("compactdefaultargs", "0") singa::Tensor::is_blocked;
%feature("compactdefaultargs", "0") singa::Tensor::Clone;
%feature("compactdefaultargs", "0") singa::Tensor::same_shape;
%feature("compactdefaultargs", "0") singa::Tensor::alike;
%feature("compactdefaultargs", "0") singa::Tensor::type_and_place;
%feature("compactdefaultargs", "0") singa::Tensor::matches;
%feature("compactdefaultargs", "0") singa::Tensor::block_id;

#pragma SWIG nowarn=314,329,401

// Members for C++ only.
%ignore singa::Tensor::Tensor(DevicePtr, const LayoutPtr&);
%ignore singa::Tensor::Tensor(BlockPtr, const Shape&, const Strides&, int64_t, DataType);
%ignore singa::Tensor::block;
%ignore singa::Tensor::On;
%ignore singa::Tensor::layout;
%ignore singa::Tensor::ToLayout;
%ignore singa::Tensor::raw_data;
%ignore singa::Tensor::CopyFromHost;
%ignore singa::Tensor::CopyToHost;
%ignore singa::Device::Allocate;
%ignore singa::Device::Free;
%ignore singa::Device::CopyFromHost;
%ignore singa::Device::CopyToHost;
%ignore singa::Device::AllocateCopy;
%ignore singa::Device::AwaitCopy;
%ignore singa::Device::CopyElements;
%ignore singa::Device::FillElements;
%ignore singa::Device::CopyBytes;
%ignore singa::Device::ZeroBytes;
%ignore singa::Device::Exec;
%ignore singa::Device::TakeRandom;
%ignore singa::Device::CheckOpen;
%ignore singa::Device::Run;
%ignore singa::Arena::memory;
%ignore singa::Recording::step;
%ignore singa::BlockPointers;
%ignore singa::OpcheckMismatch;
%ignore singa::CurrentOp;
%ignore singa::SetCurrentOp;

// What no Python module and no script of SINGA's uses.
%ignore singa::kNumDataType;
%ignore singa::IsInteger;
%ignore singa::ReorderStats;
%ignore singa::GetReorderStats;
%ignore singa::ForgetRefusedPlans;
%ignore singa::IsExplaining;

namespace singa {
class Shape;
class Device;
using Strides = Shape;
using DevicePtr = std::shared_ptr<singa::Device>;
}

%apply const singa::Shape& { const singa::Strides& };

SINGA_TUPLE_OF(singa::EnvironmentVariable)
SINGA_TUPLE_OF(singa::PlanCacheOpStats)
SINGA_TUPLE_OF(singa::ReorderRecord)
SINGA_TUPLE_OF(singa::ProfileRecord)
SINGA_TUPLE_OF(singa::TuningChoice)
SINGA_TUPLE_OF(singa::ArenaUse)
SINGA_TUPLE_OF(singa::ExplainedOp)
SINGA_TUPLE_OF(singa::OpcheckOpStats)
SINGA_TUPLE_OF(singa::OpcheckKernelStats)
SINGA_TUPLE_OF(singa::RefusedPlan)

%include "singa/core/export.h"
%include "singa/core/dtype.h"
%include "singa/core/threads.h"
%include "singa/core/environment.h"
%ignore singa::Block;
%include "singa/core/tensor.h"
%include "singa/core/device.h"
%ignore singa::OpcheckOptions;
%ignore singa::SetOpcheck;
%ignore singa::GetOpcheck;
%rename(from_layout) singa::ReorderRecord::from;
%rename(to_layout) singa::ReorderRecord::to;
%ignore singa::ProfileRecord::plan;
%include "singa/core/gpu.h"
%include "singa/dispatch/tuning.h"
%immutable;
%include "singa/core/stats.h"
%ignore singa::RoundsFloat32Factors;
%include "singa/dispatch/plan_cache.h"
%include "singa/dispatch/opcheck.h"
%include "singa/dispatch/spot_check.h"
%include "singa/dispatch/explain.h"
%include "singa/core/graph.h"
%mutable;

%inline %{
/// Calls SetOpcheck with the fields of OpcheckOptions (singa/dispatch/opcheck.h).
void ConfigureOpcheck(int64_t every, const std::vector<std::string>& ops, bool raise_error,
                      const std::string& replay_directory, bool every_kernel) {
  singa::SetOpcheck({every, ops, raise_error, replay_directory, every_kernel});
}
/// Chooses LayoutMode::kPlain (true) or kAuto (singa/core/layout.h).
void SetPlainLayouts(bool plain) {
  singa::SetLayoutMode(plain ? singa::LayoutMode::kPlain : singa::LayoutMode::kAuto);
}
bool PlainLayouts() { return singa::GetLayoutMode() == singa::LayoutMode::kPlain; }
/// The settings of the process on which the choice of a plan depends.
std::vector<int64_t> Selection() {
  return {PlainLayouts(),    static_cast<int64_t>(singa::GetPreference()),
          singa::IsStrict(), static_cast<int64_t>(singa::GetFloat32Precision()),
          singa::NumThreads(), singa::IsDeterministic(),
          singa::TuningVersion()};
}
/// Element type and device, rank and shape of each tensor, in one call.
std::vector<int64_t> KindsOf(const std::vector<singa::Tensor>& tensors) {
  std::vector<int64_t> kinds;
  for (const singa::Tensor& t : tensors) {
    const int64_t device = t.empty() ? -1 : t.device()->id();
    kinds.insert(kinds.end(), {device * 256 + t.data_type(), static_cast<int64_t>(t.rank())});
    kinds.insert(kinds.end(), t.shape().begin(), t.shape().end());
  }
  return kinds;
}
/// OPCHECK's current `every`; 0 means off.
int64_t OpcheckEvery() { return singa::GetOpcheck().every; }
%}

%extend singa::Device {
  // Settings of Apache SINGA's devices, which its scripts call. They change nothing.
  void SetVerbosity(int verbosity) { (void)verbosity; }
  void SetSkipIteration(int iterations) { (void)iterations; }
}

%extend singa::Tensor {
  // Names from Apache SINGA.
  int64_t Size() const { return $self->size(); }
  int64_t MemSize() const { return $self->bytes(); }
  int nDim() const { return $self->rank(); }
  bool initailized() const { return !$self->empty(); }
  bool transpose() const { return !$self->is_contiguous() && !$self->is_blocked(); }
  singa::Tensor ToType(singa::DataType dtype) const { return $self->AsType(dtype); }
  singa::Tensor ToHost() const { return $self->ToDevice(singa::DefaultDevice()); }
  void SetFloatValue(double value) { $self->Fill(value); }
  void SetIntValue(int value) { $self->Fill(value); }
  void CopyData(const singa::Tensor& source) { $self->CopyFrom(source); }
  /// Becomes a tensor of zeros with t's shape, type and device.
  void ResetLike(const singa::Tensor& t) {
    if (t.empty()) throw std::invalid_argument("[ResetLike] t is an empty tensor (None)");
    *$self = singa::Full(t.shape(), 0, t.device(), t.data_type());
  }
  bool same_shape(const singa::Tensor& other) const { return $self->shape() == other.shape(); }
  bool alike(const singa::Tensor& other) const {
    return $self->shape() == other.shape() && $self->data_type() == other.data_type();
  }
  /// A number that identifies the element type and the device.
  int64_t type_and_place() const {
    return ($self->empty() ? -1 : $self->device()->id()) * int64_t{256} + $self->data_type();
  }
  /// True if shape, type and device are equal.
  bool matches(const singa::Tensor& other) const {
    return $self->shape() == other.shape() && $self->data_type() == other.data_type() &&
           $self->device() == other.device();
  }
  /// Name of the memory layout, such as "plain" or "nChw16c".
  std::string layout_name() const { return singa::LayoutName($self->layout()); }
  /// Converts the block to row-major, for all its views.
  void MakePlain() { if (!$self->empty()) $self->block()->MakePlain(); }
  /// Moves the block to the layout in which operations wanted it last (Block::MoveAsWanted).
  void MoveAsWanted() { if (!$self->empty()) $self->block()->MoveAsWanted(); }
  /// Bytes of copies in other layouts that are kept beside the block.
  int64_t copied_bytes() const {
    return $self->empty() ? 0 : static_cast<int64_t>($self->block()->copied_bytes());
  }
  /// True if the tensor is plain, contiguous, and the whole of its block.
  bool FillsBlock() const {
    return $self->is_contiguous() && $self->offset() == 0 &&
           $self->block()->size() == static_cast<size_t>($self->bytes());
  }
  /// True if NumPy or DLPack share the memory, so that it must stay where it is.
  bool IsPinned() const { return !$self->empty() && $self->block()->pinned(); }
  /// True if both are views of the same block.
  bool SharesMemory(const singa::Tensor& other) const {
    return !$self->empty() && $self->block() == other.block();
  }
  /// A number that identifies the block as long as it lives; 0 for an empty tensor.
  uintptr_t block_id() const { return reinterpret_cast<uintptr_t>($self->block().get()); }
}

// The core: types, tensors, devices, statistics.

// Too short to be worth giving the interpreter away for.
%feature("nothread") singa::Tensor::Tensor;
%feature("nothread") singa::Tensor::empty;
%feature("nothread") singa::Tensor::shape;
%feature("nothread") singa::Tensor::strides;
%feature("nothread") singa::Tensor::data_type;
%feature("nothread") singa::Tensor::type_and_shape;
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
%feature("nothread") singa::SetCurrentLayer;
%feature("nothread") singa::CurrentLayer;

#pragma SWIG nowarn=314,329,401

// Types that only C++ sees.
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
%ignore singa::SegmentMemory;
%ignore singa::Recording::Slot;
%ignore singa::Recording::Segment;
%ignore singa::Recording::Draw;
%ignore singa::BlockPointers;
%ignore singa::OpcheckMismatch;
%ignore singa::CurrentOp;
%ignore singa::SetCurrentOp;

namespace singa {
class Shape;
class Device;
using Strides = Shape;
using DevicePtr = std::shared_ptr<singa::Device>;
}

%apply const singa::Shape& { const singa::Strides& };

%include "singa/core/export.h"
%include "singa/core/dtype.h"
%include "singa/core/threads.h"
%ignore singa::Block;
%include "singa/core/tensor.h"
%include "singa/core/device.h"
%ignore singa::OpcheckOptions;
%ignore singa::SetOpcheck;
%ignore singa::GetOpcheck;
%rename(from_layout) singa::ReorderRecord::from;
%rename(to_layout) singa::ReorderRecord::to;
%include <std_vector.i>
%template(PlanCacheOpStatsVector) std::vector<singa::PlanCacheOpStats>;
%template(ReorderRecordVector) std::vector<singa::ReorderRecord>;
%template(ProfileRecordVector) std::vector<singa::ProfileRecord>;
%template(TuningChoiceVector) std::vector<singa::TuningChoice>;
%template(ExplainedOpVector) std::vector<singa::ExplainedOp>;
%template(StringVector) std::vector<std::string>;
%template(IntVector) std::vector<int>;
%ignore singa::ProfileRecord::plan;
%template(OpcheckOpStatsVector) std::vector<singa::OpcheckOpStats>;
%include "singa/core/gpu.h"
%include "singa/core/stats.h"
%include "singa/core/plan_cache.h"
%include "singa/core/opcheck.h"
%include "singa/core/explain.h"
%include "singa/core/tuning.h"
%immutable;
%include "singa/core/graph.h"
%mutable;

%inline %{
/// OpcheckOptions, flat. See singa/core/opcheck.h.
void ConfigureOpcheck(int64_t every, const std::vector<std::string>& ops, bool raise_error,
                      const std::string& replay_directory) {
  singa::SetOpcheck({every, ops, raise_error, replay_directory});
}
/// Whether operations leave their results row-major. See LayoutMode in singa/core/layout.h.
void SetPlainLayouts(bool plain) {
  singa::SetLayoutMode(plain ? singa::LayoutMode::kPlain : singa::LayoutMode::kAuto);
}
bool PlainLayouts() { return singa::GetLayoutMode() == singa::LayoutMode::kPlain; }
/// Settings of the process that change which plan an operation gets.
std::vector<int64_t> Selection() {
  return {PlainLayouts(),    static_cast<int64_t>(singa::GetPreference()),
          singa::IsStrict(), singa::IsTf32(),
          singa::NumThreads(), singa::IsDeterministic(),
          singa::TuningVersion()};
}
/// The present `every` of OPCHECK; 0 is off.
int64_t OpcheckEvery() { return singa::GetOpcheck().every; }
%}

%extend singa::Tensor {
  // The names that scripts written for Apache SINGA call.
  int64_t Size() const { return $self->size(); }
  int64_t MemSize() const { return $self->bytes(); }
  int nDim() const { return $self->rank(); }
  bool initailized() const { return !$self->empty(); }
  bool transpose() const { return !$self->is_contiguous(); }
  singa::Tensor ToType(singa::DataType dtype) const { return $self->AsType(dtype); }
  singa::Tensor ToHost() const { return $self->ToDevice(singa::DefaultDevice()); }
  void SetFloatValue(double value) { $self->Fill(value); }
  void SetIntValue(int value) { $self->Fill(value); }
  void CopyData(const singa::Tensor& source) { $self->CopyFrom(source); }
  /// Becomes zeros of t's shape and type, where t lies.
  void ResetLike(const singa::Tensor& t) {
    if (t.empty()) throw std::invalid_argument("[ResetLike] t is an empty tensor (None)");
    *$self = singa::Full(t.shape(), 0, t.device(), t.data_type());
  }
  bool same_shape(const singa::Tensor& other) const { return $self->shape() == other.shape(); }
  bool alike(const singa::Tensor& other) const {
    return $self->shape() == other.shape() && $self->data_type() == other.data_type();
  }
  /// The type of the elements, then the lengths of the axes, in one call.
  std::vector<int64_t> type_and_shape() const {
    std::vector<int64_t> all{$self->data_type()};
    all.insert(all.end(), $self->shape().begin(), $self->shape().end());
    return all;
  }
  /// A number that tensors of one type on one device have in common.
  int64_t type_and_place() const {
    return ($self->empty() ? -1 : $self->device()->id()) * int64_t{256} + $self->data_type();
  }
  /// Of the same shape and type, in the same place.
  bool matches(const singa::Tensor& other) const {
    return $self->shape() == other.shape() && $self->data_type() == other.data_type() &&
           $self->device() == other.device();
  }
  /// Name of the physical layout: "plain", "nChw16c" ...
  std::string layout_name() const { return singa::LayoutName($self->layout()); }
  /// Reorders the block in place to row-major, for all its views.
  void MakePlain() { if (!$self->empty()) $self->block()->MakePlain(); }
  /// True when it is plain, dense, and all that its block holds.
  bool FillsBlock() const {
    return $self->is_contiguous() && $self->offset() == 0 &&
           $self->block()->size() == static_cast<size_t>($self->bytes());
  }
  /// True when both are views of one block.
  bool SharesMemory(const singa::Tensor& other) const {
    return !$self->empty() && $self->block() == other.block();
  }
  /// A number that views of one block have in common, as long as it lives; 0 where it is empty.
  uintptr_t block_id() const { return reinterpret_cast<uintptr_t>($self->block().get()); }
}

#include "backend/onednn/engine.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "backend/cpu/activate.h"
#include "core/device/waiting.h"
#include "core/tensor/stored_size.h"
#include "model/dispatch/tuning_table.h"
#include "singa/core/tensor.h"
#include "singa/core/threads.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::onednn {

const dnnl::engine& Engine() {
  // Never destroyed: plans may be released after the statics of this file.
  static const dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

dnnl::stream& Stream() {
  thread_local dnnl::stream stream(Engine());
  return stream;
}

std::string VersionAndIsa() {
  const dnnl_version_t& version = *dnnl_version();
  std::string text = "oneDNN " + std::to_string(version.major) + "." +
                     std::to_string(version.minor) + "." + std::to_string(version.patch);
  // oneDNN has no run-time names for instruction sets.
  return text + " isa " + std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa()));
}

InstructionSet EffectiveInstructionSet() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
    case dnnl::cpu_isa::avx:
      return InstructionSet::kBaseline;
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
    case dnnl::cpu_isa::avx2_vnni_2:
      return InstructionSet::kAvx2;
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_fp16:
      return InstructionSet::kAvx512Bf16;
    case dnnl::cpu_isa::avx512_core_amx:
    case dnnl::cpu_isa::avx512_core_amx_fp16:
      return InstructionSet::kAmx;
    default:
      return InstructionSet::kAvx512;
  }
}

ThreadScope::ThreadScope(int threads) : before_(omp_get_max_threads()) {
  if (before_ != threads) omp_set_num_threads(threads);
}

ThreadScope::~ThreadScope() {
  if (omp_get_max_threads() != before_) omp_set_num_threads(before_);
}

void Rethrow(const char* op, const dnnl::error& error) {
  const std::string what = singa::detail::Message(op, "oneDNN: ", error.what());
  if (error.status == dnnl_out_of_memory) throw OutOfMemory(what);
  throw std::runtime_error(what);
}

void SyncPrimitiveCache() {
  static std::mutex mutex;
  static const int from_environment = dnnl::get_primitive_cache_capacity();
  static bool ours = false;  // whether we have switched it off
  const std::lock_guard<std::mutex> lock(mutex);
  if (ours == PlanCacheEnabled()) return;
  ours = !ours;
  dnnl::set_primitive_cache_capacity(ours ? 0 : from_environment);
}

dnnl::memory::data_type DataTypeOf(DType dtype) {
  using Type = dnnl::memory::data_type;
  switch (dtype) {
    case kFloat32:
      return Type::f32;
    case kFloat64:
      return Type::f64;
    case kBFloat16:
      return Type::bf16;
    case kFloat16:
      return Type::f16;
    case kInt32:
      return Type::s32;
    case kInt8:
      return Type::s8;
    case kUInt8:
      return Type::u8;
    default:
      return Type::undef;
  }
}

std::string RefusesFloat(DType dtype) {
  if (std::string reason = RefusesStorage(dtype); !reason.empty()) return reason;
  if (dtype == kFloat32) return "";
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
    case dnnl::cpu_isa::avx:
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return "this CPU does not compute in bfloat16";
    default:
      return "";
  }
}

dnnl::memory::desc PlainDesc(const Shape& shape, DType dtype) {
  return dnnl::memory::desc(Dims(shape), DataTypeOf(dtype), Dims(ContiguousStrides(shape)));
}

dnnl::memory::desc AnyDesc(const Shape& shape, DType dtype) {
  return dnnl::memory::desc(Dims(shape), DataTypeOf(dtype), dnnl::memory::format_tag::any);
}

dnnl::primitive_attr ScratchpadAttr() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

// Memory objects for one execution; the scratchpad's comes last.
struct BoundPrimitive::Binding {
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;
};

BoundPrimitive::BoundPrimitive(dnnl::primitive primitive, const std::vector<Argument>& arguments,
                               const dnnl::memory::desc& scratchpad)
    : primitive_(std::move(primitive)),
      scratchpad_bytes_(scratchpad.get_size()),
      threads_(omp_get_max_threads()) {
  for (const Argument& argument : arguments) {
    ids_.push_back(argument.id);
    descs_.push_back(argument.desc);
  }
  if (scratchpad_bytes_ > 0) {
    ids_.push_back(DNNL_ARG_SCRATCHPAD);
    descs_.push_back(scratchpad);
  }
}

BoundPrimitive::~BoundPrimitive() { delete spare_.load(); }

void BoundPrimitive::Run(const char* op, const void* const* pointers, void* scratchpad) const {
  const ThreadScope threads(threads_);
  if (threads_ > 1) WatchForOthers();
  try {
    std::unique_ptr<Binding> binding(spare_.exchange(nullptr));
    if (!binding) {
      binding = std::make_unique<Binding>();
      for (size_t i = 0; i < ids_.size(); ++i) {
        binding->memories.emplace_back(descs_[i], Engine(), static_cast<void*>(DNNL_MEMORY_NONE));
        binding->arguments.push_back({ids_[i], binding->memories.back().get()});
      }
    }
    const size_t given = ids_.size() - (scratchpad_bytes_ > 0);
    for (size_t i = 0; i < ids_.size(); ++i) {
      void* data = i < given ? const_cast<void*>(pointers[i]) : scratchpad;
      dnnl::error::wrap_c_api(dnnl_memory_set_data_handle(binding->arguments[i].memory, data),
                              "could not bind memory");
    }
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive_.get(), Stream().get(), static_cast<int>(ids_.size()),
                               binding->arguments.data()),
        "could not execute");
    delete spare_.exchange(binding.release());
  } catch (const dnnl::error& error) {
    Rethrow(op, error);
  }
}

namespace {

std::vector<Argument> Joined(const std::vector<Argument>& a, const std::vector<Argument>& b) {
  std::vector<Argument> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return all;
}

/// Estimates the memory of a primitive: generated code, tables and descriptors. oneDNN does not
/// report it, so the figures come from the growth of the resident size over thousands of
/// primitives.
size_t EstimateBytes(const std::string& implementation) {
  return implementation.find("brg") != std::string::npos ? size_t{160} << 10 : size_t{48} << 10;
}

}  // namespace

PrimitivePlan::PrimitivePlan(const char* op, const dnnl::primitive_desc_base& pd,
                             dnnl::primitive primitive, std::vector<Argument> inputs,
                             std::vector<Argument> outputs)
    : Plan("onednn"),
      op_(op),
      implementation_(pd.impl_info_str()),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      bound_(std::move(primitive), Joined(inputs_, outputs_), pd.scratchpad_desc()),
      bytes_(EstimateBytes(implementation_)) {}

void PrimitivePlan::Run(const Execution& execution) const {
  constexpr size_t kMost = 24;
  std::array<const void*, kMost> pointers;
  size_t count = 0;
  Check<std::runtime_error>(inputs_.size() + outputs_.size() <= kMost &&
                                execution.inputs.size() >= inputs_.size() &&
                                execution.outputs.size() >= outputs_.size(),
                            op_, "the plan was given too few arguments");
  for (size_t i = 0; i < inputs_.size(); ++i) pointers[count++] = execution.inputs[i].raw_data();
  for (size_t i = 0; i < outputs_.size(); ++i) pointers[count++] = execution.outputs[i].raw_data();
  if (!activation_) {
    bound_.Run(op_, pointers.data(), execution.workspace);
    return;
  }
  const Tensor& y = execution.outputs[0];
  const int64_t x_part = static_cast<int64_t>(StoredBytes(execution.inputs[0])) / groups_;
  const int64_t y_part = static_cast<int64_t>(StoredBytes(y)) / groups_;
  const void*& x_at = pointers[0];
  const void*& y_at = pointers[inputs_.size()];
  for (int64_t i = 0; i < groups_; ++i) {
    bound_.Run(op_, pointers.data(), execution.workspace);
    cpu::Activate(activation_, const_cast<void*>(y_at), y_part, y.data_type());
    x_at = static_cast<const char*>(x_at) + x_part;
    y_at = static_cast<const char*>(y_at) + y_part;
  }
}

SINGA_KERNELS(onednn) {
  AddMachineFact(VersionAndIsa());
  LimitInstructionSet(EffectiveInstructionSet());
}

}  // namespace singa::onednn

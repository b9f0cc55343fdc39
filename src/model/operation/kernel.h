#pragma once

// What a backend implements.
//
// An operation family describes one call by a Spec, a plain struct with
//
// - `const char* op() const`: the name in statistics and messages, such as "ConvForward".
// - `template <class Self, class V> static void VisitFields(Self& self, V& v)`: calls
//   v("name", self.field) for each field that changes the plan.
// - LayoutPtr members for the arguments whose layout the plan follows; everything else is asked for
//   by the plan.
// - `void CheckCall(CallChecker& call) const`: what a call of it may be (call_check.h).
//
// VisitFields is the one list of fields: the signature, the replay file of OPCHECK and explain()
// all come from it. A backend registers a Kernel<Spec>; the registry keeps them, for each kind of
// device, in order of registration (onednn before reference).

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "model/operation/op_signature.h"
#include "singa/core/device.h"
#include "singa/core/plan.h"

namespace singa {

/// One way in which a kernel can do a Spec: libraries have several implementations, each for
/// several layouts.
struct Candidate {
  std::string name;  ///< begins with the kernel's implementation(); the same in every process
  std::function<PlanPtr()> make;
  size_t workspace = 0;  ///< bytes that the plan needs at least, as far as known before it is made
};

/// A kernel of whatever Spec.
class AnyKernel {
 public:
  virtual ~AnyKernel() = default;
  /// The backend's name.
  virtual const char* implementation() const = 0;
};

/// A backend's offer for one operation.
template <class Spec>
class Kernel : public AnyKernel {
 public:
  /// Empty when able, else the reason why not ("float64 is not supported").
  virtual std::string Refuses(const Spec& spec) const = 0;
  /// Of a Spec that it does not refuse: why another kernel is likely to be faster; empty when none
  /// is. Counts for nothing where candidates are measured.
  virtual std::string Declines(const Spec& spec) const { return (void)spec, std::string(); }
  virtual PlanPtr MakePlan(const Spec& spec) const = 0;
  /// All ways to do a Spec that it does not refuse; the first is that of MakePlan.
  virtual std::vector<Candidate> Candidates(const Spec& spec) const {
    return {{implementation(), [this, &spec] { return MakePlan(spec); }}};
  }
};

/// The kernels of the Spec of this type name, best first. The lists live in libsinga, for all
/// libraries that bring kernels. Those of this build are registered by the first who asks, others
/// before a device of their kind exists.
using KernelList = std::vector<std::unique_ptr<AnyKernel>>;
SINGA_API const KernelList& KernelsOf(const char* spec, DeviceKind kind);
/// Appends to that list.
SINGA_API void AddKernel(const char* spec, DeviceKind kind, std::unique_ptr<AnyKernel> kernel);

/// The kernels of one operation family on one kind of device, best first.
template <class Spec>
class Registry {
 public:
  static Registry Get(DeviceKind kind = DeviceKind::kCpu) {
    return Registry(KernelsOf(typeid(Spec).name(), kind));
  }
  std::vector<const Kernel<Spec>*> kernels() const {
    std::vector<const Kernel<Spec>*> kernels;
    for (const auto& kernel : list_) kernels.push_back(Cast(*kernel));
    return kernels;
  }
  const Kernel<Spec>* Find(std::string_view implementation) const {
    for (const auto& kernel : list_)
      if (kernel->implementation() == implementation) return Cast(*kernel);
    return nullptr;
  }

 private:
  explicit Registry(const KernelList& list) : list_(list) {}
  static const Kernel<Spec>* Cast(const AnyKernel& kernel) {
    return static_cast<const Kernel<Spec>*>(&kernel);
  }
  const KernelList& list_;
};

/// A Kernel from two functions.
template <class Spec>
class FunctionKernel final : public Kernel<Spec> {
 public:
  using RefusesFn = std::string (*)(const Spec&);
  using MakeFn = PlanPtr (*)(const Spec&);
  using CandidatesFn = std::vector<Candidate> (*)(const Spec&);
  FunctionKernel(const char* implementation, RefusesFn refuses, MakeFn make,
                 CandidatesFn candidates, RefusesFn declines)
      : implementation_(implementation),
        refuses_(refuses),
        make_(make),
        candidates_(candidates),
        declines_(declines) {}
  const char* implementation() const override { return implementation_; }
  std::string Refuses(const Spec& spec) const override { return refuses_(spec); }
  std::string Declines(const Spec& spec) const override {
    return declines_ ? declines_(spec) : std::string();
  }
  PlanPtr MakePlan(const Spec& spec) const override { return make_(spec); }
  std::vector<Candidate> Candidates(const Spec& spec) const override {
    return candidates_ ? candidates_(spec) : Kernel<Spec>::Candidates(spec);
  }

 private:
  const char* implementation_;
  RefusesFn refuses_;
  MakeFn make_;
  CandidatesFn candidates_;
  RefusesFn declines_;
};

/// `candidates` and `declines` may be null: one way only, and no better kernel.
template <class Spec>
void Register(const char* implementation, std::string (*refuses)(const Spec&),
              PlanPtr (*make)(const Spec&),
              std::type_identity_t<std::vector<Candidate> (*)(const Spec&)> candidates = nullptr,
              std::type_identity_t<std::string (*)(const Spec&)> declines = nullptr,
              DeviceKind kind = DeviceKind::kCpu) {
  AddKernel(
      typeid(Spec).name(), kind,
      std::make_unique<FunctionKernel<Spec>>(implementation, refuses, make, candidates, declines));
}

/// A plan that is a function over a spec, with plain arguments.
template <class Spec>
class FunctionPlan final : public Plan {
 public:
  using RunFn = void (*)(const Spec&, const Execution&);
  FunctionPlan(const char* implementation, const Spec& spec, RunFn run, size_t workspace)
      : Plan(implementation), spec_(spec), run_(run), workspace_(workspace) {}
  void Run(const Execution& execution) const override { run_(spec_, execution); }
  size_t workspace_bytes() const override { return workspace_; }
  /// Spec::kInPlaceInput: an elementwise operation reads each element before it writes it.
  int inplace_input(size_t i) const override {
    if constexpr (requires { Spec::kInPlaceInput; }) return i == 0 ? Spec::kInPlaceInput : -1;
    return (void)i, -1;
  }
  size_t bytes() const override { return sizeof(*this); }

 private:
  Spec spec_;
  RunFn run_;
  size_t workspace_;
};

namespace opcheck {
/// Makes a Spec known (opcheck.h).
template <class Spec>
void RegisterSpec();
}  // namespace opcheck

/// Registers a function that takes every spec, as the implementation of this name. `workspace` may
/// be null (none needed).
template <const char* implementation, class Spec, void (*run)(const Spec&, const Execution&),
          size_t (*workspace)(const Spec&) = nullptr>
void RegisterFunction(DeviceKind kind) {
  Register<Spec>(
      implementation, [](const Spec&) { return std::string(); },
      [](const Spec& spec) -> PlanPtr {
        size_t bytes = 0;
        if constexpr (workspace != nullptr) bytes = workspace(spec);
        return std::make_shared<FunctionPlan<Spec>>(implementation, spec, run, bytes);
      },
      nullptr, nullptr, kind);
}

inline constexpr char kReference[] = "reference";

/// RegisterFunction for the CPU's reference implementation, which OPCHECK compares with.
template <class Spec, void (*run)(const Spec&, const Execution&),
          size_t (*workspace)(const Spec&) = nullptr>
void RegisterReference() {
  opcheck::RegisterSpec<Spec>();
  RegisterFunction<kReference, Spec, run, workspace>(DeviceKind::kCpu);
}

namespace backend {
/// Registers every backend of this build, best first; generated by CMake.
void RegisterAll();
extern const char* kBuilt;
/// Calls RegisterAll the first time. Whoever asks for kernels need not; what else backends bring
/// along is only there afterwards.
void EnsureRegistered();
}  // namespace backend

}  // namespace singa

#include "model/operation/opcheck.h"  // defines RegisterSpec

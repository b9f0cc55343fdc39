#pragma once

// What a backend implements.
// A backend registers kernels of a Spec (op_type.h says what that is). The registry keeps them for
// each kind of device in order of registration (onednn before reference).

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "model/dispatch/op_type.h"
#include "singa/core/device.h"
#include "singa/core/node.h"
#include "singa/core/plan.h"

namespace singa {

/// What a kernel can compute a Spec with. Libraries have several implementations, each for
/// several layouts.
struct Candidate {
  std::string name;  ///< begins with the kernel's implementation; the same in every process
  std::function<PlanPtr()> make;
  size_t workspace = 0;     ///< a lower bound in bytes, known before the plan is made
  std::string slower = {};  ///< why another kernel is likely to be faster; empty when none is
  std::string defect = {};  ///< why its results are wrong; empty when none is known
};

/// A kernel's answer.
class PlanOrReason {
 public:
  template <class P>
  PlanOrReason(std::shared_ptr<P> plan) : plan_(std::move(plan)) {}
  /// No plan, for this reason.
  static PlanOrReason None(std::string reason) { return PlanOrReason(std::move(reason)); }

  explicit operator bool() const { return plan_ != nullptr; }
  const PlanPtr& plan() const { return plan_; }  ///< null where there is none
  const std::string& reason() const { return reason_; }

 private:
  explicit PlanOrReason(std::string reason) : reason_(std::move(reason)) {}
  PlanPtr plan_;
  std::string reason_;
};

/// A backend's implementation of one operation. Register makes one of functions of the operation's
/// Spec (KernelFunctions); Make and the others call these in their order.
struct SINGA_API Kernel {
  const char* implementation = "";  ///< the backend's name
  std::function<std::string(const SpecRef&)> refuses = {};
  std::function<PlanOrReason(const SpecRef&)> make;
  std::function<std::vector<Candidate>(const SpecRef&)> candidates = {};
  int priority = 0;

  /// A plan for the Spec, or the reason why there is none: the kernel cannot compute it ("float64
  /// is not supported"), or another kernel is likely to be faster.
  PlanOrReason Make(const SpecRef& spec) const;
  /// All candidates for the Spec, slower ones too. The first is Make's. Empty where the kernel
  /// cannot compute the Spec.
  std::vector<Candidate> Candidates(const SpecRef& spec) const;
  /// The same with those that are known to be wrong, for OPCHECK alone.
  std::vector<Candidate> AllCandidates(const SpecRef& spec) const;
};

/// The kernels of the Spec with this type name on one kind of device, best first. The lists live in
/// libsinga and serve all libraries that have kernels. The first call registers the kernels of this
/// build. Other libraries register theirs before a device of their kind exists.
using KernelList = std::vector<Kernel>;
SINGA_API const KernelList& KernelsOf(const char* spec, DeviceKind kind);
template <class Spec>
const KernelList& KernelsOf(DeviceKind kind = DeviceKind::kCpu) {
  return KernelsOf(typeid(Spec).name(), kind);
}
/// The kernel of a backend; null if there is none.
const Kernel* FindKernel(const KernelList& kernels, std::string_view implementation);
template <class Spec>
const Kernel* FindKernel(std::string_view implementation, DeviceKind kind = DeviceKind::kCpu) {
  return FindKernel(KernelsOf<Spec>(kind), implementation);
}
/// Adds a kernel to the list, behind the others that are asked as early.
SINGA_API void AddKernel(const char* spec, DeviceKind kind, Kernel kernel);

/// The functions of a kernel.
template <class Spec>
struct KernelFunctions {
  /// Why the kernel does not take a Spec; empty where it does. It is called before the others,
  /// which are only called where it is empty. Null: they take every Spec.
  std::string (*refuses)(const Spec&) = nullptr;
  PlanOrReason (*make)(const Spec&);
  /// With those that are known to be wrong. Null: there is one candidate only.
  std::vector<Candidate> (*candidates)(const Spec&) = nullptr;
  /// Kernels of a larger priority are asked first. A library's has 0. One that is asked before is
  /// for some Specs only, and refuses where a library is faster.
  int priority = 0;
};

/// A function of a Spec as a function of a Spec of any type; empty for null.
template <class Spec, class Result>
std::function<Result(const SpecRef&)> OfAnySpec(Result (*function)(const Spec&)) {
  if (!function) return {};
  return [function](const SpecRef& spec) { return function(spec.As<Spec>()); };
}

/// Register<ConvSpec>(DeviceKind::kCpu, "onednn", {.refuses = Refuses, .make = Make});
template <class Spec>
void Register(DeviceKind kind, const char* implementation,
              const std::type_identity_t<KernelFunctions<Spec>>& functions) {
  AddKernel(typeid(Spec).name(), kind,
            {implementation, OfAnySpec(functions.refuses), OfAnySpec(functions.make),
             OfAnySpec(functions.candidates), functions.priority});
}

/// A plan that calls a function of the Spec, on plain arguments.
template <class Spec>
class FunctionPlan final : public Plan {
 public:
  using RunFn = void (*)(const Spec&, const Execution&);
  FunctionPlan(const char* implementation, const Spec& spec, RunFn run, size_t workspace)
      : Plan(implementation), spec_(spec), run_(run), workspace_(workspace) {}
  void Run(const Execution& execution) const override { run_(spec_, execution); }
  size_t workspace_bytes() const override { return workspace_; }
  /// Elementwise operations have Spec::kInPlaceInput: they read each element before they write it.
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

/// Registers a function that takes every Spec, as the implementation of this name. `workspace`
/// gives the bytes that it needs; null: none.
template <const char* implementation, class Spec, void (*run)(const Spec&, const Execution&),
          size_t (*workspace)(const Spec&) = nullptr>
void RegisterFunction(DeviceKind kind) {
  Register<Spec>(kind, implementation, {.make = [](const Spec& spec) -> PlanOrReason {
                   size_t bytes = 0;
                   if constexpr (workspace != nullptr) bytes = workspace(spec);
                   return std::make_shared<FunctionPlan<Spec>>(implementation, spec, run, bytes);
                 }});
}

inline constexpr char kReference[] = "reference";

/// RegisterFunction for the CPU's reference implementation, which OPCHECK compares with.
template <class Spec, void (*run)(const Spec&, const Execution&),
          size_t (*workspace)(const Spec&) = nullptr>
void RegisterReference() {
  AddOpTypeOf<Spec>();
  RegisterFunction<kReference, Spec, run, workspace>(DeviceKind::kCpu);
}

/// Keeps a function that registers kernels, for the backend of this name.
class SINGA_API Registrar {
 public:
  Registrar(const char* backend, const char* file, void (*function)());
};
/// Calls the functions of a backend that were not called before, in the order of their files'
/// names.
SINGA_API void RegisterBackend(const char* backend);

/// A file of kernels registers them by
///
///   SINGA_KERNELS(onednn) { Register<ConvSpec>(DeviceKind::kCpu, "onednn", {.make = Make}); }
///
/// in its namespace, once.
#define SINGA_KERNELS(backend)                                                               \
  static void RegisterKernelsOfThisFile();                                                   \
  static const ::singa::Registrar kRegistrar(#backend, __FILE__, RegisterKernelsOfThisFile); \
  static void RegisterKernelsOfThisFile()

namespace backend {
/// Registers every backend of this build, best first; generated by CMake.
void RegisterAll();
extern const char* kBuilt;
/// Calls RegisterAll the first time. Asking for kernels does so too. Code that uses other parts of
/// a backend, such as its layouts, has to call this first.
void EnsureRegistered();
}  // namespace backend

}  // namespace singa

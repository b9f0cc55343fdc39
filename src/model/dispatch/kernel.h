#pragma once

// What a backend implements.
//
// An operation family describes one call by a Spec, a plain struct with
//
// - `const char* op() const`: the name in statistics and messages, such as "ConvForward".
// - `template <class Self, class V> static void VisitFields(Self& self, V& v)`: calls
//   v("name", self.field) for each field that changes the plan.
// - LayoutPtr members for the arguments whose layout the plan follows. All other arguments come in
//   the layout that the plan asks for.
// - `void CheckCall(CallChecker& call) const`: checks a call that comes from a file (call_check.h).
//
// VisitFields is the only list of the fields. The signature, OPCHECK's replay file and explain()
// use it. A backend registers a Kernel<Spec>. The registry keeps the kernels of each kind of device
// in order of registration (onednn before reference).

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "model/dispatch/op_signature.h"
#include "singa/core/device.h"
#include "singa/core/plan.h"

namespace singa {

/// One way in which a kernel can compute a Spec. Libraries have several implementations, each for
/// several layouts.
struct Candidate {
  std::string name;  ///< begins with the kernel's implementation(); the same in every process
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

/// A kernel of any Spec.
class AnyKernel {
 public:
  virtual ~AnyKernel() = default;
  /// The backend's name.
  virtual const char* implementation() const = 0;
};

/// A backend's implementation of one operation.
template <class Spec>
class Kernel : public AnyKernel {
 public:
  /// A plan for the Spec, or the reason why there is none: the kernel cannot compute it ("float64
  /// is not supported"), or another kernel is likely to be faster.
  virtual PlanOrReason Make(const Spec& spec) const = 0;
  /// All ways to compute the Spec, slower ones too. The first is Make's. Empty where the kernel
  /// cannot compute the Spec.
  std::vector<Candidate> Candidates(const Spec& spec) const {
    std::vector<Candidate> right = AllCandidates(spec);
    std::erase_if(right, [](const Candidate& candidate) { return !candidate.defect.empty(); });
    return right;
  }
  /// The same with those that are known to be wrong, for OPCHECK alone.
  virtual std::vector<Candidate> AllCandidates(const Spec& spec) const {
    const PlanOrReason made = Make(spec);
    if (!made) return {};
    return {{implementation(), [plan = made.plan()] { return plan; }}};
  }
};

/// The kernels of the Spec with this type name, best first. The lists live in libsinga and serve
/// all libraries that have kernels. The first call registers the kernels of this build. Other
/// libraries register theirs before a device of their kind exists.
using KernelList = std::vector<std::unique_ptr<AnyKernel>>;
SINGA_API const KernelList& KernelsOf(const char* spec, DeviceKind kind);
/// Whether a kernel is asked before those of the libraries. Such a kernel is a method for some
/// Specs only. It refuses where a library is faster.
enum class AskedFirst : bool { kNo, kYes };
/// Adds a kernel to the list, behind the others with the same AskedFirst.
SINGA_API void AddKernel(const char* spec, DeviceKind kind, std::unique_ptr<AnyKernel> kernel,
                         AskedFirst first = AskedFirst::kNo);

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

/// The functions of a kernel.
template <class Spec>
struct KernelFunctions {
  /// Why the kernel does not take a Spec; empty where it does. It is called before the others,
  /// which are only called where it is empty. Null: they take every Spec.
  std::string (*refuses)(const Spec&) = nullptr;
  PlanOrReason (*make)(const Spec&);
  /// With those that are known to be wrong. Null: there is one way only.
  std::vector<Candidate> (*candidates)(const Spec&) = nullptr;
};

/// A Kernel from functions.
template <class Spec>
class FunctionKernel final : public Kernel<Spec> {
 public:
  FunctionKernel(const char* implementation, const KernelFunctions<Spec>& functions)
      : implementation_(implementation), functions_(functions) {}
  const char* implementation() const override { return implementation_; }
  PlanOrReason Make(const Spec& spec) const override {
    if (std::string reason = Refuses(spec); !reason.empty())
      return PlanOrReason::None(std::move(reason));
    return functions_.make(spec);
  }
  std::vector<Candidate> AllCandidates(const Spec& spec) const override {
    if (!functions_.candidates) return Kernel<Spec>::AllCandidates(spec);
    if (!Refuses(spec).empty()) return {};
    return functions_.candidates(spec);
  }

 private:
  std::string Refuses(const Spec& spec) const {
    return functions_.refuses ? functions_.refuses(spec) : std::string();
  }
  const char* implementation_;
  KernelFunctions<Spec> functions_;
};

/// Register<ConvSpec>(DeviceKind::kCpu, "onednn", {.refuses = Refuses, .make = Make});
template <class Spec>
void Register(DeviceKind kind, const char* implementation,
              const std::type_identity_t<KernelFunctions<Spec>>& functions,
              AskedFirst first = AskedFirst::kNo) {
  AddKernel(typeid(Spec).name(), kind,
            std::make_unique<FunctionKernel<Spec>>(implementation, functions), first);
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

namespace opcheck {
/// Makes a Spec known (opcheck.h).
template <class Spec>
void RegisterSpec();
}  // namespace opcheck

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
  opcheck::RegisterSpec<Spec>();
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

#include "model/dispatch/opcheck.h"  // defines RegisterSpec

#pragma once

// Our own CUDA kernels in the registry, one function per file of kernels; alphabetical.

#include <memory>
#include <string>

#include "backend/cudnn/launch.h"
#include "model/operation/kernel.h"

namespace singa::cuda {

/// A plan of our own kernels: a function over a spec, which queues them on the device's stream.
template <class Spec>
class KernelPlan final : public Plan {
 public:
  using RunFn = void (*)(const Spec&, const Execution&);
  KernelPlan(const Spec& spec, RunFn run, size_t workspace)
      : Plan("cuda"), spec_(spec), run_(run), workspace_(workspace) {}
  void Run(const Execution& execution) const override { run_(spec_, execution); }
  size_t workspace_bytes() const override { return workspace_; }
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

/// Registers kernels that take every spec, as `reference` does. `workspace` may be null (none
/// needed).
template <class Spec, void (*run)(const Spec&, const Execution&),
          size_t (*workspace)(const Spec&) = nullptr>
void RegisterKernels() {
  Register<Spec>(
      "cuda", [](const Spec&) { return std::string(); },
      [](const Spec& spec) -> PlanPtr {
        size_t bytes = 0;
        if constexpr (workspace != nullptr) bytes = workspace(spec);
        return std::make_shared<KernelPlan<Spec>>(spec, run, bytes);
      },
      nullptr, nullptr, DeviceKind::kCuda);
}

void RegisterArgReduce();
void RegisterAxisMap();
void RegisterBatchNorm();
void RegisterBinary();
void RegisterConv();
void RegisterFoldBatchNorm();
void RegisterGather();
void RegisterIndexing();
void RegisterLoss();
void RegisterLrn();
void RegisterMatMul();
void RegisterOptimizer();
void RegisterPairLoss();
void RegisterPooling();
void RegisterRandom();
void RegisterReduce();
void RegisterSoftmax();
void RegisterUnary();
void RegisterWhere();

/// All of them.
void RegisterKernels();

}  // namespace singa::cuda

// libsinga_wrong_kernels.so, for Python tests: wrong kernels for the Specs of all operations.

#include <cstring>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>

#include "model/dispatch/op_type.h"
#include "model/operation/layout/reorder_spec.h"
#include "wrong_kernel.h"

/// Adds a wrong kernel for the Spec with this name, such as "ConvSpec" ("" means all). `wrong` is a
/// Wrong, `kind` a DeviceKind. Returns the number of kernels. Must be called before the first plan
/// is made.
extern "C" __attribute__((visibility("default"))) int singa_add_wrong_kernels(const char* spec,
                                                                              int wrong, int kind) {
  using namespace singa;
  const std::string end = std::to_string(std::strlen(spec)) + spec + "E";  // "N5singa8ConvSpecE"
  int added = 0;
  for (const std::string& name : OpTypeNames()) {
    if (*spec != '\0' && !name.ends_with(end)) continue;
    test::AddWrongKernel(name, static_cast<test::Wrong>(wrong), static_cast<DeviceKind>(kind));
    ++added;
  }
  return added;
}

/// The next run of a kernel that is Wrong::kWhenTold is wrong.
extern "C" __attribute__((visibility("default"))) void singa_tell_wrong_kernel() {
  singa::test::TellWrongKernel();
}

namespace {

/// Another plan for reorders, which changes the first byte.
class WrongReorder final : public singa::ReorderPlan {
 public:
  explicit WrongReorder(singa::PlanPtr right)
      : ReorderPlan(singa::test::kWrong), right_(std::move(right)) {}
  std::string Describe() const override { return "wrong " + right_->Describe(); }
  size_t workspace_bytes() const override { return right_->workspace_bytes(); }
  void Move(singa::Device& device, const void* src, void* dst, void* workspace) const override {
    static_cast<const ReorderPlan&>(*right_).Move(device, src, dst, workspace);
    uint8_t first = 0;
    device.CopyToHost(&first, dst, 1);
    first ^= 1;
    device.CopyFromHost(dst, &first, 1);
  }

 private:
  singa::PlanPtr right_;
};

}  // namespace

/// Makes the first kernel of reorders wrong in the first element.
extern "C" __attribute__((visibility("default"))) void singa_add_wrong_reorders(int kind) {
  using namespace singa;
  KernelList& kernels =
      test::KernelsToChange(typeid(ReorderSpec).name(), static_cast<DeviceKind>(kind));
  const Kernel right = kernels.front();
  kernels.insert(kernels.begin(), {.implementation = test::kWrong,
                                   .make = [right](const SpecRef& spec) -> PlanOrReason {
                                     const PlanOrReason made = right.Make(spec);
                                     if (!made) return made;
                                     return std::make_shared<WrongReorder>(made.plan());
                                   }});
}

/// Makes the kernels of an implementation, or of all (""), wrong in the last element of the first
/// result.
extern "C" __attribute__((visibility("default"))) void singa_spoil_kernels(
    const char* spec, const char* implementation) {
  using namespace singa;
  const std::string end = std::to_string(std::strlen(spec)) + spec + "E";
  for (const std::string& name : OpTypeNames())
    if (name.ends_with(end)) test::SpoilKernels(name, implementation);
}

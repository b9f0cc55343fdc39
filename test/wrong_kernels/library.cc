// libsinga_wrong_kernels.so, for Python tests: wrong kernels for the Specs of all operations.

#include <cstring>
#include <string>

#include "model/dispatch/op_type.h"
#include "wrong_kernel.h"

/// Adds a wrong kernel for the Spec with this name, such as "ConvSpec" ("" means all). `wrong` is a
/// Wrong. Returns the number of kernels. Must be called before the first plan is made.
extern "C" __attribute__((visibility("default"))) int singa_add_wrong_kernels(const char* spec,
                                                                              int wrong) {
  using namespace singa;
  const std::string end = std::to_string(std::strlen(spec)) + spec + "E";  // "N5singa8ConvSpecE"
  int added = 0;
  for (const std::string& name : OpTypeNames()) {
    if (*spec != '\0' && !name.ends_with(end)) continue;
    test::AddWrongKernel(name, static_cast<test::Wrong>(wrong));
    ++added;
  }
  return added;
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

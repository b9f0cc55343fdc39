// Reads single elements for spot checks.

#include "model/dispatch/spot/read_elements.h"

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/runtime/device.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    ReadElements(const void* from, DType dtype, const int64_t* positions, double* to,
                 int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep())
    to[i] = LoadAs<double>(from, dtype, positions[i]);
}

void Run(const ReadElementsSpec& spec, const Execution& execution) {
  const int64_t size = execution.outputs[0].size();
  LaunchIndependent(ReadElements, GridFor(size, kThreads), kThreads, StreamOf(execution.device),
                    execution.in<void>(0), spec.dtype, execution.in<int64_t>(1),
                    execution.out<double>(0), size);
}

}  // namespace

SINGA_KERNELS(cuda) { RegisterKernels<ReadElementsSpec, Run>(); }

}  // namespace singa::cuda

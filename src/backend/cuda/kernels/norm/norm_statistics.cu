#include "backend/cuda/kernels/norm/norm_statistics.h"

#include <cmath>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/norm/running_statistics.h"
#include "backend/cuda/runtime/launch.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    Finish(int64_t channels, double values, double epsilon, double momentum, const float* mean,
           float* inverse_to_var, float* running_mean, float* running_var) {
  const int64_t c = FirstElement();
  if (c >= channels) return;
  const double deviation = 1 / static_cast<double>(inverse_to_var[c]);
  const double var = deviation * deviation - epsilon;
  const float rounded = static_cast<float>(var < 0 ? 0.0 : var);  // keeps NaN
  inverse_to_var[c] = rounded;
  UpdateRunning(c, values, momentum, mean[c], rounded, running_mean, running_var);
}

__global__ void __launch_bounds__(kThreads)
    Invert(int64_t channels, double epsilon, const float* var, float* inverse) {
  const int64_t c = FirstElement();
  if (c < channels)
    inverse[c] = static_cast<float>(1 / std::sqrt(static_cast<double>(var[c]) + epsilon));
}

}  // namespace

void FinishStatistics(Stream stream, int64_t channels, int64_t values, double epsilon,
                      double momentum, const float* mean, float* inverse_to_var,
                      float* running_mean, float* running_var) {
  LaunchIndependent(Finish, GridFor(channels, kThreads), kThreads, stream, channels,
                    static_cast<double>(values), epsilon, momentum, mean, inverse_to_var,
                    running_mean, running_var);
}

void InverseDeviations(Stream stream, int64_t channels, double epsilon, const float* var,
                       float* inverse) {
  LaunchIndependent(Invert, GridFor(channels, kThreads), kThreads, stream, channels, epsilon, var,
                    inverse);
}

}  // namespace singa::cuda

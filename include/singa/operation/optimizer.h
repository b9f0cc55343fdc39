#pragma once

#include <memory>
#include <vector>

#include "singa/core/plan.h"
#include "singa/core/tensor.h"

// One pass over all parameters of a step: weight decay, momentum and update inside. Parameters,
// gradients and states of one index have equal shapes; gradients may be of another float type;
// states are float32 (float64 for float64). An empty gradient skips its parameter. Formulas and
// order of operations are PyTorch's.
//
// Gradients may come times a loss scale. An update then takes `squares`, the sums of squares of all
// gradients of the step (SumsOfSquares), and `loss_scale`: it divides by the scale, and is left out
// where a gradient is infinite or NaN. Both lie where the gradients do, so that nobody waits.
// `loss_scale` is float64 (4): the scale; updates since it was changed; updates that were left out;
// 1 where the last one was, and float32 has no smaller scale.

namespace singa {

/// The numbers of one update that was recorded. Handed to the update while that is recorded, and
/// then to the same function without tensors before each replay: the replay uses the numbers of
/// that call, but for weight decays, which stay.
class SINGA_API UpdateNumbers {
#ifndef SWIG
 public:
  /// The node recorded last follows them, beginning with `scalars`.
  void Follow(const Scalars& scalars);
  void Set(const Scalars& scalars);

 private:
  std::vector<std::shared_ptr<Scalars>> live_;  // one for each execution of the update
#endif
};
/// Whether an update leaves all tensors in the layouts that they have. `states`: of all parameters
/// for the first quantity, then for the next.
SINGA_API bool UpdateMovesNothing(const std::vector<Tensor>& params,
                                  const std::vector<Tensor>& grads,
                                  const std::vector<Tensor>& states);

/// g = grad + weight_decay·p; m = momentum·m + (1 − dampening)·g (m = g on the first step, when
/// `first` of the index is set); p −= lr·(nesterov ? g + momentum·m : m). Without momentum
/// `momentum_buffers` may be empty.
SINGA_API void SgdUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                         const std::vector<Tensor>& momentum_buffers,
                         const std::vector<double>& weight_decay, double lr, double momentum,
                         double dampening, bool nesterov, bool first,
                         UpdateNumbers* numbers = nullptr, const Tensor& squares = Tensor(),
                         const Tensor& loss_scale = Tensor());
/// v = rho·v + (1 − rho)·g²; p −= lr·g / sqrt(v + eps)   (SINGA: epsilon inside the root)
SINGA_API void RmsPropUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                             const std::vector<Tensor>& averages,
                             const std::vector<double>& weight_decay, double lr, double rho,
                             double epsilon, UpdateNumbers* numbers = nullptr,
                             const Tensor& squares = Tensor(), const Tensor& loss_scale = Tensor());
/// v += g²; p −= lr·g / sqrt(v + eps)
SINGA_API void AdaGradUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                             const std::vector<Tensor>& sums,
                             const std::vector<double>& weight_decay, double lr, double epsilon,
                             UpdateNumbers* numbers = nullptr, const Tensor& squares = Tensor(),
                             const Tensor& loss_scale = Tensor());
/// Adam (Kingma & Ba 2015), with weight decay in the gradient, or decoupled (AdamW, Loshchilov &
/// Hutter 2019). `step` counts from 1.
SINGA_API void AdamUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                          const std::vector<Tensor>& first_moments,
                          const std::vector<Tensor>& second_moments,
                          const std::vector<double>& weight_decay, double lr, double beta1,
                          double beta2, double epsilon, int64_t step, bool decoupled,
                          UpdateNumbers* numbers = nullptr, const Tensor& squares = Tensor(),
                          const Tensor& loss_scale = Tensor());
/// The next loss scale, after the updates of a step: PyTorch's torch.amp.GradScaler.
SINGA_API void UpdateLossScale(const Tensor& squares, const Tensor& loss_scale,
                               double growth_factor, double backoff_factor,
                               int64_t growth_interval);
/// Sums of squares of all elements (empty tensors skipped), in float64: one for each type among
/// them.
SINGA_API Tensor SumsOfSquares(const std::vector<Tensor>& tensors);
/// sqrt of the sum of squares of all elements of all tensors (empty ones skipped), in float64.
SINGA_API double GlobalNorm(const std::vector<Tensor>& tensors);
/// Multiplies every tensor in place.
SINGA_API void ScaleAll(const std::vector<Tensor>& tensors, double factor);

}  // namespace singa

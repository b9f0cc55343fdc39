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
// What depends on the gradients themselves is decided where they lie, so that nobody waits:
// UpdateConditions.

namespace singa {

/// The numbers of one update that was recorded. Handed to the update while that is recorded, and
/// then to the same function without tensors before each replay: the replay uses the numbers of
/// that call, but for weight decays and the norm of clipping, which stay.
class SINGA_API UpdateNumbers {
 public:
  /// From now on the numbers of all calls without tensors are kept ...
  void Collect() { collects_ = true; }
  /// ... for UpdateConditions: `first` updates were made before the first of them. The last ones
  /// fill the table's remaining `rows`. On the CPU.
  Tensor Table(double first, int64_t rows) const;
#ifndef SWIG
  /// The node recorded last follows them, beginning with `scalars`.
  void Follow(const Scalars& scalars);
  void Set(const Scalars& scalars);

 private:
  std::vector<std::shared_ptr<Scalars>> live_;  // one for each execution of the update
  bool collects_ = false;
  std::vector<double> collected_;
#endif
};

/// What decides about an update on the device, in tensors of float64 that lie where the gradients
/// do; empty ones decide nothing.
///
/// - `loss_scale` (4): gradients come times loss_scale[0]. The update divides by it, and is left
///   out where a gradient is infinite or NaN. Then come the updates since the scale was changed;
///   the updates that were made; 1 where the last one was left out, and float32 has no smaller
///   scale.
/// - `clip_norm`: gradients whose common 2-norm, without the loss scale, is larger are scaled down
///   to it. 0: they are not.
/// - `squares`: for both, the sums of squares of all gradients of the step (SumsOfSquares).
/// - `numbers` (1 + n, 8): how many updates were made decides about learning rate, momentum and the
///   like (UpdateNumbers::Table). Row 1 + i holds when numbers[0][0] + i updates were made before,
///   the last one from there on. Of what the update itself is given, its learning rate is a factor
///   of the table's, and its weight decays count.
struct SINGA_API UpdateConditions {
  Tensor squares{};
  Tensor loss_scale{};
  double clip_norm = 0;
  Tensor numbers{};
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
                         UpdateNumbers* numbers = nullptr,
                         const UpdateConditions& conditions = UpdateConditions());
/// v = rho·v + (1 − rho)·g²; p −= lr·g / sqrt(v + eps)   (SINGA: epsilon inside the root)
SINGA_API void RmsPropUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                             const std::vector<Tensor>& averages,
                             const std::vector<double>& weight_decay, double lr, double rho,
                             double epsilon, UpdateNumbers* numbers = nullptr,
                             const UpdateConditions& conditions = UpdateConditions());
/// v += g²; p −= lr·g / sqrt(v + eps)
SINGA_API void AdaGradUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                             const std::vector<Tensor>& sums,
                             const std::vector<double>& weight_decay, double lr, double epsilon,
                             UpdateNumbers* numbers = nullptr,
                             const UpdateConditions& conditions = UpdateConditions());
/// Adam (Kingma & Ba 2015), with weight decay in the gradient, or decoupled (AdamW, Loshchilov &
/// Hutter 2019). `step` counts from 1.
SINGA_API void AdamUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                          const std::vector<Tensor>& first_moments,
                          const std::vector<Tensor>& second_moments,
                          const std::vector<double>& weight_decay, double lr, double beta1,
                          double beta2, double epsilon, int64_t step, bool decoupled,
                          UpdateNumbers* numbers = nullptr,
                          const UpdateConditions& conditions = UpdateConditions());
/// The next loss scale and count of updates, after the updates of a step: PyTorch's
/// torch.amp.GradScaler.
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

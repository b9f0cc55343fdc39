#pragma once

#include <memory>
#include <vector>

#include "singa/core/plan.h"
#include "singa/core/tensor.h"

// Updates of all parameters in one pass, including weight decay and momentum. Formulas and order of
// operations are PyTorch's. A parameter, its gradient and its states have equal shapes. A gradient
// may have another float type than its parameter; states are float32 (float64 for float64). A
// parameter with an empty gradient is skipped.
//
// Decisions that depend on the gradients (UpdateConditions) are taken on the device, so the host
// does not wait for them.

namespace singa {

/// Hyperparameters of a recorded update. Pass it to the update function while recording. Before
/// each replay, call the same function with it and without tensors: the replay uses that call's
/// hyperparameters, except for weight decays and clip_norm, which keep their recorded values.
class SINGA_API UpdateScalars {
 public:
  /// Keeps the hyperparameters of all following calls without tensors, for Table.
  void Collect() { collects_ = true; }
  /// Makes UpdateConditions::scalars with n = `rows`, on the CPU: one row for each call since
  /// Collect; the remaining rows repeat the last one. `first` is the number of updates before the
  /// first row. Raises std::logic_error if there were no calls, or more than `rows`.
  Tensor Table(double first, int64_t rows) const;
#ifndef SWIG
  /// Makes the node recorded last use these hyperparameters, initially `scalars`.
  void Follow(const Scalars& scalars);
  void Set(const Scalars& scalars);

 private:
  std::vector<std::shared_ptr<Scalars>> live_;  // one for each execution of the update
  bool collects_ = false;
  std::vector<double> collected_;
#endif
};

/// Decisions about an update that are taken on the device. The tensors are float64, on the device
/// of the gradients. An empty tensor switches its decision off.
///
/// - `loss_scale` (4): [0] is the factor by which gradients are scaled. The update divides by it,
///   and is skipped if a gradient is infinite or NaN. [1] counts the updates since the scale
///   changed. [2] counts the updates made. [3] is 1 if the last update was skipped and float32 has
///   no smaller scale. UpdateLossScale writes it.
/// - `clip_norm`: if the 2-norm of all unscaled gradients is larger, they are scaled down to it. 0:
///   no clipping.
/// - `squares`: sums of squares of all gradients of the step (SumsOfSquares); both of the above
///   need them.
/// - `scalars` (1 + n, 8): hyperparameters by the number of updates made (UpdateScalars::Table).
///   Row 1 + i applies after scalars[0][0] + i updates, and the last row from then on. The learning
///   rate passed to the update is multiplied by the row's. Weight decays are those passed to the
///   update.
struct SINGA_API UpdateConditions {
  Tensor squares{};
  Tensor loss_scale{};
  double clip_norm = 0;
  Tensor scalars{};
};

/// True if an update keeps the layouts of all tensors. `states` has the first state of all
/// parameters, then the second, and so on.
SINGA_API bool UpdateMovesNothing(const std::vector<Tensor>& params,
                                  const std::vector<Tensor>& grads,
                                  const std::vector<Tensor>& states);

/// Moves parameters to the layouts into which an update by these gradients moves them, and changes
/// nothing else: for parameters that another process updates.
SINGA_API void MoveAsUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads);

/// SGD: g = grad + weight_decay·p; m = momentum·m + (1 − dampening)·g, or m = g if `first`; p −=
/// lr·(nesterov ? g + momentum·m : m). Without momentum `momentum_buffers` may be empty.
SINGA_API void SgdUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                         const std::vector<Tensor>& momentum_buffers,
                         const std::vector<double>& weight_decay, double lr, double momentum,
                         double dampening, bool nesterov, bool first,
                         UpdateScalars* update_scalars = nullptr,
                         const UpdateConditions& conditions = UpdateConditions());
/// RMSProp: v = rho·v + (1 − rho)·g²; p −= lr·g / sqrt(v + eps). As in SINGA, eps is inside the
/// root.
SINGA_API void RmsPropUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                             const std::vector<Tensor>& averages,
                             const std::vector<double>& weight_decay, double lr, double rho,
                             double epsilon, UpdateScalars* update_scalars = nullptr,
                             const UpdateConditions& conditions = UpdateConditions());
/// AdaGrad (Duchi et al. 2011): v += g²; p −= lr·g / sqrt(v + eps)
SINGA_API void AdaGradUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                             const std::vector<Tensor>& sums,
                             const std::vector<double>& weight_decay, double lr, double epsilon,
                             UpdateScalars* update_scalars = nullptr,
                             const UpdateConditions& conditions = UpdateConditions());
/// Adam (Kingma & Ba 2015), or AdamW (Loshchilov & Hutter 2019) if the weight decay is `decoupled`.
/// `step` counts from 1.
SINGA_API void AdamUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                          const std::vector<Tensor>& first_moments,
                          const std::vector<Tensor>& second_moments,
                          const std::vector<double>& weight_decay, double lr, double beta1,
                          double beta2, double epsilon, int64_t step, bool decoupled,
                          UpdateScalars* update_scalars = nullptr,
                          const UpdateConditions& conditions = UpdateConditions());
/// Updates the loss scale and its counts in place after the updates of a step, by the rule of
/// PyTorch's torch.amp.GradScaler.
SINGA_API void UpdateLossScale(const Tensor& squares, const Tensor& loss_scale,
                               double growth_factor, double backoff_factor,
                               int64_t growth_interval);
/// Sums of squares of all elements, in float64: one sum for each element type. Skips empty tensors.
SINGA_API Tensor SumsOfSquares(const std::vector<Tensor>& tensors);
/// 2-norm of all elements of all tensors, in float64. Skips empty tensors.
SINGA_API double GlobalNorm(const std::vector<Tensor>& tensors);
/// Multiplies each tensor by `factor` in place.
SINGA_API void ScaleAll(const std::vector<Tensor>& tensors, double factor);

}  // namespace singa

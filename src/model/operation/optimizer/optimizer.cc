#include "singa/operation/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "core/graph/recorded_step.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/optimizer/spec.h"
#include "singa/operation/elementwise.h"

namespace singa {
namespace {

DType ComputeDType(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

/// Whether `t`, which is updated in place, may move to `layout`: nothing else is in its block.
bool CanTake(const LayoutPtr& layout, const Tensor& t) {
  return SameLayout(t.layout(), layout) ||
         (t.data_type() == layout->dtype() && !t.block()->pinned() &&
          (t.layout() ||
           (t.is_contiguous() && t.block()->size() == static_cast<size_t>(t.bytes()))));
}

/// Moves a parameter and its states into the layout of its gradient, which the kernels that use the
/// parameter have chosen. They stay there. Padding stays zero, because every formula gives zero
/// where parameter, gradient and states are zero. Where they cannot move, all become row-major.
LayoutPtr SharedLayout(const Tensor& p, const Tensor& gradient, std::span<const Tensor> states,
                       bool keeps_zero) {
  LayoutPtr layout = p.layout();
  if (gradient.layout() && gradient.data_type() == p.data_type()) layout = gradient.layout();
  if (!keeps_zero || (layout && !CanTake(layout, p))) layout = nullptr;
  for (const Tensor& s : states)
    if (layout && !CanTake(layout, s)) layout = nullptr;
  return layout;
}

void ShareLayout(const char* op, const Tensor& p, const Tensor& gradient,
                 std::span<const Tensor> states, bool keeps_zero) {
  const LayoutPtr layout = SharedLayout(p, gradient, states, keeps_zero);
  p.block()->MakeLayout(layout);
  for (const Tensor& s : states) s.block()->MakeLayout(layout);
  const auto check = [&](const char* name, const Tensor& t) {
    Check(layout || t.is_contiguous(), op, name, " must be contiguous, got strides ", t.strides(),
          " for ", t);
  };
  check("parameter", p);
  for (const Tensor& s : states) check("state", s);
}

/// The gradient as the kernel reads it beside a parameter.
Tensor GradientFor(const Tensor& p, const Tensor& g) {
  if (!p.layout()) return g.Contiguous();
  return g.AsType(p.data_type()).ToLayout(p.layout());
}

const Tensor& CheckCondition(const char* op, const char* name, const Tensor& t,
                             const DevicePtr& device) {
  Check(!t.empty(), op, name, " is missing");
  CheckDType(op, name, t, kFloat64);
  Check(t.is_contiguous(), op, name, " must be contiguous, got ", t);
  Check(t.device() == device, op, name, " is on ", t.device()->name(), ", the gradients on ",
        device->name());
  return t;
}

const Tensor& CheckSquares(const char* op, const Tensor& t, const DevicePtr& device) {
  Check(t.empty() || t.rank() == 1, op, "squares must be a vector, got ", t);
  return CheckCondition(op, "squares", t, device);
}

const Tensor& CheckLossScale(const char* op, const Tensor& t, const DevicePtr& device) {
  CheckCondition(op, "loss_scale", t, device);
  CheckShapeIs(op, "loss_scale", t, {4});
  return t;
}

/// Sets the fields of `spec` that tell which conditions there are.
void Describe(const UpdateConditions& c, OptimizerSpec* spec) {
  spec->scheduled = !c.scalars.empty();
  spec->scaled = !c.loss_scale.empty() || spec->scheduled;
  spec->clipped = c.clip_norm > 0;
  Check(c.clip_norm >= 0, spec->op(), "clip_norm must be positive, or 0 for none, got ",
        c.clip_norm);
  Check(spec->scaled || spec->clipped || c.squares.empty(), spec->op(),
        "squares decide nothing without loss_scale or clip_norm");
}

/// The conditions as inputs of an update on that device.
std::vector<Tensor> Inputs(const UpdateConditions& c, const OptimizerSpec& spec,
                           const DevicePtr& device) {
  const char* op = spec.op();
  std::vector<Tensor> inputs;
  if (spec.scaled || spec.clipped) inputs.push_back(CheckSquares(op, c.squares, device));
  if (spec.scaled) inputs.push_back(CheckLossScale(op, c.loss_scale, device));
  if (spec.scheduled) {
    inputs.push_back(CheckCondition(op, "scalars", c.scalars, device));
    Check(c.scalars.rank() == 2 && c.scalars.shape()[0] > 1 &&
              c.scalars.shape()[1] == OptimizerSpec::kScalars,
          op, "scalars must be a table of rows of ", OptimizerSpec::kScalars, ", got ", c.scalars);
  }
  return inputs;
}

/// Checks the lists and updates, in one execution for each (type, device, weight decay).
/// `keeps_zero`: epsilon is positive, so no formula divides zero by zero.
void Update(OptimizerSpec spec, const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
            const std::vector<const std::vector<Tensor>*>& states,
            const std::vector<double>& weight_decay, Scalars scalars, UpdateScalars* update_scalars,
            const UpdateConditions& conditions, bool keeps_zero = true) {
  if (update_scalars && params.empty()) return update_scalars->Set(scalars);
  const char* op = spec.op();
  const size_t n = params.size();
  Check(grads.size() == n, op, grads.size(), " gradients for ", n, " parameters");
  Check(weight_decay.size() == n, op, weight_decay.size(), " weight decays for ", n, " parameters");
  for (const auto* state : states)
    Check(state->size() == n, op, state->size(), " states for ", n, " parameters");

  std::map<std::tuple<DType, Device*, double>, std::vector<size_t>> groups;
  for (size_t i = 0; i < n; ++i) {
    if (grads[i].empty()) continue;
    const Tensor& p = params[i];
    CheckFloat(op, "parameter", p);
    CheckFloat(op, "gradient", grads[i]);
    CheckShapeIs(op, "gradient", grads[i], p.shape());
    CheckSameDevice(op, "gradient", grads[i], "parameter", p);
    std::vector<Tensor> own;
    for (const auto* state : states) {
      const Tensor& s = own.emplace_back((*state)[i]);
      CheckShapeIs(op, "state", s, p.shape());
      CheckDType(op, "state", s, ComputeDType(p.data_type()));
      CheckSameDevice(op, "state", s, "parameter", p);
    }
    ShareLayout(op, p, grads[i], own, keeps_zero);
    groups[{p.data_type(), p.device().get(), weight_decay[i]}].push_back(i);
  }

  spec.states = static_cast<int>(states.size());
  Describe(conditions, &spec);
  if (spec.scheduled) scalars.v = {scalars.v[OptimizerSpec::kRate]};  // a factor; no other counts
  scalars.v[OptimizerSpec::kClipNorm] = conditions.clip_norm;
  for (const auto& [key, members] : groups) {
    std::tie(spec.dtype, std::ignore, scalars.v[OptimizerSpec::kWeightDecay]) = key;
    std::vector<Tensor> inputs, outputs;
    inputs.reserve(members.size() * (2 + states.size()));
    for (size_t i : members) inputs.push_back(params[i]);
    for (size_t i : members) inputs.push_back(GradientFor(params[i], grads[i]));
    for (const auto* state : states)
      for (size_t i : members) inputs.push_back((*state)[i]);
    for (size_t i : members) outputs.push_back(params[i]);
    outputs.insert(outputs.end(), inputs.begin() + static_cast<std::ptrdiff_t>(2 * members.size()),
                   inputs.end());
    const DevicePtr device = params[members[0]].device();
    const std::vector<Tensor> deciding = Inputs(conditions, spec, device);
    inputs.insert(inputs.end(), deciding.begin(), deciding.end());
    Run(spec, device, FindPlan(*device, spec), inputs, outputs, scalars);
    if (update_scalars) update_scalars->Follow(scalars);
  }
}

void CheckRate(const char* op, const char* name, double value, double low, double high) {
  Check(value >= low && value < high, op, name, " must be in [", low, ", ", high, "), got ", value);
}

constexpr double kNoLimit = 1e300;

}  // namespace

void UpdateScalars::Follow(const Scalars& scalars) {
  RecordedStep* step = RecordedStep::Current();
  Check<std::logic_error>(step, "optimizer", "there is no recording whose scalars to follow");
  live_.push_back(std::make_shared<Scalars>(scalars));
  step->FollowScalars(live_.back());
}

void UpdateScalars::Set(const Scalars& scalars) {
  if (collects_) collected_.insert(collected_.end(), scalars.v.begin(), scalars.v.end());
  for (const std::shared_ptr<Scalars>& live : live_) {
    const Scalars before = *live;
    *live = scalars;
    for (int own : {OptimizerSpec::kWeightDecay, OptimizerSpec::kClipNorm})
      live->v[own] = before.v[own];
  }
}

Tensor UpdateScalars::Table(double first, int64_t rows) const {
  constexpr size_t kRow = OptimizerSpec::kScalars;
  const size_t size = static_cast<size_t>(rows) * kRow;
  Check<std::logic_error>(!collected_.empty() && collected_.size() <= size, "optimizer",
                          "no scalars were collected, or more than ", rows);
  std::vector<double> values(kRow);
  values[0] = first;
  values.insert(values.end(), collected_.begin(), collected_.end());
  while (values.size() < kRow + size) values.push_back(values[values.size() - kRow]);
  Tensor table({rows + 1, kRow}, nullptr, kFloat64);
  table.CopyFromHost(values.data(), values.size() * sizeof(double));
  return table;
}

bool UpdateMovesNothing(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                        const std::vector<Tensor>& states) {
  const char* op = "UpdateMovesNothing";
  const size_t n = params.size();
  Check(grads.size() == n, op, grads.size(), " gradients for ", n, " parameters");
  Check(n > 0 ? states.size() % n == 0 : states.empty(), op, states.size(), " states for ", n,
        " parameters");
  for (const Tensor& p : params) CheckGiven(op, "parameter", p);
  for (const Tensor& s : states) CheckGiven(op, "state", s);
  for (size_t i = 0; i < n; ++i) {
    if (grads[i].empty()) continue;  // no update
    std::vector<Tensor> own;
    for (size_t s = i; s < states.size(); s += n) own.push_back(states[s]);
    const LayoutPtr layout = SharedLayout(params[i], grads[i], own, true);
    own.push_back(params[i]);
    for (const Tensor& t : own)
      if (!SameLayout(t.layout(), layout)) return false;
  }
  return true;
}

void MoveAsUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads) {
  const char* op = "MoveAsUpdate";
  Check(grads.size() == params.size(), op, grads.size(), " gradients for ", params.size(),
        " parameters");
  for (size_t i = 0; i < params.size(); ++i) {
    if (grads[i].empty()) continue;
    CheckFloat(op, "parameter", params[i]);
    CheckShapeIs(op, "gradient", grads[i], params[i].shape());
    ShareLayout(op, params[i], grads[i], {}, true);
  }
}

void SgdUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
               const std::vector<Tensor>& momentum_buffers, const std::vector<double>& weight_decay,
               double lr, double momentum, double dampening, bool nesterov, bool first,
               UpdateScalars* update_scalars, const UpdateConditions& conditions) {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kSgd;
  spec.nesterov = nesterov;
  spec.first = first;
  CheckRate(spec.op(), "momentum", momentum, 0, kNoLimit);
  Check(!nesterov || (momentum > 0 && dampening == 0), spec.op(),
        "nesterov needs a momentum and no dampening, got momentum ", momentum, ", dampening ",
        dampening);
  Scalars scalars;
  scalars.v = {lr, 0, momentum, dampening};
  if (momentum == 0) {
    Update(spec, params, grads, {}, weight_decay, scalars, update_scalars, conditions);
  } else {
    Update(spec, params, grads, {&momentum_buffers}, weight_decay, scalars, update_scalars,
           conditions);
  }
}

void RmsPropUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                   const std::vector<Tensor>& averages, const std::vector<double>& weight_decay,
                   double lr, double rho, double epsilon, UpdateScalars* update_scalars,
                   const UpdateConditions& conditions) {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kRmsProp;
  CheckRate(spec.op(), "rho", rho, 0, 1);
  CheckRate(spec.op(), "epsilon", epsilon, 0, kNoLimit);
  Scalars scalars;
  scalars.v = {lr, 0, rho, epsilon};
  Update(spec, params, grads, {&averages}, weight_decay, scalars, update_scalars, conditions,
         epsilon > 0);
}

void AdaGradUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                   const std::vector<Tensor>& sums, const std::vector<double>& weight_decay,
                   double lr, double epsilon, UpdateScalars* update_scalars,
                   const UpdateConditions& conditions) {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kAdaGrad;
  CheckRate(spec.op(), "epsilon", epsilon, 0, kNoLimit);
  Scalars scalars;
  scalars.v = {lr, 0, 0, epsilon};
  Update(spec, params, grads, {&sums}, weight_decay, scalars, update_scalars, conditions,
         epsilon > 0);
}

void AdamUpdate(const std::vector<Tensor>& params, const std::vector<Tensor>& grads,
                const std::vector<Tensor>& first_moments, const std::vector<Tensor>& second_moments,
                const std::vector<double>& weight_decay, double lr, double beta1, double beta2,
                double epsilon, int64_t step, bool decoupled, UpdateScalars* update_scalars,
                const UpdateConditions& conditions) {
  OptimizerSpec spec;
  spec.kind = OptimizerKind::kAdam;
  spec.decoupled = decoupled;
  CheckRate(spec.op(), "beta1", beta1, 0, 1);
  CheckRate(spec.op(), "beta2", beta2, 0, 1);
  CheckRate(spec.op(), "epsilon", epsilon, 0, kNoLimit);
  Check(step >= 1, spec.op(), "step counts from 1, got ", step);
  Scalars scalars;
  const double exponent = static_cast<double>(step);
  scalars.v = {lr,
               0,
               beta1,
               beta2,
               epsilon,
               1 - std::pow(beta1, exponent),
               std::sqrt(1 - std::pow(beta2, exponent))};
  Update(spec, params, grads, {&first_moments, &second_moments}, weight_decay, scalars,
         update_scalars, conditions, epsilon > 0);
}

void UpdateLossScale(const Tensor& squares, const Tensor& loss_scale, double growth_factor,
                     double backoff_factor, int64_t growth_interval) {
  const LossScaleSpec spec;
  Check(!loss_scale.empty(), spec.op(), "loss_scale is missing");
  const DevicePtr device = loss_scale.device();
  CheckSquares(spec.op(), squares, device);
  CheckLossScale(spec.op(), loss_scale, device);
  CallOptions options;
  options.scalars.v = {growth_factor, backoff_factor, static_cast<double>(growth_interval)};
  loss_scale.block()->MakePlain();
  Call(spec, {squares, loss_scale}, options);
}

Tensor SumsOfSquares(const std::vector<Tensor>& tensors) {
  std::map<int, std::vector<Tensor>> by_type;
  for (const Tensor& t : tensors) {
    if (t.empty()) continue;
    CheckFloat("GlobalNorm", "tensor", t);
    // The order does not matter, and padding adds nothing.
    by_type[t.data_type()].push_back(t.layout() ? t : t.Contiguous());
  }
  const DevicePtr device = by_type.empty() ? nullptr : by_type.begin()->second[0].device();
  const Tensor sums(Shape{static_cast<int64_t>(by_type.size())}, device, kFloat64);
  int64_t i = 0;
  for (const auto& [dtype, inputs] : by_type) {
    for (const Tensor& t : inputs) CheckSameDevice("GlobalNorm", "tensor", t, "first one", sums);
    const SumSquareSpec spec{static_cast<DType>(dtype)};
    const Tensor outputs[] = {sums.SliceAxis(0, i, i + 1).Reshape({})};
    Run(spec, device, FindPlan(*device, spec), inputs, outputs);
    ++i;
  }
  return sums;
}

double GlobalNorm(const std::vector<Tensor>& tensors) {
  const Tensor sums = SumsOfSquares(tensors);
  std::vector<double> values(static_cast<size_t>(sums.size()));
  sums.CopyToHost(values.data(), values.size() * sizeof(double));
  return std::sqrt(std::accumulate(values.begin(), values.end(), 0.0));
}

void ScaleAll(const std::vector<Tensor>& tensors, double factor) {
  for (const Tensor& t : tensors)
    if (!t.empty()) UnaryInto(UnaryOp::kMulScalar, t, t, factor);
}

namespace {

/// The layout of a parameter, its gradient and its states: all contiguous, or all in one opaque
/// layout, except for its type.
void CheckAlike(const CallChecker& call, const LayoutPtr& layout, DType dtype,
                const LayoutPtr& wanted) {
  const LayoutPtr same = wanted && wanted->dtype() != dtype ? wanted->WithType(dtype) : wanted;
  call.Require((same || !wanted) && SameLayout(layout, same),
               "parameter, gradient and states lie in different layouts");
}

}  // namespace

void OptimizerSpec::CheckCall(CallChecker& call) const {
  call.RequireFloat("parameter", dtype);
  const OptimizerFacts& facts = FactsOf(kind);
  call.Require(states >= facts.least_states && states <= facts.most_states, "cannot have ", states,
               " states");
  call.Require((!scheduled || scaled) && clipped == (call.scalars().v[kClipNorm] > 0),
               "no update has these conditions");
  const size_t per_parameter = static_cast<size_t>(2 + states), all = call.num_inputs();
  call.Require(all > conditions() && (all - conditions()) % per_parameter == 0,
               "parameters, gradients and states differ in number: ", all, " inputs");
  const size_t n = count(all);
  const auto shape = [&](size_t i) { return call.ShapeOfInput(i); };
  for (size_t i = 0; i < n; ++i) call.Input("parameter", shape(i), dtype);
  for (size_t i = 0; i < n; ++i) {
    const DType gradient = call.TypeOfInput(n + i);
    call.RequireFloat("gradient", gradient);
    call.Input("gradient", shape(i), gradient);
    CheckAlike(call, call.input_place(n + i).layout, gradient, call.input_place(i).layout);
  }
  for (size_t s = 2; s < per_parameter; ++s)
    for (size_t i = 0; i < n; ++i) {
      call.Input("state", shape(i), ComputeDType(dtype));
      CheckAlike(call, call.input_place(s * n + i).layout, ComputeDType(dtype),
                 call.input_place(i).layout);
    }
  if (scaled || clipped)
    call.Input("squares", {call.ShapeOfInput(all - conditions()).Count()}, kFloat64);
  if (scaled) call.Input("loss_scale", {4}, kFloat64);
  if (scheduled) {
    const Shape table = shape(all - 1);
    call.Require(table.rank() == 2 && table[0] > 1 && table[1] == kScalars,
                 "scalars must be a table of rows of ", kScalars, ", got ", table);
    call.Input("scalars", table, kFloat64);
    const double row =
        call.Values<double>(call.input(all - 2))[2] - call.Values<double>(call.input(all - 1))[0];
    call.Require(row >= 0, "scalars has no row ", row);
  }
  for (size_t i = 0; i < n; ++i)
    call.Output("parameter", shape(i), dtype, {.same_as = static_cast<int>(i)});
  for (size_t i = 2 * n; i < per_parameter * n; ++i)
    call.Output("state", shape(i % n), ComputeDType(dtype), {.same_as = static_cast<int>(i)});
  call.KeepsPlaces();
}

void SumSquareSpec::CheckCall(CallChecker& call) const {
  call.RequireFloat("tensor", dtype);
  call.Require(call.num_inputs() > 0, "needs a tensor");
  for (size_t i = 0; i < call.num_inputs(); ++i) {
    call.RequireFloat("tensor", call.TypeOfInput(i));
    call.Input("tensor", call.ShapeOfInput(i), call.TypeOfInput(i));
  }
  call.Output("sum", {1}, kFloat64, {.flat = true});
  call.KeepsPlaces();
}

}  // namespace singa

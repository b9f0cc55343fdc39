#include "singa/operation/rnn.h"

#include <algorithm>

#include "core/graph/recorded_step.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/rnn/spec.h"

namespace singa {

namespace {

constexpr int64_t kMostUnits = int64_t{1} << 24;  // of a layer; keeps products of sizes in range

RnnFields FieldsOf(const RnnHandle& handle, const Tensor& x, const Tensor& W = Tensor()) {
  return {handle.mode,
          x.data_type(),
          x.shape()[0],
          x.shape()[1],
          handle.input_size,
          handle.hidden_size,
          handle.num_layers,
          handle.directions,
          handle.bias,
          handle.num_layers > 1 ? handle.dropout : 0,
          true,
          AlignmentOf({&W})};
}

void CheckSizes(const char* op, int64_t input, int64_t hidden, int64_t layers, double dropout) {
  Check(input > 0 && input <= kMostUnits, op, "x must have between 1 and ", kMostUnits,
        " features, got ", input);
  Check(hidden > 0 && hidden <= kMostUnits, op, "hidden_size must be between 1 and ", kMostUnits,
        ", got ", hidden);
  Check(layers > 0 && layers <= 1024, op, "num_layers must be between 1 and 1024, got ", layers);
  Check(dropout >= 0 && dropout < 1, op, "dropout must be in [0, 1), got ", dropout);
}

void CheckSequence(const char* op, const RnnHandle& handle, const Tensor& x) {
  CheckFloat(op, "x", x);
  Check(x.rank() == 3 && x.shape()[0] > 0 && x.shape()[2] == handle.input_size, op,
        "x must be (seq > 0, batch, ", handle.input_size, "), got ", x);
}

// `t` is empty, or has x's type and device.
void CheckPart(const char* op, const char* name, const Tensor& t, const Shape& shape,
               const Tensor& x) {
  if (t.empty()) return;
  CheckShapeIs(op, name, t, shape);
  CheckDType(op, name, t, x.data_type());
  CheckSameDevice(op, name, t, "x", x);
}

void CheckArguments(const char* op, const RnnHandle& handle, const Tensor& x, const Tensor& hx,
                    const Tensor& cx, const Tensor& W, const Tensor& seq_lengths) {
  const int64_t batch = x.shape()[1];
  const Shape state{handle.num_layers * handle.directions, batch, handle.hidden_size};
  CheckPart(op, "hx", hx, state, x);
  CheckPart(op, "cx", cx, state, x);
  Check(cx.empty() || handle.mode == RnnMode::kLstm, op, "only an LSTM has a cx");
  CheckGiven(op, "W", W);
  CheckPart(op, "W", W, {handle.weights_size}, x);
  if (seq_lengths.empty()) return;
  CheckDType(op, "seq_lengths", seq_lengths, kInt32);
  CheckShapeIs(op, "seq_lengths", seq_lengths, {batch});
  const auto on_cpu = [](const Tensor& t) { return t.device()->kind() == DeviceKind::kCpu; };
  if (on_cpu(x) || !on_cpu(seq_lengths)) CheckSameDevice(op, "seq_lengths", seq_lengths, "x", x);
}

/// Lengths may be on the CPU, except in a recorded step, which has one device.
Tensor Lengths(const Tensor& seq_lengths, const DevicePtr& device) {
  const bool moves = !seq_lengths.empty() && RecordedStep::Current();
  return moves ? seq_lengths.ToDevice(device) : seq_lengths;
}

/// The tensor that the plan of a forward pass saves for backward.
Tensor NewSaved(const Plan& plan, const RnnFields& fields, const DevicePtr& device) {
  if (const size_t bytes = plan.private_bytes(3))
    return Tensor({static_cast<int64_t>(bytes)}, device, kUInt8);
  return NewOutput(plan, 3, {fields.saved_size()}, device, fields.saved_dtype());
}

}  // namespace

void RnnBackwardSpec::ReferenceInputs(std::vector<Tensor>* inputs) const {
  std::vector<Tensor>& in = *inputs;
  Tensor& kept = in[8];
  if (saved != SavedForm::kCommon || FormOf(kept) == SavedForm::kCommon) return;
  RnnForwardSpec forward{*this};
  forward.training = true;
  const DevicePtr device = kept.device();
  const PlanPtr plan = FindKernel<RnnForwardSpec>("reference")->Make(forward).plan();
  const auto fresh = [&](const Shape& shape) { return Tensor(shape, device, dtype); };
  const Shape state{layers * directions, batch, hidden};
  kept = Tensor({saved_size()}, device, saved_dtype());
  const Tensor outputs[] = {fresh({steps, batch, width()}), fresh(state),
                            has_cells() ? fresh(state) : Tensor(), kept};
  const Tensor of_forward[] = {in[3], in[4], in[5], in[6], in[7]};
  device->Exec(forward.op(), plan, of_forward, outputs);
}

RnnHandle::RnnHandle(const Tensor& x, int64_t hidden_size, RnnMode mode, int64_t num_layers,
                     bool bias, double dropout, bool bidirectional)
    : input_size(0),
      hidden_size(hidden_size),
      num_layers(num_layers),
      directions(bidirectional ? 2 : 1),
      mode(mode),
      bias(bias),
      dropout(dropout) {
  const char* op = "RnnHandle";
  CheckGiven(op, "x", x);
  Check(x.rank() == 3, op, "x must be (seq, batch, input), got ", x);
  input_size = x.shape()[2];
  CheckSizes(op, input_size, hidden_size, num_layers, dropout);
  Check(mode >= RnnMode::kRelu && mode <= RnnMode::kGruResetBefore, op, "unknown mode ",
        static_cast<int>(mode));
  weights_size = FieldsOf(*this, x).weights_size();
}

std::vector<Tensor> RnnForward(const RnnHandle& handle, const Tensor& x, const Tensor& hx,
                               const Tensor& cx, const Tensor& W, const Tensor& seq_lengths,
                               bool training) {
  const char* op = "RnnForward";
  CheckSequence(op, handle, x);
  CheckArguments(op, handle, x, hx, cx, W, seq_lengths);
  RnnForwardSpec spec{FieldsOf(handle, x, W)};
  spec.training = training;
  if (!training) spec.dropout = 0;
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Shape state{handle.num_layers * handle.directions, spec.batch, spec.hidden};
  const Tensor y =
      NewOutput(*plan, 0, {spec.steps, spec.batch, spec.width()}, device, x.data_type());
  const Tensor hy = NewOutput(*plan, 1, state, device, x.data_type());
  Tensor cy, saved;
  if (spec.has_cells()) cy = NewOutput(*plan, 2, state, device, x.data_type());
  if (training) saved = NewSaved(*plan, spec, device);
  Scalars scalars;
  scalars.v[0] = spec.dropout;
  if (spec.mask_size() > 0) device->TakeRandom(static_cast<uint64_t>(spec.mask_size()), &scalars);
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, x), InPlanLayout(*plan, 1, hx), InPlanLayout(*plan, 2, cx),
       InPlanLayout(*plan, 3, W), InPlanLayout(*plan, 4, Lengths(seq_lengths, device))},
      {y, hy, cy, saved}, scalars);
  return {y, hy, cy, saved};
}

std::vector<Tensor> RnnBackward(const RnnHandle& handle, const Tensor& dy, const Tensor& dhy,
                                const Tensor& dcy, const Tensor& x, const Tensor& hx,
                                const Tensor& cx, const Tensor& W, const Tensor& y,
                                const Tensor& seq_lengths, const Tensor& saved) {
  const char* op = "RnnBackward";
  CheckSequence(op, handle, x);
  CheckArguments(op, handle, x, hx, cx, W, seq_lengths);
  const RnnBackwardSpec spec{FieldsOf(handle, x, W), FormOf(saved)};
  const Shape y_shape{spec.steps, spec.batch, spec.width()};
  const Shape state{handle.num_layers * handle.directions, spec.batch, spec.hidden};
  CheckPart(op, "dy", dy, y_shape, x);
  CheckPart(op, "y", y, y_shape, x);
  CheckPart(op, "dhy", dhy, state, x);
  CheckPart(op, "dcy", dcy, state, x);
  Check(dcy.empty() || spec.has_cells(), op, "only an LSTM has a dcy");
  CheckGiven(op, "saved (forward with training = true makes it)", saved);
  CheckSameDevice(op, "saved", saved, "x", x);
  if (spec.saved == SavedForm::kCommon) {
    CheckShapeIs(op, "saved", saved, {spec.saved_size()});
    CheckDType(op, "saved", saved, spec.saved_dtype());
  }
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor dx = NewOutput(*plan, 0, x.shape(), device, x.data_type());
  const Tensor dhx = NewOutput(*plan, 1, state, device, x.data_type());
  Tensor dcx;
  if (spec.has_cells()) dcx = NewOutput(*plan, 2, state, device, x.data_type());
  const Tensor dw = NewOutput(*plan, 3, W.shape(), device, x.data_type());
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, dhy), InPlanLayout(*plan, 2, dcy),
       InPlanLayout(*plan, 3, x), InPlanLayout(*plan, 4, hx), InPlanLayout(*plan, 5, cx),
       InPlanLayout(*plan, 6, W), InPlanLayout(*plan, 7, Lengths(seq_lengths, device)),
       InPlanLayout(*plan, 8, saved)},
      {dx, dhx, dcx, dw});
  return {dx, dhx, dcx, dw};
}

namespace {

void CheckFields(const RnnFields& f, const CallChecker& call) {
  call.RequireFloat("x", f.dtype);
  call.Require(f.steps > 0 && f.batch >= 0, "cannot have ", f.steps, " steps and ", f.batch,
               " sequences");
  call.RequireShape({f.steps, f.batch, std::max(f.input, f.hidden)});
  CheckSizes(call.op(), f.input, f.hidden, f.layers, f.dropout);
  call.Require(f.directions == 1 || f.directions == 2, "cannot have ", f.directions, " directions");
  call.Require(f.dropout == 0 || (f.layers > 1 && f.training),
               "dropout is between layers, and for training");
  call.RequireAlignment(f.alignment);
}

Shape StateShape(const RnnFields& f) { return {f.layers * f.directions, f.batch, f.hidden}; }
Shape OutputShape(const RnnFields& f) { return {f.steps, f.batch, f.width()}; }

/// The cell states, which only LSTM has.
void CheckCells(const RnnFields& f, CallChecker& call, const char* name) {
  if (f.has_cells()) {
    call.OptionalInput(name, StateShape(f), f.dtype);
  } else {
    call.NoInput(name);
  }
}

}  // namespace

void RnnForwardSpec::CheckCall(CallChecker& call) const {
  CheckFields(*this, call);
  call.Input("x", {steps, batch, input}, dtype);
  call.OptionalInput("hx", StateShape(*this), dtype);
  CheckCells(*this, call, "cx");
  call.Input("W", {weights_size()}, dtype);
  call.OptionalInput("seq_lengths", {batch}, kInt32);
  call.Output("y", OutputShape(*this), dtype);
  call.Output("hy", StateShape(*this), dtype);
  call.OutputIf(has_cells(), "cy", StateShape(*this), dtype);
  call.SavedOutputIf(training, "saved", {saved_size()}, saved_dtype());
}

void RnnBackwardSpec::CheckCall(CallChecker& call) const {
  CheckFields(*this, call);
  call.OptionalInput("dy", OutputShape(*this), dtype);
  call.OptionalInput("dhy", StateShape(*this), dtype);
  CheckCells(*this, call, "dcy");
  call.Input("x", {steps, batch, input}, dtype);
  call.OptionalInput("hx", StateShape(*this), dtype);
  CheckCells(*this, call, "cx");
  call.Input("W", {weights_size()}, dtype);
  call.OptionalInput("seq_lengths", {batch}, kInt32);
  const Tensor& kept = call.AnyInput("saved");
  call.Require(FormOf(kept) == saved, "saved is in another form than the one named: ", kept);
  call.Output("dx", {steps, batch, input}, dtype);
  call.Output("dhx", StateShape(*this), dtype);
  call.OutputIf(has_cells(), "dcx", StateShape(*this), dtype);
  call.Output("dW", {weights_size()}, dtype);
  call.Require(saved != SavedForm::kCommon ||
                   (kept.shape() == Shape{saved_size()} && kept.data_type() == saved_dtype()),
               "saved must be (", saved_size(), ",) ", DTypeName(saved_dtype()), ", got ", kept);
}

}  // namespace singa

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

/// The arguments that both directions have; Call checks the others.
void CheckArguments(const char* op, const RnnHandle& handle, const Tensor& x, const Tensor& cx,
                    const Tensor& seq_lengths) {
  Check(cx.empty() || handle.mode == RnnMode::kLstm, op, "only an LSTM has a cx");
  if (seq_lengths.empty()) return;
  const auto on_cpu = [](const Tensor& t) { return t.device()->kind() == DeviceKind::kCpu; };
  if (on_cpu(x) || !on_cpu(seq_lengths)) CheckSameDevice(op, "seq_lengths", seq_lengths, "x", x);
}

/// Lengths may be on the CPU, except in a recorded step, which has one device.
Tensor Lengths(const Tensor& seq_lengths, const DevicePtr& device) {
  const bool moves = !seq_lengths.empty() && RecordedStep::Current();
  return moves ? seq_lengths.ToDevice(device) : seq_lengths;
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
  kept = Tensor({saved_size()}, device, saved_dtype());
  const Tensor outputs[] = {fresh(y_shape()), fresh(state_shape()),
                            has_cells() ? fresh(state_shape()) : Tensor(), kept};
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
  CheckArguments(op, handle, x, cx, seq_lengths);
  RnnForwardSpec spec{FieldsOf(handle, x, W)};
  spec.training = training;
  if (!training) spec.dropout = 0;
  const DevicePtr device = x.device();
  CallOptions options;
  options.scalars.v[0] = spec.dropout;
  if (spec.mask_size() > 0)
    device->TakeRandom(static_cast<uint64_t>(spec.mask_size()), &options.scalars);
  return CallForAll(spec, {x, hx, cx, W, Lengths(seq_lengths, device)}, options);
}

std::vector<Tensor> RnnBackward(const RnnHandle& handle, const Tensor& dy, const Tensor& dhy,
                                const Tensor& dcy, const Tensor& x, const Tensor& hx,
                                const Tensor& cx, const Tensor& W, const Tensor& y,
                                const Tensor& seq_lengths, const Tensor& saved) {
  const char* op = "RnnBackward";
  CheckSequence(op, handle, x);
  CheckArguments(op, handle, x, cx, seq_lengths);
  const RnnBackwardSpec spec{FieldsOf(handle, x, W), FormOf(saved)};
  if (!y.empty()) {
    CheckShapeIs(op, "y", y, spec.y_shape());
    CheckDType(op, "y", y, x.data_type());
  }
  Check(dcy.empty() || spec.has_cells(), op, "only an LSTM has a dcy");
  CheckGiven(op, "saved (forward with training = true makes it)", saved);
  return CallForAll(spec, {dy, dhy, dcy, x, hx, cx, W, Lengths(seq_lengths, x.device()), saved});
}

void RnnFields::CheckFields(const CallChecker& call) const {
  call.RequireFloat("x", dtype);
  call.Require(steps > 0 && batch >= 0, "cannot have ", steps, " steps and ", batch, " sequences");
  call.RequireShape({steps, batch, std::max(input, hidden)});
  CheckSizes(call.op(), input, hidden, layers, dropout);
  call.Require(directions == 1 || directions == 2, "cannot have ", directions, " directions");
  call.Require(dropout == 0 || (layers > 1 && training),
               "dropout is between layers, and for training");
  call.RequireAlignment(alignment);
}

void RnnBackwardSpec::CheckFields(const CallChecker& call) const {
  RnnFields::CheckFields(call);
  call.Require(saved != SavedForm::kNone, "backward needs what forward has saved");
}

}  // namespace singa

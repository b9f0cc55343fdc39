#include "singa/operation/dropout.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/random/spec.h"

namespace singa {

namespace {

void CheckRatio(const char* op, double ratio) {
  Check(ratio >= 0 && ratio < 1, op, "ratio ", ratio, " is not in [0, 1)");
}

}  // namespace

std::vector<Tensor> DropoutForward(const Tensor& x, double ratio) {
  const DropoutSpec spec{x.data_type(), x.layout()};
  CheckFloat(spec.op(), "x", x);
  CheckRatio(spec.op(), ratio);
  CallOptions options;
  options.scalars.v[0] = ratio;
  x.device()->TakeRandom(static_cast<uint64_t>(x.size()), &options.scalars);
  return CallForAll(spec, {x}, options);
}

Tensor DropoutBackward(const Tensor& dy, const Tensor& mask, double ratio) {
  const DropoutBackwardSpec spec{dy.data_type(), mask.layout()};
  CheckFloat(spec.op(), "dy", dy);
  CheckRatio(spec.op(), ratio);
  CallOptions options;
  options.scalars.v[0] = ratio;
  return Call(spec, {dy, mask}, options);
}

void DropoutSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("x", dtype);
  CheckRatio(call.op(), call.scalars().v[0]);
  call.Require(skip >= 0, "cannot skip ", skip, " random words");
}

void DropoutBackwardSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("dy", dtype);
  CheckRatio(call.op(), call.scalars().v[0]);
}

}  // namespace singa

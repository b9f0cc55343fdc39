#include "model/operation/conv/norm_conv_spec.h"

#include "model/dispatch/call_check.h"
#include "model/operation/check.h"

namespace singa {

MeasuredCall NormConvSpec::Measured() const {
  MeasuredCall call = ConvSpec::Measured();
  if (!has_norm) return call;
  for (const bool there : {true, true, has_scale, has_bias})
    call.inputs.push_back(
        {.shape = {geometry.in_channels}, .dtype = StatisticsType(dtype), .absent = !there});
  return call;
}

void NormConvSpec::CheckCall(CallChecker& call) const {
  call.Require(
      (pass == ConvPass::kForward || pass == ConvPass::kBackwardW) && !has_add,
      "a batch norm or an activation is in front of a forward pass without addition, or of a "
      "gradient of the filters");
  call.Require(has_norm || (pass == ConvPass::kForward && activation && epsilon == 0 &&
                            !has_scale && !has_bias),
               "without a batch norm, a forward pass has only an activation in front");
  CheckEpsilon(call.op(), epsilon);
  CheckActivation(call.op(), activation);
  ConvSpec::CheckCall(call);
  if (!has_norm) return;
  const DType statistics = StatisticsType(dtype);
  const Shape channels{geometry.in_channels};
  call.Input("mean", channels, statistics);
  call.Input("var", channels, statistics);
  call.InputIf(has_scale, "scale", channels, statistics);
  call.InputIf(has_bias, "bias", channels, statistics);
}

}  // namespace singa

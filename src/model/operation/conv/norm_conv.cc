#include "model/operation/conv/norm_conv_spec.h"

#include "model/dispatch/call_check.h"
#include "model/operation/check.h"

namespace singa {

void NormConvSpec::CheckFields(const CallChecker& call) const {
  call.Require(
      (pass == ConvPass::kForward || pass == ConvPass::kBackwardW) && !has_add,
      "a batch norm or an activation is in front of a forward pass without addition, or of a "
      "gradient of the filters");
  call.Require(
      has_norm || (pass == ConvPass::kForward && front && epsilon == 0 && !has_scale && !has_bias),
      "without a batch norm, a forward pass has only an activation in front");
  CheckEpsilon(call.op(), epsilon);
  CheckActivation(call.op(), front);
  ConvSpec::CheckFields(call);
}

}  // namespace singa

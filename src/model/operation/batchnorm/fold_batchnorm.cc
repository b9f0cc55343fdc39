#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/check.h"
#include "singa/operation/batchnorm.h"

namespace singa {

std::vector<Tensor> FoldBatchNorm(const Tensor& W, const Tensor& b, const Tensor& scale,
                                  const Tensor& bias, const Tensor& running_mean,
                                  const Tensor& running_var, double epsilon) {
  FoldBatchNormSpec spec;
  const char* op = spec.op();
  CheckFloat(op, "W", W);
  Check(W.rank() >= 2, op, "W must have shape (out, ...), got ", W);
  CheckEpsilon(op, epsilon);
  spec.filters = W.shape(0);
  spec.length = W.shape().Count(1, W.rank());
  spec.dtype = W.data_type();
  spec.epsilon = epsilon;
  return CallForAll(spec, {W, b, scale, bias, running_mean, running_var});
}

void FoldBatchNormSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("W", dtype);
  call.RequireShape({filters, length});
  CheckEpsilon(call.op(), epsilon);
}

}  // namespace singa

#include "model/operation/conv/expand_conv_spec.h"

#include <utility>

#include "model/dispatch/call_check.h"
#include "model/dispatch/dispatch.h"
#include "model/dispatch/opcheck/difference.h"
#include "model/operation/check.h"

namespace singa {

ConvSpec ExpandConvSpec::Inner() const {
  ConvSpec inner = *this;
  const auto axes = static_cast<size_t>(geometry.spatial);
  const std::vector<int64_t> ones(axes, 1);
  inner.geometry = ConvRecorder(op(), x_shape(), ones, ones, std::vector<int64_t>(axes, 0),
                                geometry.in_channels, has_shift, ones, 1);
  inner.activation = front;
  inner.dy_layout = nullptr;
  return inner;
}

void ExpandConvSpec::CheckFields(const CallChecker& call) const {
  call.Require(pass == ConvPass::kForward && !has_add && channels >= 1,
               "an image with channels is expanded in front of a forward pass without addition");
  CheckActivation(call.op(), front);
  call.RequireShape(expand_shape());
  call.RequireShape(x_shape());
  CheckAs(call, x_shape(), geometry.output_shape());
}

std::vector<Tensor> ExpandConvSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  const auto run = [&](ConvSpec spec, std::vector<Tensor> tensors) {
    spec.dtype = kFloat64;
    spec.x_layout = spec.dy_layout = nullptr;
    spec.activation = {};
    const Tensor result(spec.geometry.output_shape(), nullptr, kFloat64);
    const PlanPtr plan = FindKernel<ConvSpec>(kReference)->Make(spec).plan();
    DefaultDevice()->Exec(op(), plan, tensors, {&result, 1}, Scalars());
    return result;
  };
  std::vector<Tensor> magnitudes;
  for (const Tensor& t : inputs) magnitudes.push_back(opcheck::AbsoluteValue(t.AsType(kFloat64)));
  std::vector<Tensor> inner = {magnitudes[0]};
  const auto at = magnitudes.begin() + static_cast<std::ptrdiff_t>(expand_input());
  inner.insert(inner.end(), at, magnitudes.end());
  magnitudes.erase(at, magnitudes.end());
  magnitudes[0] = run(Inner(), std::move(inner));
  return {run(*this, std::move(magnitudes))};
}

Tensor RunConvForward(ExpandConvSpec spec, const Tensor& x, const Tensor& W, const Tensor& b,
                      const Tensor& V, const Tensor& c) {
  spec.x_layout = x.layout();
  spec.alignment = AlignmentOf({&x, &W, &b, &V, &c});
  return Call(spec, {x, W, b, Tensor(), V, c}, {.zeros = x.size() == 0, .plan = spec.choice});
}

}  // namespace singa

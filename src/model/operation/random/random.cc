#include "singa/operation/random.h"

#include <cmath>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/random/spec.h"

namespace singa {

namespace {

void CheckScalars(RandomKind kind, double a, double b) {
  const char* op = RandomSpec{kind, kFloat32}.op();
  switch (kind) {
    case RandomKind::kUniform:
      return Check(std::isfinite(a) && std::isfinite(b) && a <= b, op, "low ", a, " and high ", b,
                   " must be finite, low not above high");
    case RandomKind::kGaussian:
      return Check(std::isfinite(a) && std::isfinite(b) && b >= 0, op, "mean ", a, " and std ", b,
                   " must be finite, std not negative");
    case RandomKind::kBernoulli:
      return Check(a >= 0 && a <= 1, op, "p ", a, " is not in [0, 1]");
  }
}

void Fill(RandomKind kind, const Tensor& out, double a, double b) {
  const RandomSpec spec{kind, out.data_type()};
  const DevicePtr device = out.device();
  Scalars scalars;
  scalars.v[0] = a;
  scalars.v[1] = b;
  device->TakeRandom(static_cast<uint64_t>(out.size()) * WordsPerElement(spec.dtype), &scalars);
  // Numbers go to the elements in logical order, whatever their layout.
  const Tensor target = out.is_contiguous() ? out : Tensor(out.shape(), device, out.data_type());
  Run(spec, device, FindPlan(*device, spec), {}, {target}, scalars);
  if (target.block() != out.block()) Tensor(out).CopyFrom(target);
}

}  // namespace

void Uniform(double low, double high, const Tensor& out) {
  CheckFloat("Uniform", "out", out);
  CheckScalars(RandomKind::kUniform, low, high);
  Fill(RandomKind::kUniform, out, low, high);
}

void Gaussian(double mean, double std, const Tensor& out) {
  CheckFloat("Gaussian", "out", out);
  CheckScalars(RandomKind::kGaussian, mean, std);
  Fill(RandomKind::kGaussian, out, mean, std);
}

void Bernoulli(double p, const Tensor& out) {
  CheckFloat("Bernoulli", "out", out);
  CheckScalars(RandomKind::kBernoulli, p, 0);
  Fill(RandomKind::kBernoulli, out, p, 0);
}

void RandomSpec::CheckCall(CallChecker& call) const {
  call.RequireFloat("out", dtype);
  CheckScalars(kind, call.scalars().v[0], call.scalars().v[1]);
  call.Output("out", call.ShapeOfOutput(0), dtype);
}

}  // namespace singa

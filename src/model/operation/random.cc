#include "singa/operation/random.h"

#include <cmath>

#include "model/operation/check.h"
#include "model/operation/dispatch.h"
#include "model/operation/random_spec.h"

namespace singa {

namespace {

void Fill(RandomKind kind, const Tensor& out, double a, double b) {
  const RandomSpec spec{kind, out.data_type()};
  const DevicePtr device = out.device();
  Scalars scalars;
  scalars.v[0] = a;
  scalars.v[1] = b;
  device->TakeRandom(static_cast<uint64_t>(out.size()) * WordsPerElement(spec.dtype), &scalars);
  // Numbers go to elements in logical order, however they lie.
  const Tensor target = out.is_contiguous() ? out : Tensor(out.shape(), device, out.data_type());
  Run(spec, device, FindPlan(*device, spec), {}, {target}, scalars);
  if (target.block() != out.block()) Tensor(out).CopyFrom(target);
}

}  // namespace

void Uniform(double low, double high, const Tensor& out) {
  CheckFloat("Uniform", "out", out);
  Check(std::isfinite(low) && std::isfinite(high) && low <= high, "Uniform", "low ", low,
        " and high ", high, " have to be finite, low not above high");
  Fill(RandomKind::kUniform, out, low, high);
}

void Gaussian(double mean, double std, const Tensor& out) {
  CheckFloat("Gaussian", "out", out);
  Check(std::isfinite(mean) && std::isfinite(std) && std >= 0, "Gaussian", "mean ", mean,
        " and std ", std, " have to be finite, std not negative");
  Fill(RandomKind::kGaussian, out, mean, std);
}

void Bernoulli(double p, const Tensor& out) {
  CheckFloat("Bernoulli", "out", out);
  Check(p >= 0 && p <= 1, "Bernoulli", "p ", p, " is not in [0, 1]");
  Fill(RandomKind::kBernoulli, out, p, 0);
}

}  // namespace singa

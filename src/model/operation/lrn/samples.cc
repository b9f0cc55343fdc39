// Elements of local response normalisation and its gradient by their definition, for spot checks.

#include <algorithm>
#include <cmath>

#include "model/dispatch/spot/sampler.h"
#include "model/operation/lrn/spec.h"

namespace singa {
namespace {

using spot::Place;

/// Powers are computed less accurately than sums.
constexpr double kPower = 4;

/// The base of the power for the element at an index. `x` is the number of an input.
double BaseOf(const LrnFields& fields, const spot::Sampler& sampler, size_t x, Shape index) {
  const LrnWindow window(fields.size);
  const int64_t channel = index[1];
  const int64_t first = std::max<int64_t>(0, channel - window.below);
  const int64_t last = std::min(fields.shape[1] - 1, channel + window.above);
  double squares = 0;
  for (index[1] = first; index[1] <= last; ++index[1])
    squares += std::pow(sampler.Value(x, index), 2);
  return fields.k + fields.alpha / static_cast<double>(fields.size) * squares;
}

}  // namespace

void LrnForwardSpec::Sample(spot::Sampler& sampler) const {
  sampler.Check(0, "y", shape, size, [&](std::span<Place> places) {
    for (Place& place : places) {
      const double x = sampler.Value(0, place.index);
      place.value = x * std::pow(BaseOf(*this, sampler, 0, place.index), -beta);
      place.magnitude = kPower * std::max(std::abs(x), std::abs(place.value));
    }
  });
}

void LrnBackwardSpec::Sample(spot::Sampler& sampler) const {
  const LrnWindow window(size);
  const double factor = 2 * alpha * beta / static_cast<double>(size);
  sampler.Check(0, "dx", shape, size, [&](std::span<Place> places) {
    for (Place& place : places) {
      Place through;  // the channels in whose windows this one is
      Shape at = place.index;
      const int64_t first = std::max<int64_t>(0, at[1] - window.above);
      const int64_t last = std::min(shape[1] - 1, at[1] + window.below);
      for (at[1] = first; at[1] <= last; ++at[1])
        through.Add(sampler.Value(0, at) * sampler.Value(1, at) *
                    std::pow(BaseOf(*this, sampler, 1, at), -beta - 1));
      through.Scale(-factor * sampler.Value(1, place.index));
      const double dy = sampler.Value(0, place.index);
      place.Add(dy * std::pow(BaseOf(*this, sampler, 1, place.index), -beta));
      place.Add(through);
      place.magnitude = kPower * std::max(place.magnitude, std::abs(dy));
    }
  });
}

}  // namespace singa

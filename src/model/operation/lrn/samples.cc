// Elements of local response normalisation by its definition, for spot checks. Gradients are not
// sampled.

#include <algorithm>
#include <cmath>

#include "model/dispatch/spot/sampler.h"
#include "model/operation/lrn/spec.h"

namespace singa {

void LrnForwardSpec::Sample(spot::Sampler& sampler) const {
  const LrnWindow window(size);
  sampler.Check(0, "y", shape, size, [&](std::span<spot::Place> places) {
    for (spot::Place& place : places) {
      const int64_t channel = place.index[1];
      const int64_t first = std::max<int64_t>(0, channel - window.below);
      const int64_t last = std::min(shape[1] - 1, channel + window.above);
      double squares = 0;
      Shape at = place.index;
      for (at[1] = first; at[1] <= last; ++at[1]) squares += std::pow(sampler.Value(0, at), 2);
      const double x = sampler.Value(0, place.index);
      place.value = x * std::pow(k + alpha / static_cast<double>(size) * squares, -beta);
      // The power is computed less accurately than a sum.
      place.magnitude = 4 * std::max(std::abs(x), std::abs(place.value));
    }
  });
}

}  // namespace singa

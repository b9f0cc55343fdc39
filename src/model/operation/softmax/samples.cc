// Elements of softmax and its gradient by their definition, for spot checks.

#include <algorithm>
#include <cmath>
#include <vector>

#include "model/dispatch/spot/sampler.h"
#include "model/operation/softmax/spec.h"

namespace singa {
namespace {

using spot::Place;

/// The row of (outer, axis, inner) through a place.
spot::Steps RowOf(const SoftmaxSpec& spec, size_t input, const Place& place) {
  return {input, place.index[0] * spec.axis * spec.inner + place.index[2], nullptr, spec.inner};
}

std::vector<double> Load(const spot::Sampler& sampler, const spot::Steps& row, int64_t length) {
  std::vector<double> values(static_cast<size_t>(length));
  sampler.Load(row, length, values.data());
  return values;
}

}  // namespace

void SoftmaxSpec::Sample(spot::Sampler& sampler) const {
  sampler.Check(0, "y", {outer, axis, inner}, axis, {.flat = true}, [&](std::span<Place> places) {
    for (Place& place : places) {
      const std::vector<double> row = Load(sampler, RowOf(*this, 0, place), axis);
      const double most = *std::max_element(row.begin(), row.end());
      double sum = 0;
      for (const double x : row) sum += std::exp(x - most);
      const double x = row[static_cast<size_t>(place.index[1])];
      if (log) {
        place.value = x - most - std::log(sum);
        place.magnitude = std::abs(x) + std::abs(most) + std::log(sum);
      } else {
        place.value = std::exp(x - most) / sum;
        place.magnitude = 1 / sum + place.value;  // the largest of the row; NaN where one is NaN
      }
    }
  });
}

void SoftmaxBackwardSpec::Sample(spot::Sampler& sampler) const {
  sampler.Check(0, "dx", {outer, axis, inner}, axis, {.flat = true}, [&](std::span<Place> places) {
    for (Place& place : places) {
      const std::vector<double> dy = Load(sampler, RowOf(*this, 0, place), axis);
      const std::vector<double> y = Load(sampler, RowOf(*this, 1, place), axis);
      double sum = 0, magnitude = 0;
      for (size_t i = 0; i < dy.size(); ++i) {
        const double term = log ? dy[i] : dy[i] * y[i];
        sum += term;
        magnitude += std::abs(term);
      }
      const auto at = static_cast<size_t>(place.index[1]);
      const double factor = log ? std::exp(y[at]) : y[at];
      place.value = (log ? dy[at] : factor * dy[at]) - factor * sum;
      place.magnitude = std::abs(log ? dy[at] : factor * dy[at]) + std::abs(factor) * magnitude;
    }
  });
}

}  // namespace singa

// Elements of batch norm's results by its definition, from one channel each, for spot checks.
// Gradients and running statistics are not sampled.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/dispatch/spot/sampler.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/spec.h"

namespace singa {
namespace {

using spot::Place;

/// A channel's statistics, and the magnitudes of the terms of which they are sums; infinite if
/// these sums may overflow.
struct Channel {
  double mean = 0, var = 0, mean_magnitude = 0, var_magnitude = 0;
};

/// Calls visit(values, count) for all values of a channel of input 0.
template <class Visit>
void ForChannel(const spot::Sampler& sampler, int64_t channel, const Visit& visit) {
  const spot::Operand& x = sampler.input(0);
  const Shape& shape = x.shape();
  const int axis = shape.rank() == 2 ? 0 : shape.rank() - 1;  // of a run
  const int64_t images = axis == 0 ? 1 : shape[0];
  const int64_t rows = axis == 0 ? 1 : shape.Count(2, axis);
  std::vector<double> values(static_cast<size_t>(shape[axis]));
  for (int64_t n = 0; n < images; ++n)
    for (int64_t row = 0; row < rows; ++row) {
      int64_t at = x.At(0, n) + x.At(1, channel), left = row;
      for (int i = axis - 1; i >= 2; left /= shape[i--]) at += x.At(i, left % shape[i]);
      sampler.Load(x.Along(0, axis, at), shape[axis], values.data());
      visit(values);
    }
}

Channel ChannelOf(const BatchNormFields& fields, const spot::Sampler& sampler, int64_t channel) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double most = fields.dtype == kFloat64 ? std::numeric_limits<double>::max()
                                               : double{std::numeric_limits<float>::max()} / 4;
  Channel found;
  if (!fields.training) {
    found.mean = sampler.Value(3, {channel});
    found.var = sampler.Value(4, {channel});
    found.mean_magnitude = std::abs(found.mean);
    return found;
  }
  const auto count = static_cast<double>(fields.sum_length());
  ForChannel(sampler, channel, [&](const std::vector<double>& values) {
    for (const double x : values) found.mean += x, found.mean_magnitude += std::abs(x);
  });
  found.mean /= count;
  found.mean_magnitude /= count;
  ForChannel(sampler, channel, [&](const std::vector<double>& values) {
    for (const double x : values) found.var += (x - found.mean) * (x - found.mean);
  });
  found.var /= count;
  // As in norm/tolerance.cc: the mean is known to about √K steps, and its error counts squared.
  found.var_magnitude =
      found.var + found.mean_magnitude * found.mean_magnitude * std::sqrt(count) * 0x1p-20;
  if (found.var_magnitude > most / count) found.var_magnitude = kInf;
  if (found.mean_magnitude > most / count) found.mean_magnitude = kInf;
  return found;
}

}  // namespace

void BatchNormForwardSpec::Sample(spot::Sampler& sampler) const {
  const int64_t terms = sum_length();
  const auto argument = [&](size_t i, const Shape& index, double otherwise) {
    return sampler.input(i).tensor().empty() ? otherwise : sampler.Value(i, index);
  };
  if (training) {
    sampler.Check(1, "mean", channels(), terms, [&](std::span<Place> places) {
      for (Place& place : places) {
        const Channel channel = ChannelOf(*this, sampler, place.index[0]);
        place.value = channel.mean;
        place.magnitude = channel.mean_magnitude;
      }
    });
    sampler.Check(2, "var", channels(), terms, [&](std::span<Place> places) {
      for (Place& place : places) {
        const Channel channel = ChannelOf(*this, sampler, place.index[0]);
        place.value = channel.var;
        place.magnitude = channel.var_magnitude;
      }
    });
  }
  sampler.Check(0, "y", shape, training ? terms : 1, [&](std::span<Place> places) {
    for (Place& place : places) {
      const Shape at{place.index[1]};
      const Channel channel = ChannelOf(*this, sampler, at[0]);
      const double x = sampler.Value(0, place.index), bias = argument(2, at, 0);
      const double add = argument(5, place.index, 0);
      const double factor = argument(1, at, 1) / std::sqrt(channel.var + epsilon);
      const double v = (x - channel.mean) * factor + bias + add;
      place.value = formula::Activated(activation.kind, v, static_cast<double>(activation.low),
                                       static_cast<double>(activation.high));
      place.magnitude = 1.5 * (std::abs(factor) * (std::abs(x) + channel.mean_magnitude) +
                               std::abs(bias) + std::abs(add));
      if (!std::isfinite(channel.var_magnitude)) place.magnitude = channel.var_magnitude;
    }
  });
}

}  // namespace singa

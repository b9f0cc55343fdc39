// The magnitudes that OPCHECK's tolerance follows, for normalisations and for their sums. Results
// of normalisations are small differences of large terms. So these are the same formulas with every
// term positive, in double.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/dispatch/kernel.h"
#include "model/dispatch/opcheck/difference.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/operation/conv/spec.h"
#include "model/operation/lrn/spec.h"
#include "model/operation/norm/spec.h"
#include "model/operation/softmax/spec.h"

namespace singa {

using opcheck::Read;
using opcheck::Values;
using opcheck::Write;

namespace {

/// Calls f(position) for each value of channel c of (N, C, ...).
template <class F>
void ForChannel(const Shape& shape, int64_t c, const F& f) {
  const int64_t spatial = shape.Count(2, shape.rank());
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t s = 0; s < spatial; ++s) f(static_cast<size_t>((n * shape[1] + c) * spatial + s));
}

/// Calls f(element, channel, statistic) for each element of x.
template <class F>
void ForElements(const NormGeometry& g, const F& f) {
  const int64_t positions = g.positions();
  for (int64_t i = 0; i < g.shape.Count(); ++i) {
    const int64_t c = i / positions % g.channels();
    const int64_t group = i / positions / g.channels() * g.groups + c / g.group_channels();
    const int64_t s = g.per_position ? group * positions + i % positions : group;
    f(static_cast<size_t>(i), static_cast<size_t>(c), static_cast<size_t>(s));
  }
}

double Or(const Values& values, size_t i, double otherwise) {
  return values.empty() ? otherwise : values[i];
}

}  // namespace

// y is as in ConvSpec. An implementation may sum before or after it rounds y to its type. So each
// value in a sum is uncertain by a step of y's type, where the tolerance is 16 steps of float32.
std::vector<Tensor> ConvStatisticsSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  ConvStatisticsSpec wide = *this;
  wide.dtype = kFloat64;
  wide.x_layout = wide.dy_layout = nullptr;
  std::vector<Tensor> magnitudes;
  for (const Tensor& t : inputs) magnitudes.push_back(opcheck::AbsoluteValue(t.AsType(kFloat64)));
  const Shape channels{geometry.out_channels};
  const std::vector<Tensor> results = {Tensor(geometry.output_shape(), nullptr, kFloat64),
                                       Tensor(channels, nullptr, kFloat64),
                                       Tensor(channels, nullptr, kFloat64)};
  const PlanPtr plan = FindKernel<ConvStatisticsSpec>("reference")->Make(wide).plan();
  DefaultDevice()->Exec(op(), plan, magnitudes, results, Scalars());
  const double steps = dtype == kBFloat16 ? 0x1p12 : dtype == kFloat16 ? 0x1p9 : 1;
  const auto scaled = [&](const Tensor& sums) {
    Values values = Read(sums);
    for (double& value : values) value *= steps;
    return Write(values, channels);
  };
  return {results[0], scaled(results[1]), scaled(results[2])};
}

std::vector<Tensor> BatchNormForwardSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  const Values x = Read(inputs[0]), scale = Read(inputs[1]), bias = Read(inputs[2]);
  const Values running_mean = Read(inputs[3]), running_var = Read(inputs[4]);
  const Values add = Read(inputs[5]);
  const auto count = static_cast<double>(std::max<int64_t>(sum_length(), 1));
  Values y(x.size()), mean, var, new_mean, new_var;
  for (size_t c = 0; c < static_cast<size_t>(shape[1]); ++c) {
    double magnitude = 0, sum = 0, squares = 0;
    if (training) {
      ForChannel(shape, static_cast<int64_t>(c), [&](size_t i) {
        sum += x[i] / count;
        magnitude += std::abs(x[i]) / count;
      });
      ForChannel(shape, static_cast<int64_t>(c),
                 [&](size_t i) { squares += (x[i] - sum) * (x[i] - sum) / count; });
      mean.push_back(magnitude);
      // The mean is known to about √K steps of float32, and its error enters the variance squared.
      const double step = std::sqrt(count) * 0x1p-20;
      var.push_back(squares + magnitude * magnitude * step);
      new_mean.push_back(std::abs(Or(running_mean, c, 0)) + mean.back());
      new_var.push_back(std::abs(Or(running_var, c, 0)) + 2 * var.back());
    } else {
      magnitude = std::abs(running_mean[c]);
      squares = running_var[c];
    }
    const double a = std::abs(Or(scale, c, 1)) / std::sqrt(squares + epsilon);
    ForChannel(shape, static_cast<int64_t>(c), [&](size_t i) {
      y[i] = a * (std::abs(x[i]) + magnitude) + std::abs(Or(bias, c, 0)) + std::abs(Or(add, i, 0));
    });
  }
  const Shape channels{shape[1]};
  if (!training) return {Write(y, shape)};
  return {Write(y, shape), Write(mean, channels), Write(var, channels), Write(new_mean, channels),
          Write(new_var, channels)};
}

// No activation makes more of its argument than 3/2 times that.
std::vector<Tensor> NormConvSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  ConvSpec wide = *this;
  wide.dtype = kFloat64;
  wide.x_layout = wide.dy_layout = nullptr;
  std::vector<Tensor> magnitudes(inputs.begin(), inputs.begin() + mean_input());
  for (Tensor& t : magnitudes) t = opcheck::AbsoluteValue(t.AsType(kFloat64));
  Values normalized =
      Read(has_norm ? Norm().Magnitudes(NormInputs(inputs))[0] : magnitudes[x_input()]);
  for (double& value : normalized) value *= 1.5;
  magnitudes[x_input()] = Write(normalized, geometry.input_shape());
  std::vector<Tensor> results;
  if (pass == ConvPass::kForward) {
    results.emplace_back(geometry.output_shape(), nullptr, kFloat64);
  } else {
    results.emplace_back(geometry.weight_shape(), nullptr, kFloat64);
    if (geometry.bias) results.emplace_back(Shape{geometry.out_channels}, nullptr, kFloat64);
  }
  const PlanPtr plan = FindKernel<ConvSpec>("reference")->Make(wide).plan();
  DefaultDevice()->Exec(op(), plan, magnitudes, results, Scalars());
  return results;
}

// All sides find the same argument of the activation, so they agree on where it has a kink. Its
// slope is at most 3/2.
std::vector<Tensor> BatchNormBackwardSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  Values dy = Read(inputs[0]);
  const Values x = Read(inputs[1]), scale = Read(inputs[2]);
  if (has_dy2) {
    const Values dy2 = Read(inputs[kDy2]);
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = std::abs(dy[i]) + std::abs(dy2[i]);
  }
  if (formula::FactsOf(activation.kind).is_gate)
    for (double& value : dy) value *= 1.5;
  const Values mean = Read(inputs[3]), var = Read(inputs[4]);
  const auto count = static_cast<double>(std::max<int64_t>(sum_length(), 1));
  Values dx(x.size()), dscale, dbias;
  for (size_t c = 0; c < mean.size(); ++c) {
    const double inv_std = 1 / std::sqrt(var[c] + epsilon);
    const auto xhat = [&](size_t i) { return (std::abs(x[i]) + std::abs(mean[c])) * inv_std; };
    double sum = 0, product = 0;
    ForChannel(shape, static_cast<int64_t>(c), [&](size_t i) {
      sum += std::abs(dy[i]);
      product += std::abs(dy[i]) * xhat(i);
    });
    dscale.push_back(product);
    dbias.push_back(sum);
    const double s = std::abs(Or(scale, c, 1)) * inv_std;
    ForChannel(shape, static_cast<int64_t>(c), [&](size_t i) {
      dx[i] = s * std::abs(dy[i]);
      if (training) dx[i] += s * (sum + xhat(i) * product) / count;
    });
  }
  const Shape channels{shape[1]};
  return {Write(dx, shape), Write(dscale, channels), Write(dbias, channels), Write(dy, shape)};
}

// A statistic is rounded once, and the error of its sums follows the spread of the values: kernels
// sum in double, or correct the mean by the distances from it. OPCHECK multiplies by 16 √count.
std::vector<Tensor> NormForwardSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  const Values x = Read(inputs[0]), scale = Read(inputs[1]), bias = Read(inputs[2]);
  const auto count = static_cast<double>(std::max<int64_t>(values(), 1));
  const double rounded_once = 1 / (8 * std::sqrt(count));
  Values y(x.size()), mean(static_cast<size_t>(statistics())), squares(mean.size());
  if (centered) ForElements(*this, [&](size_t i, size_t, size_t s) { mean[s] += x[i] / count; });
  ForElements(*this, [&](size_t i, size_t, size_t s) {
    squares[s] += (x[i] - mean[s]) * (x[i] - mean[s]) / count;
  });
  Values of_mean(mean.size()), inv_std(mean.size());
  for (size_t s = 0; s < mean.size(); ++s) {
    const double inverse = 1 / std::sqrt(squares[s] + epsilon), ratio = mean[s] * inverse;
    if (centered) of_mean[s] = std::sqrt(squares[s]) + std::abs(mean[s]) * rounded_once;
    // The rounded mean makes the variance larger by the square of its error.
    inv_std[s] = inverse * (1 + ratio * ratio * 0x1p-40);
  }
  ForElements(*this, [&](size_t i, size_t c, size_t s) {
    y[i] = (std::abs(x[i] - mean[s]) + of_mean[s]) * inv_std[s] * std::abs(Or(scale, c, 1)) +
           std::abs(Or(bias, c, 0));
  });
  const Shape flat{statistics()};
  return {Write(y, shape), centered ? Write(of_mean, flat) : Tensor(), Write(inv_std, flat)};
}

std::vector<Tensor> NormBackwardSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  const Values dy = Read(inputs[0]), x = Read(inputs[1]), scale = Read(inputs[2]);
  const Values mean = Read(inputs[3]), inv_std = Read(inputs[4]);
  const auto count = static_cast<double>(std::max<int64_t>(values(), 1));
  const auto xhat = [&](size_t i, size_t s) {
    return std::abs(x[i] - Or(mean, s, 0)) * inv_std[s];
  };
  const auto channel_count = static_cast<size_t>(channels());
  Values dx(x.size()), dscale(channel_count), dbias(channel_count);
  Values sum(inv_std.size()), product(inv_std.size());
  ForElements(*this, [&](size_t i, size_t c, size_t s) {
    const double g = std::abs(dy[i] * Or(scale, c, 1));
    sum[s] += g / count;
    product[s] += g * xhat(i, s) / count;
    dscale[c] += std::abs(dy[i]) * xhat(i, s);
    dbias[c] += std::abs(dy[i]);
  });
  ForElements(*this, [&](size_t i, size_t c, size_t s) {
    dx[i] = inv_std[s] *
            (std::abs(dy[i] * Or(scale, c, 1)) + (centered ? sum[s] : 0) + xhat(i, s) * product[s]);
  });
  const Shape flat{channels()};
  return {need_x ? Write(dx, shape) : Tensor(), need_scale ? Write(dscale, flat) : Tensor(),
          need_bias ? Write(dbias, flat) : Tensor()};
}

std::vector<Tensor> LrnBackwardSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  const Values dy = Read(inputs[0]), x = Read(inputs[1]);
  const int64_t channels = shape[1], spatial = shape.Count(2, shape.rank());
  const LrnWindow window(size);
  const double scale = alpha / static_cast<double>(size);
  // Calls f(i, j) for each position i and each j in its window.
  const auto pairs = [&](const auto& f) {
    for (int64_t at = 0; at < shape[0] * channels; ++at) {
      const int64_t c = at % channels;
      const int64_t below = std::min(window.below, c);
      const int64_t above = std::min(window.above, channels - 1 - c);
      for (int64_t j = at - below; j <= at + above; ++j)
        for (int64_t s = 0; s < spatial; ++s)
          f(static_cast<size_t>(at * spatial + s), static_cast<size_t>(j * spatial + s));
    }
  };
  Values base(x.size(), k), dx(x.size());
  pairs([&](size_t i, size_t j) { base[i] += scale * x[j] * x[j]; });
  for (size_t i = 0; i < x.size(); ++i) dx[i] = std::abs(dy[i]) * std::pow(base[i], -beta);
  pairs([&](size_t i, size_t j) {
    dx[j] += std::abs(2 * beta * scale * dy[i] * x[i] * x[j]) * std::pow(base[i], -beta - 1);
  });
  return {Write(dx, shape)};
}

std::vector<Tensor> SoftmaxBackwardSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  const Values dy = Read(inputs[0]), y = Read(inputs[1]);
  Values dx(y.size());
  for (int64_t lane = 0; lane < outer * inner; ++lane) {
    const auto at = [&](int64_t a) {
      return static_cast<size_t>((lane / inner * axis + a) * inner + lane % inner);
    };
    double sum = 0;
    for (int64_t a = 0; a < axis; ++a) sum += std::abs(dy[at(a)] * (log ? 1 : y[at(a)]));
    for (int64_t a = 0; a < axis; ++a) {
      const size_t i = at(a);
      // The exponential turns an absolute error of its argument into a relative one.
      dx[i] = log ? std::abs(dy[i]) + std::exp(y[i]) * (1 + std::abs(y[i])) * sum
                  : std::abs(y[i]) * (std::abs(dy[i]) + sum);
    }
  }
  return {Write(dx, inputs[1].shape())};
}

}  // namespace singa

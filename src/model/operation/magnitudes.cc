// What OPCHECK's tolerance follows for normalisations, whose results are small differences of large
// terms, and for their sums: the same formulas with every term positive, in double.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "model/operation/batchnorm_spec.h"
#include "model/operation/conv_spec.h"
#include "model/operation/kernel.h"
#include "model/operation/lrn_spec.h"
#include "model/operation/softmax_spec.h"

namespace singa {
namespace {

using Values = std::vector<double>;

Values Read(const Tensor& t) {
  Values values(static_cast<size_t>(t.size()));
  if (!values.empty())
    t.AsType(kFloat64).Contiguous().CopyToHost(values.data(), values.size() * sizeof(double));
  return values;
}

Tensor Write(const Values& values, const Shape& shape) {
  Tensor t(shape, nullptr, kFloat64);
  t.CopyFromHost(values.data(), values.size() * sizeof(double));
  return t;
}

/// Calls f(position) for each value of channel c of (N, C, ...).
template <class F>
void ForChannel(const Shape& shape, int64_t c, const F& f) {
  const int64_t spatial = shape.Count(2, shape.rank());
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t s = 0; s < spatial; ++s) f(static_cast<size_t>((n * shape[1] + c) * spatial + s));
}

double Or(const Values& values, size_t i, double otherwise) {
  return values.empty() ? otherwise : values[i];
}

}  // namespace

// y as of ConvSpec. The sums may be taken before y is rounded to its type, or after: of each value
// they know no more than a step of that, where the tolerance is 16 steps of float32.
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
  const PlanPtr plan = Registry<ConvStatisticsSpec>::Get().Find("reference")->MakePlan(wide);
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

// ReLU takes nothing away: where it cuts dy off, both sides do, since they decide alike.
std::vector<Tensor> BatchNormBackwardSpec::Magnitudes(const std::vector<Tensor>& inputs) const {
  Values dy = Read(inputs[0]);
  const Values x = Read(inputs[1]), scale = Read(inputs[2]);
  if (has_dy2) {
    const Values dy2 = Read(inputs[kDy2]);
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = std::abs(dy[i]) + std::abs(dy2[i]);
  }
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

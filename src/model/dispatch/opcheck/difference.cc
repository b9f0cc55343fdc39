#include "model/dispatch/opcheck/difference.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "singa/core/dtype.h"

namespace singa::opcheck {
namespace {

double Epsilon(DType dtype) {
  switch (dtype) {
    case kDouble:
      return std::numeric_limits<double>::epsilon();
    case kBFloat16:
      return 0x1p-7;
    case kFloat16:
      return 0x1p-10;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

std::string Position(int64_t flat, const Shape& shape) {
  Shape index = shape;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return index.ToString();
}

/// Every value becomes the largest of its plane (the last two axes).
void SpreadOverPlanes(std::span<Tensor> bound) {
  for (Tensor& t : bound) {
    if (t.empty() || t.rank() < 2 || t.size() == 0) continue;
    const auto plane = static_cast<std::ptrdiff_t>(t.shape(-1) * t.shape(-2));
    Values values = Read(t);
    for (auto first = values.begin(); first != values.end(); first += plane) {
      const bool finite =
          std::all_of(first, first + plane, [](double v) { return std::isfinite(v); });
      const double largest = finite ? *std::max_element(first, first + plane)
                                    : std::numeric_limits<double>::infinity();
      std::fill(first, first + plane, kSpreadFactor * largest);
    }
    t = Write(values, t.shape());
  }
}

}  // namespace

Values Read(const Tensor& t) {
  Values values(static_cast<size_t>(t.size()));
  if (!values.empty()) t.AsType(kDouble).CopyToHost(values.data(), values.size() * sizeof(double));
  return values;
}

Tensor Write(const Values& values, const Shape& shape) {
  Tensor t(shape, nullptr, kDouble);
  if (!values.empty()) t.CopyFromHost(values.data(), values.size() * sizeof(double));
  return t;
}

Tensor AbsoluteValue(const Tensor& t) {
  if (!IsFloat(t.data_type())) return t;
  Values values = Read(t);
  for (double& v : values) v = std::abs(v);
  return Write(values, t.shape()).ToDevice(t.device()).AsType(t.data_type());
}

Tolerance::Tolerance(DType dtype, int64_t sum_length, bool terms_known, double factor_error) {
  // Each side may have an error of 8·eps·√K, and rounds its result once more. Where the terms are
  // known, 16-bit floats are summed in float32.
  const bool wide = terms_known && SizeOf(dtype) == 2;
  // Below its smallest number an element is rounded to 0.
  smallest_ = dtype == kFloat16 ? 0x1p-24 : 1e-37;
  rounding_ = wide ? 4 * Epsilon(dtype) : 0;
  relative_ = 16 * Epsilon(wide ? kFloat32 : dtype) *
                  std::sqrt(static_cast<double>(std::max<int64_t>(sum_length, 1))) +
              factor_error;
}

double Tolerance::For(double magnitude, double want) const {
  return relative_ * std::abs(magnitude) + (std::isfinite(want) ? rounding_ * std::abs(want) : 0) +
         smallest_;
}

Difference FindDifference(std::span<const Tensor> chosen, const Expected& expected,
                          bool spreads_error, double factor_error) {
  const std::vector<Tensor>& reference = expected.results;
  std::vector<Tensor> bound = expected.bound;
  if (spreads_error) SpreadOverPlanes(bound);
  const auto name = [&](size_t i) {
    return "output " + (i < expected.names.size() ? expected.names[i] : std::to_string(i));
  };
  Difference difference;
  double& worst = difference.ratio;
  for (size_t i = 0; i < chosen.size() && i < reference.size(); ++i) {
    if (chosen[i].empty() || reference[i].empty() || chosen[i].size() == 0) continue;
    difference.compared = true;
    const Values got = Read(chosen[i]), want = Read(reference[i]);
    Values scale;
    if (i < bound.size() && !bound[i].empty()) scale = Read(bound[i]);
    const bool spreads =
        std::any_of(scale.begin(), scale.end(), [](double v) { return !std::isfinite(v); });
    double largest = 0;
    for (double v : want)
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    const DType dtype = chosen[i].data_type();
    const Tolerance tolerance(dtype, expected.sum_length, !scale.empty(), factor_error);
    for (size_t j = 0; j < got.size(); ++j) {
      if (got[j] == want[j] || (std::isnan(got[j]) && std::isnan(want[j]))) continue;
      const double allowed = expected.exact ? 0
                             : IsInteger(dtype)
                                 ? (scale.empty() ? 0 : scale[j])
                                 : tolerance.For(scale.empty() ? largest : scale[j], want[j]);
      // Where terms are infinite or NaN, implementations differ: some leave out the padding,
      // others spread the terms over their tiles, or multiply them by zeros of padded filters.
      if (!std::isfinite(allowed) || (spreads && !std::isfinite(got[j]))) continue;
      const double distance = std::abs(got[j] - want[j]);
      const double ratio =
          std::isfinite(distance) ? distance / allowed : std::numeric_limits<double>::infinity();
      if (ratio <= worst) continue;
      worst = ratio;
      if (ratio > 1) {
        std::ostringstream text;
        text.precision(9);
        text << name(i) << " at " << Position(static_cast<int64_t>(j), chosen[i].shape()) << " of "
             << chosen[i].shape() << ": " << got[j] << ", reference " << want[j]
             << ", allowed difference " << allowed;
        difference.text = text.str();
      }
    }
    const auto is_none = [](double v) { return !std::isfinite(v); };
    const auto lost = std::find_if(want.begin(), want.end(), is_none);
    if (std::isfinite(worst) && lost != want.end() &&
        std::none_of(got.begin(), got.end(), is_none)) {
      worst = std::numeric_limits<double>::infinity();
      std::ostringstream text;
      text << name(i) << " holds only numbers, reference " << *lost << " at "
           << Position(lost - want.begin(), chosen[i].shape()) << " of " << chosen[i].shape();
      difference.text = text.str();
    }
  }
  return difference;
}

}  // namespace singa::opcheck

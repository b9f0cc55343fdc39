#pragma once

// Which positions of x one position of the result is a weighted sum of, along one axis.

#include <cmath>
#include <cstdint>

#include "model/dispatch/fields.h"
#include "singa/operation/interpolate.h"

namespace singa::formula {

/// An axis of x and of the result. `scale` is 0 for out / in.
struct InterpolatedAxis {
  int64_t in = 1, out = 1;
  double scale = 0;
};

/// The fields of an InterpolationHandle.
struct Interpolation {
  InterpolationMode mode = InterpolationMode::kNearest;
  CoordinateMode coordinates = CoordinateMode::kHalfPixel;
  NearestMode nearest = NearestMode::kRoundPreferFloor;
  double cubic_coeff_a = -0.75;
  bool exclude_outside = false, antialias = false;

  SINGA_FIELDS(mode, coordinates, nearest, cubic_coeff_a, exclude_outside, antialias);
};

/// position / scale. The quotient of lengths is rounded once, so whole results are exact.
constexpr double Unscaled(const InterpolatedAxis& axis, double position) {
  if (axis.scale > 0) return position / axis.scale;
  return position * static_cast<double>(axis.in) / static_cast<double>(axis.out);
}

/// The coordinate in x of position i; see CoordinateMode.
constexpr double Coordinate(CoordinateMode mode, const InterpolatedAxis& axis, int64_t i) {
  const auto position = static_cast<double>(i);
  const auto in = static_cast<double>(axis.in), out = static_cast<double>(axis.out);
  switch (mode) {
    case CoordinateMode::kAsymmetric:
      return Unscaled(axis, position);
    case CoordinateMode::kAlignCorners:
      return axis.out > 1 ? position * (in - 1) / (out - 1) : 0;
    case CoordinateMode::kPytorchHalfPixel:
      return axis.out > 1 ? Unscaled(axis, position + 0.5) - 0.5 : 0;
    case CoordinateMode::kHalfPixelSymmetric: {
      const double part = axis.scale > 0 ? out / (axis.scale * in) : 1;
      return in / 2 * (1 - part) + Unscaled(axis, position + 0.5) - 0.5;
    }
    default:
      return Unscaled(axis, position + 0.5) - 0.5;
  }
}

/// By how much the kernel is stretched.
constexpr double Stretch(const Interpolation& how, const InterpolatedAxis& axis) {
  if (!how.antialias || how.mode == InterpolationMode::kNearest ||
      how.mode == InterpolationMode::kArea)
    return 1;
  const double shrinks = Unscaled(axis, 1);
  return shrinks > 1 ? shrinks : 1;
}

/// Half of the kernel's width.
constexpr double Support(const Interpolation& how, const InterpolatedAxis& axis) {
  return (how.mode == InterpolationMode::kCubic ? 2 : 1) * Stretch(how, axis);
}

/// The most positions of x that one position of the result needs.
constexpr int64_t MostTaps(const Interpolation& how, const InterpolatedAxis& axis) {
  if (how.mode == InterpolationMode::kNearest) return 1;
  if (how.mode == InterpolationMode::kArea)
    return axis.out == 0 ? 1 : (axis.in + axis.out - 1) / axis.out + 1;
  return static_cast<int64_t>(std::ceil(2 * Support(how, axis)));
}

/// The linear kernel, or the cubic one of Keys (1981), at a distance; 1 in an average.
constexpr double KernelAt(const Interpolation& how, double distance) {
  if (how.mode == InterpolationMode::kArea) return 1;
  const double t = std::fabs(distance);
  if (how.mode == InterpolationMode::kLinear) return t < 1 ? 1 - t : 0;
  const double a = how.cubic_coeff_a;
  if (t <= 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((t - 5) * t + 8) * a * t - 4 * a : 0;
}

constexpr int64_t NearestTo(NearestMode mode, double x) {
  switch (mode) {
    case NearestMode::kRoundPreferFloor:
      return static_cast<int64_t>(std::ceil(x - 0.5));
    case NearestMode::kRoundPreferCeil:
      return static_cast<int64_t>(std::floor(x + 0.5));
    case NearestMode::kFloor:
      return static_cast<int64_t>(std::floor(x));
    default:
      return static_cast<int64_t>(std::ceil(x));
  }
}

constexpr int64_t Inside(int64_t position, int64_t length) {
  return position < 0 ? 0 : position < length ? position : length - 1;
}

/// The taps of one position of the result: positions [begin, end) along the axis of x, continued
/// beyond its ends by the values there (Inside).
struct Taps {
  int64_t begin, end;
  double x;            ///< the coordinate
  double stretch = 1;  ///< of the kernel
  double sum = 1;      ///< by which weights are divided

  constexpr double Weight(const Interpolation& how, int64_t position) const {
    return KernelAt(how, (static_cast<double>(position) - x) / stretch) / sum;
  }
  /// One position with weight 1.
  static constexpr Taps Single(int64_t position) {
    return {position, position + 1, static_cast<double>(position)};
  }
};

/// Of position i; at most MostTaps. Neither begin nor end decreases with i.
constexpr Taps TapsOf(const Interpolation& how, const InterpolatedAxis& axis, int64_t i) {
  if (how.mode == InterpolationMode::kArea) {
    const int64_t begin = i * axis.in / axis.out;
    const int64_t end = ((i + 1) * axis.in + axis.out - 1) / axis.out;
    return {begin, end, static_cast<double>(begin), 1, static_cast<double>(end - begin)};
  }
  const double x = Coordinate(how.coordinates, axis, i);
  if (how.mode == InterpolationMode::kNearest)
    return Taps::Single(Inside(NearestTo(how.nearest, x), axis.in));
  const int64_t begin = static_cast<int64_t>(std::floor(x - Support(how, axis))) + 1;
  Taps taps{begin, begin + MostTaps(how, axis), x, Stretch(how, axis)};
  if (!how.exclude_outside && !how.antialias) return taps;
  if (taps.begin < 0) taps.begin = 0;
  if (taps.end > axis.in) taps.end = axis.in;
  double sum = 0;
  for (int64_t p = taps.begin; p < taps.end; ++p) sum += taps.Weight(how, p);
  if (sum == 0) return Taps::Single(Inside(begin, axis.in));  // x lies far outside
  taps.sum = sum;
  return taps;
}

}  // namespace singa::formula

// Elements of pooling's results by its definition, for spot checks. The positions of maxima are not
// sampled.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "model/dispatch/spot/sampler.h"
#include "model/operation/pooling/spec.h"
#include "model/operation/pooling/windows.h"

namespace singa {
namespace {

using spot::Place;

/// Three axes of windows, of which images may lack the first ones.
class Windows {
 public:
  Windows(const Recorder& geometry, PoolMode mode)
      : windows_(geometry, mode), missing_(Recorder::kMostAxes - geometry.spatial) {}

  const WindowAxis& axis(int i) const {
    return i == 0 ? windows_.planes : i == 1 ? windows_.rows : windows_.columns;
  }
  /// Coordinate of an image's index along axis i.
  int64_t Coordinate(const Shape& index, int i) const {
    return i < missing_ ? 0 : index[2 + i - missing_];
  }
  /// The index with other coordinates.
  Shape With(Shape index, const std::array<int64_t, 3>& at) const {
    for (int i = missing_; i < 3; ++i) index[2 + i - missing_] = at[static_cast<size_t>(i)];
    return index;
  }
  /// Calls body(index in x) for the elements of the window at `index` of y.
  template <class Body>
  void ForElements(const Shape& index, const Body& body) const {
    std::array<int64_t, 3> window{}, at{};
    std::array<WindowAxis::Range, 3> taps{};
    for (int i = 0; i < 3; ++i) {
      window[static_cast<size_t>(i)] = Coordinate(index, i);
      taps[static_cast<size_t>(i)] = axis(i).taps(window[static_cast<size_t>(i)]);
    }
    for (int64_t d = taps[0].first; d < taps[0].last; ++d)
      for (int64_t h = taps[1].first; h < taps[1].last; ++h)
        for (int64_t w = taps[2].first; w < taps[2].last; ++w) {
          at = {axis(0).position(window[0], d), axis(1).position(window[1], h),
                axis(2).position(window[2], w)};
          body(With(index, at));
        }
  }
  /// Calls body(index in y) for the windows that read the element at `index` of x.
  template <class Body>
  void ForWindows(const Shape& index, const Body& body) const {
    const auto reads = [&](int i, int64_t o) {
      const WindowAxis& a = axis(i);
      const int64_t distance = Coordinate(index, i) - a.start(o);
      const int64_t tap = distance / a.dilation();
      return distance % a.dilation() == 0 && tap >= a.taps(o).first && tap < a.taps(o).last;
    };
    std::array<WindowAxis::Range, 3> over{};
    for (int i = 0; i < 3; ++i) over[static_cast<size_t>(i)] = axis(i).over(Coordinate(index, i));
    for (int64_t d = over[0].first; d < over[0].last; ++d)
      for (int64_t h = over[1].first; h < over[1].last; ++h)
        for (int64_t w = over[2].first; w < over[2].last; ++w)
          if (reads(0, d) && reads(1, h) && reads(2, w)) body(With(index, {d, h, w}));
  }
  /// By which the average of the window at `index` of y divides.
  double Divisor(const Shape& index) const {
    double divisor = 1;
    for (int i = 0; i < 3; ++i)
      divisor *= static_cast<double>(axis(i).divisor(Coordinate(index, i)));
    return divisor;
  }

 private:
  PoolWindows windows_;
  int missing_;
};

}  // namespace

void PoolingForwardSpec::Sample(spot::Sampler& sampler) const {
  const Windows windows(geometry, mode);
  const bool is_max = mode == PoolMode::kMax;
  sampler.Check(0, "y", geometry.output_shape(), sum_length(), {.exact = is_max},
                [&](std::span<Place> places) {
                  for (Place& place : places) {
                    if (is_max) place.value = -std::numeric_limits<double>::infinity();
                    windows.ForElements(place.index, [&](const Shape& at) {
                      const double x = sampler.Value(0, at);
                      if (!is_max)
                        place.Add(x);
                      else if (x > place.value || std::isnan(x))
                        place.value = x;
                    });
                    if (is_max)
                      place.magnitude = std::abs(place.value);
                    else
                      place.Scale(1 / windows.Divisor(place.index));
                  }
                });
}

void PoolingBackwardSpec::Sample(spot::Sampler& sampler) const {
  if (mode == PoolMode::kMax && !saved) return;
  const Windows windows(geometry, mode);
  sampler.Check(0, "dx", geometry.input_shape(), sum_length(), [&](std::span<Place> places) {
    for (Place& place : places) {
      double position = 0;  // in the image
      for (int i = 2; i < place.index.rank(); ++i)
        position = position * static_cast<double>(geometry.input_shape()[i]) +
                   static_cast<double>(place.index[i]);
      windows.ForWindows(place.index, [&](const Shape& at) {
        const double dy = sampler.Value(0, at);
        if (mode != PoolMode::kMax)
          place.Add(dy / windows.Divisor(at));
        else if (sampler.Value(2, at) == position)
          place.Add(dy);
      });
    }
  });
}

}  // namespace singa

#include "model/operation/conv/conv_sums.h"

#include <algorithm>
#include <array>
#include <vector>

#include "core/device/parallel.h"
#include "model/formula/activation.h"
#include "model/operation/conv/spec.h"

namespace singa {

using spot::Operand;
using spot::Place;
using spot::Sampler;

namespace {

/// Calls add(image, place) for all images and places, and adds up what threads find.
template <class Add>
void OverImages(const Sampler& sampler, int64_t images, int64_t terms_of_image,
                std::span<Place> places, const Add& add) {
  if (!sampler.on_host()) {
    for (int64_t n = 0; n < images; ++n)
      for (Place& place : places) add(n, &place);
    return;
  }
  using Sums = std::vector<Place>;
  const int64_t terms = terms_of_image * static_cast<int64_t>(places.size());
  const Sums sums = ParallelReduce(
      images, std::max<int64_t>(1, kParallelGrain / std::max<int64_t>(1, terms)), Sums(),
      [&](int64_t begin, int64_t end) {
        Sums part(places.begin(), places.end());
        for (int64_t n = begin; n < end; ++n)
          for (Place& place : part) add(n, &place);
        return part;
      },
      [](Sums a, const Sums& b) {
        for (size_t i = 0; i < a.size(); ++i) a[i].Add(b[i]);
        return a;
      });
  std::copy(sums.begin(), sums.end(), places.begin());
}

}  // namespace

int64_t ConvSums::At(const Operand& operand, const Position& position) const {
  int64_t at = 0;
  for (int i = 0; i < g_.spatial; ++i)
    at += operand.At(2 + i, position[static_cast<size_t>(Recorder::kMostAxes - g_.spatial + i)]);
  return at;
}

ConvSums::Position ConvSums::PositionOf(const Shape& index) const {
  Position position{};
  for (int i = 0; i < g_.spatial; ++i)
    position[static_cast<size_t>(Recorder::kMostAxes - g_.spatial + i)] = index[2 + i];
  return position;
}

/// Calls body(tap, position) for the taps of a window that lie inside the input.
template <class Body>
void ConvSums::ForTaps(const Position& window, const Body& body) const {
  const auto place = [&](size_t i, int64_t tap) {
    const Recorder::Axis& axis = g_.axes[i];
    return window[i] * axis.stride - axis.before + tap * axis.dilation;
  };
  const auto inside = [&](size_t i, int64_t at) { return at >= 0 && at < g_.axes[i].size; };
  Position tap, at;
  for (tap[0] = 0; tap[0] < g_.axes[0].kernel; ++tap[0]) {
    if (at[0] = place(0, tap[0]); !inside(0, at[0])) continue;
    for (tap[1] = 0; tap[1] < g_.axes[1].kernel; ++tap[1]) {
      if (at[1] = place(1, tap[1]); !inside(1, at[1])) continue;
      for (tap[2] = 0; tap[2] < g_.axes[2].kernel; ++tap[2])
        if (at[2] = place(2, tap[2]); inside(2, at[2])) body(tap, at);
    }
  }
}

/// The windows whose element `tap` lies inside the input.
ConvSums::Range ConvSums::WindowsOf(const Recorder::Axis& axis, int64_t tap) const {
  const int64_t offset = tap * axis.dilation - axis.before;  // of window 0
  Range range{0, axis.windows};
  if (offset < 0) range.first = (-offset + axis.stride - 1) / axis.stride;
  range.last =
      offset >= axis.size ? 0 : std::min(range.last, (axis.size - 1 - offset) / axis.stride + 1);
  return range;
}

void ConvSums::AddForward(size_t x, size_t W, Place* place) const {
  const Operand &image = sampler_.input(x), &filters = sampler_.input(W);
  const int64_t channels = g_.in_channels / g_.group, filter = place->index[1];
  const int64_t first = filter / (g_.out_channels / g_.group) * channels;
  ForTaps(PositionOf(place->index), [&](const Position& tap, const Position& at) {
    const int64_t in = image.At(0, place->index[0]) + At(image, at);
    const int64_t weights = filters.At(0, filter) + At(filters, tap);
    sampler_.AddProducts(image.Along(x, 1, in, first), filters.Along(W, 1, weights), channels,
                         place);
  });
}

void ConvSums::AddWeights(size_t W, Place* place) const {
  const Operand& filters = sampler_.input(W);
  ForTaps(PositionOf(place->index), [&](const Position& tap, const Position&) {
    const int64_t weights = filters.At(0, place->index[1]) + At(filters, tap);
    sampler_.AddTerms(filters.Along(W, 1, weights), g_.in_channels / g_.group, 1, place);
  });
}

void ConvSums::AddBackwardX(size_t dy, size_t W, Place* place) const {
  const Operand &gradient = sampler_.input(dy), &filters = sampler_.input(W);
  const int64_t channels = g_.in_channels / g_.group, count = g_.out_channels / g_.group;
  const int64_t group = place->index[1] / channels, channel = place->index[1] % channels;
  const Position position = PositionOf(place->index);
  Position tap, window;
  // The window along axis i whose element tap[i] is at the position, if there is one.
  const auto has_window = [&](size_t i) {
    const Recorder::Axis& axis = g_.axes[i];
    const int64_t from = position[i] + axis.before - tap[i] * axis.dilation;
    window[i] = from / axis.stride;
    return from >= 0 && from % axis.stride == 0 && window[i] < axis.windows;
  };
  for (tap[0] = 0; tap[0] < g_.axes[0].kernel; ++tap[0]) {
    if (!has_window(0)) continue;
    for (tap[1] = 0; tap[1] < g_.axes[1].kernel; ++tap[1]) {
      if (!has_window(1)) continue;
      for (tap[2] = 0; tap[2] < g_.axes[2].kernel; ++tap[2]) {
        if (!has_window(2)) continue;
        const int64_t from = gradient.At(0, place->index[0]) + At(gradient, window);
        const int64_t weights = filters.At(1, channel) + At(filters, tap);
        sampler_.AddProducts(gradient.Along(dy, 1, from, group * count),
                             filters.Along(W, 0, weights, group * count), count, place);
      }
    }
  }
}

void ConvSums::AddBackwardW(size_t dy, size_t x, std::span<Place> places) const {
  const Operand &gradient = sampler_.input(dy), &image = sampler_.input(x);
  const int64_t channels = g_.in_channels / g_.group, filters = g_.out_channels / g_.group;
  const int last = 1 + g_.spatial;  // the axis of columns
  // Adds what images contribute to one place.
  const auto add = [&](int64_t n, Place* place) {
    const Position tap = PositionOf(place->index);
    std::array<Range, Recorder::kMostAxes> windows;
    Position first;  // the element of window 0
    for (size_t i = 0; i < windows.size(); ++i) {
      windows[i] = WindowsOf(g_.axes[i], tap[i]);
      first[i] = tap[i] * g_.axes[i].dilation - g_.axes[i].before;
    }
    const auto [begin, end] = windows[2];
    if (end <= begin) return;
    const Recorder::Axis &planes = g_.axes[0], &rows = g_.axes[1], &columns = g_.axes[2];
    const int64_t filter = place->index[0], channel = filter / filters * channels + place->index[1];
    const int64_t of_dy = gradient.At(0, n) + gradient.At(1, filter);
    const int64_t of_x = image.At(0, n) + image.At(1, channel);
    for (int64_t d = windows[0].first; d < windows[0].last; ++d) {
      for (int64_t h = windows[1].first; h < windows[1].last; ++h) {
        const Position at = {d * planes.stride + first[0], h * rows.stride + first[1], 0};
        sampler_.AddProducts(gradient.Along(dy, last, of_dy + At(gradient, {d, h, 0}), begin),
                             image.Along(x, last, of_x + At(image, at),
                                         begin * columns.stride + first[2], columns.stride),
                             end - begin, place);
      }
    }
  };
  OverImages(sampler_, g_.batchsize, g_.col_width, places, add);
}

void ConvSums::AddChannel(size_t dy, std::span<Place> places) const {
  const Operand& gradient = sampler_.input(dy);
  const Shape& shape = gradient.shape();  // that of any image
  const int last = shape.rank() - 1;
  const int64_t rows = shape.Count(2, last);
  OverImages(sampler_, shape[0], rows * shape[last], places, [&](int64_t n, Place* place) {
    for (int64_t row = 0; row < rows; ++row) {
      int64_t from = gradient.At(0, n) + gradient.At(1, place->index[0]);
      int64_t left = row;
      for (int i = last - 1; i >= 2; left /= shape[i--]) from += gradient.At(i, left % shape[i]);
      sampler_.AddTerms(gradient.Along(dy, last, from), shape[last], 1, place);
    }
  });
}

namespace {

/// Adds what a forward pass does behind the products.
void Finish(const ConvSpec& spec, const Sampler& sampler, Place* place) {
  if (spec.geometry.bias) place->Add(sampler.Value(2, {place->index[1]}));
  if (spec.has_add) place->Add(sampler.Value(spec.add_input(), place->index));
  const Activation& f = spec.activation;
  place->value = formula::Activated(f.kind, place->value, f.low, f.high);
  if (formula::FactsOf(f.kind).is_gate) place->magnitude *= 1.5;  // the largest slope
}

/// Calls add for each of the places.
template <class Add>
auto ForEach(const Add& add) {
  return [&add](std::span<Place> places) {
    for (Place& place : places) add(&place);
  };
}

}  // namespace

void ConvSpec::Sample(Sampler& sampler) const {
  const ConvSums sums(geometry, sampler);
  const int64_t terms = sum_length();
  switch (pass) {
    case ConvPass::kForward:
      return sampler.Check(0, "y", geometry.output_shape(), terms, ForEach([&](Place* place) {
                             sums.AddForward(0, 1, place);
                             Finish(*this, sampler, place);
                           }));
    case ConvPass::kBackwardX:
      return sampler.Check(0, "dx", geometry.input_shape(), terms,
                           ForEach([&](Place* place) { sums.AddBackwardX(0, 1, place); }));
    case ConvPass::kBackwardW:
      sampler.Check(0, "dW", geometry.weight_shape(), terms, {.together = true},
                    [&](std::span<Place> places) { sums.AddBackwardW(0, 1, places); });
      return sampler.Check(1, "db", {geometry.out_channels}, terms, {.together = true},
                           [&](std::span<Place> places) { sums.AddChannel(0, places); });
    case ConvPass::kBackwardB:
      return sampler.Check(0, "db", {geometry.out_channels}, terms, {.together = true},
                           [&](std::span<Place> places) { sums.AddChannel(0, places); });
  }
}

void ConvTransposeSpec::Sample(Sampler& sampler) const {
  const ConvSums sums(geometry, sampler);
  const int64_t terms = sum_length();
  switch (pass) {
    case ConvPass::kForward:
      return sampler.Check(0, "y", geometry.input_shape(), terms, ForEach([&](Place* place) {
                             sums.AddBackwardX(0, 1, place);
                             Finish(*this, sampler, place);
                           }));
    case ConvPass::kBackwardX:
      return sampler.Check(0, "dx", geometry.output_shape(), terms,
                           ForEach([&](Place* place) { sums.AddForward(0, 1, place); }));
    case ConvPass::kBackwardW:
      sampler.Check(0, "dW", geometry.weight_shape(), terms, {.together = true},
                    [&](std::span<Place> places) { sums.AddBackwardW(1, 0, places); });
      return sampler.Check(1, "db", {geometry.in_channels}, terms, {.together = true},
                           [&](std::span<Place> places) { sums.AddChannel(0, places); });
    case ConvPass::kBackwardB:
      return sampler.Check(0, "db", {geometry.in_channels}, terms, {.together = true},
                           [&](std::span<Place> places) { sums.AddChannel(0, places); });
  }
}

}  // namespace singa

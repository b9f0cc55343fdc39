#pragma once

// Single elements of convolutions as plain sums, for spot checks.

#include <array>
#include <cstdint>
#include <span>

#include "model/dispatch/spot/sampler.h"
#include "singa/operation/recorder.h"

namespace singa {

/// The sums of a convolution's three passes, of any types. Arguments are named by their numbers
/// among the inputs: `x` is an image of the geometry's input, `dy` one of its output.
class ConvSums {
 public:
  ConvSums(const Recorder& geometry, const spot::Sampler& sampler)
      : g_(geometry), sampler_(sampler) {}

  /// Adds to place.value the sum of y at place.index.
  void AddForward(size_t x, size_t W, spot::Place* place) const;
  /// Likewise of dx.
  void AddBackwardX(size_t dy, size_t W, spot::Place* place) const;
  /// Likewise of dW; all places in one pass over dy and x.
  void AddBackwardW(size_t dy, size_t x, std::span<spot::Place> places) const;
  /// Adds channel place.index[0] of an image, whose sum is the gradient of a bias.
  void AddChannel(size_t dy, std::span<spot::Place> places) const;
  /// Adds the filter's elements that meet the image for y at place.index.
  void AddWeights(size_t W, spot::Place* place) const;

 private:
  struct Range {
    int64_t first = 0, last = 0;
  };
  /// Positions along the spatial axes, of which images may lack some; the others are 0.
  using Position = std::array<int64_t, Recorder::kMostAxes>;

  int64_t At(const spot::Operand& operand, const Position& position) const;
  Position PositionOf(const Shape& index) const;
  template <class Body>
  void ForTaps(const Position& window, const Body& body) const;
  Range WindowsOf(const Recorder::Axis& axis, int64_t tap) const;

  const Recorder& g_;
  const spot::Sampler& sampler_;
};

}  // namespace singa

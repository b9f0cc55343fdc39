// Elements of products of quantized tensors as plain sums, for spot checks.

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/dispatch/spot/sampler.h"
#include "model/formula/unary.h"
#include "model/operation/conv/conv_sums.h"
#include "model/operation/quantized/spec.h"

namespace singa {
namespace {

using spot::Place;

/// The zero point of x; 0 where there is none.
double ZeroOf(const QuantizedFields& fields, const spot::Sampler& sampler) {
  return fields.has_x_zero ? sampler.First(2) : 0;
}

/// What becomes of a sum of products: scaled, and rounded where y has steps.
void Finish(const QuantizedFields& fields, const spot::Sampler& sampler, int64_t output,
            Place* place) {
  // Sums of int32 may wrap around; those are not compared.
  if (place->magnitude >= 0x1p31) place->magnitude = std::numeric_limits<double>::infinity();
  if (!fields.has_scale()) return;
  size_t next = fields.has_x_zero ? 3 : 2;
  place->Scale(sampler.Value(next++, {output}));
  if (fields.has_bias) place->Add(sampler.Value(next++, {output}));
  if (fields.relu) place->Relu();
  if (fields.gelu) {
    place->value = formula::Unary(UnaryOp::kGelu, place->value, 0.0, 0.0);
    place->magnitude *= 1.13;  // its largest slope
  }
  if (!fields.is_rounded()) return;
  const double zero = fields.has_y_zero ? sampler.First(next++) : 0;
  if (fields.has_y_scale) place->Scale(1 / sampler.First(next));
  const double low = fields.y_type == kInt8 ? -128 : 0;
  place->value = std::clamp(std::nearbyint(place->value) + zero, low, low + 255);
}

spot::Sampler::How HowOf(const QuantizedFields& fields) {
  return {.exact = !fields.has_scale(), .rounding = 1};
}

}  // namespace

void QuantizedConvSpec::Sample(spot::Sampler& sampler) const {
  const ConvSums sums(geometry, sampler);
  const double zero = ZeroOf(*this, sampler);
  sampler.Check(0, "y", geometry.output_shape(), geometry.col_height, HowOf(*this),
                [&](std::span<Place> places) {
                  for (Place& place : places) {
                    sums.AddForward(0, 1, &place);
                    if (zero != 0) {
                      Place weights{place.index};
                      sums.AddWeights(1, &weights);
                      weights.Scale(-zero);
                      place.Add(weights);
                    }
                    Finish(*this, sampler, place.index[1], &place);
                  }
                });
}

void QuantizedMatMulSpec::Sample(spot::Sampler& sampler) const {
  const double zero = ZeroOf(*this, sampler);
  sampler.Check(0, "y", {rows, outputs}, length, HowOf(*this), [&](std::span<Place> places) {
    for (Place& place : places) {
      const spot::Operand &x = sampler.input(0), &W = sampler.input(1);
      const spot::Steps column = W.Along(1, 0, W.At(1, place.index[1]));
      sampler.AddProducts(x.Along(0, 1, x.At(0, place.index[0])), column, length, &place);
      if (zero != 0) sampler.AddTerms(column, length, -zero, &place);
      Finish(*this, sampler, place.index[1], &place);
    }
  });
}

}  // namespace singa

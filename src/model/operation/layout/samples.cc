// Elements of a reordered tensor, for spot checks.

#include "model/dispatch/spot/sampler.h"
#include "model/operation/layout/reorder_spec.h"

namespace singa {

void ReorderSpec::Sample(spot::Sampler& sampler) const {
  sampler.Check(0, "result", shape, 1, {.exact = true}, [&](std::span<spot::Place> places) {
    for (spot::Place& place : places) place.Add(sampler.Value(0, place.index));
  });
}

}  // namespace singa

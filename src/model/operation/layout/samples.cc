// Elements of a reordered tensor, for spot checks.

#include "core/layout/blocked_layout.h"
#include "model/dispatch/spot/sampler.h"
#include "model/operation/layout/reorder_spec.h"

namespace singa {

void ReorderSpec::Sample(spot::Sampler& sampler) const {
  // Other layouts hold transformed elements, such as Winograd's filters.
  for (const LayoutPtr& layout : {from, to})
    if (layout && !AsBlocked(layout) && !layout->strides()) return;
  sampler.Check(0, "result", shape, 1, {.exact = true}, [&](std::span<spot::Place> places) {
    for (spot::Place& place : places) place.Add(sampler.Value(0, place.index));
  });
}

}  // namespace singa

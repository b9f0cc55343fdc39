#include "singa/operation/layout.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/layout/spec.h"

namespace singa {

Tensor ToBlocked(const Tensor& x) {
  const PreferredLayoutSpec spec{x.shape(), x.data_type()};
  CheckGiven(spec.op(), "x", x);
  // (N, C, L) may as well be a sequence of features.
  const bool image = x.rank() == 4 || x.rank() == 5;
  if (!image || x.is_blocked() || x.size() == 0) return x;
  const LayoutPtr layout = FindPlan(*x.device(), spec)->output_layout(0);
  return layout ? x.ToLayout(layout) : x;
}

}  // namespace singa

#pragma once

#include <utility>

namespace singa::formula {

/// Calls f.operator()<op>(), with `op` as a constant: one instance of f for each value of the
/// enumeration below Operation::kCount. Does nothing for other values.
template <class Operation, class F>
void SwitchOperation(Operation op, const F& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) {
    (void)((op == static_cast<Operation>(i) &&
            (f.template operator()<static_cast<Operation>(i)>(), true)) ||
           ...);
  }
  (std::make_integer_sequence<int, static_cast<int>(Operation::kCount)>());
}

}  // namespace singa::formula

#pragma once

// A step of many kinds of operations, for passes that change which results are kept.

#include <vector>

#include "model/passes/recorded.h"
#include "singa/operation/dropout.h"
#include "singa/operation/elementwise.h"

namespace singa::test {

/// A step of drawn operations: elementwise ones, dropout, views, sums in place, and updates of
/// three parameters, some of which later operations read again. Tensors have `elements`, a multiple
/// of 64.
inline Step Drawn(uint64_t seed, const std::vector<Tensor>& parameters, int64_t elements) {
  return [=](const std::vector<Tensor>& in) {
    Random random(seed);
    std::vector<Tensor> values{in[0]};
    const auto any = [&] {
      return values[static_cast<size_t>(random.Int(0, static_cast<int64_t>(values.size()) - 1))];
    };
    for (int i = 0; i < 40; ++i) {
      const Tensor& parameter = parameters[static_cast<size_t>(random.Int(0, 2))];
      switch (random.Int(0, 6)) {
        case 0: {
          const std::vector<Tensor> dropped = DropoutForward(any(), 0.3);
          values.push_back(DropoutBackward(any(), dropped[1], 0.3));
          values.push_back(dropped[0]);
          break;
        }
        case 1: {
          const Tensor sum = Unary(UnaryOp::kMulScalar, any(), 0.5);
          Axpy(0.25, any(), sum);
          values.push_back(sum);
          break;
        }
        case 2:
          values.push_back(Binary(BinaryOp::kAdd, any(), parameter));
          break;
        case 3:
          Axpy(0.125, any(), parameter);
          break;
        case 4:
          values.push_back(any()
                               .Reshape({64, elements / 64})
                               .Transpose({1, 0})
                               .Contiguous()
                               .Reshape({elements}));
          break;
        case 5:
          values.push_back(Unary(UnaryOp::kTanh, any()));
          break;
        default:
          values.push_back(Binary(BinaryOp::kMul, any(), any()));
      }
    }
    Tensor result = values[0];
    for (const Tensor& value : values) result = Binary(BinaryOp::kAdd, result, value);
    return std::vector<Tensor>{result};
  };
}

}  // namespace singa::test

// Elements of products of matrices as plain sums, for spot checks.

#include <cmath>

#include "model/dispatch/spot/sampler.h"
#include "model/operation/linalg/spec.h"

namespace singa {

void MatMulSpec::Sample(spot::Sampler& sampler) const {
  Shape shape = a_batch;  // that of y
  for (int i = 0; i < a_batch.rank(); ++i) shape[i] = batch(i);
  shape.push_back(m);
  shape.push_back(n);
  sampler.Check(0, "y", shape, sum_length(), {.flat = true}, [&](std::span<spot::Place> places) {
    for (spot::Place& place : places) {
      int64_t of_a = 0, of_b = 0;  // the matrices
      for (int i = 0; i < a_batch.rank(); ++i) {
        of_a = of_a * a_batch[i] + (a_batch[i] == 1 ? 0 : place.index[i]);
        of_b = of_b * b_batch[i] + (b_batch[i] == 1 ? 0 : place.index[i]);
      }
      const int64_t row = place.index[a_batch.rank()], column = place.index[a_batch.rank() + 1];
      const spot::Steps a{0, of_a * m * k + (trans_a ? row : row * k), nullptr, trans_a ? m : 1};
      const spot::Steps b{1, of_b * k * n + (trans_b ? column * k : column), nullptr,
                          trans_b ? 1 : n};
      sampler.AddProducts(a, b, k, &place);
      place.Scale(alpha);
      if (c_rows > 0) {
        const int64_t at = (c_rows == 1 ? 0 : row) * c_cols + (c_cols == 1 ? 0 : column);
        sampler.AddTerms({2, at}, 1, beta, &place);
      }
      if (relu) place.Relu();
    }
  });
}

}  // namespace singa

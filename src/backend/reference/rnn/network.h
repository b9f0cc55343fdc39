#pragma once

// Shared by both passes of a recurrent network: the order of the steps, which steps belong to a
// sequence, and matrix products divided into blocks.

#include <algorithm>

#include "backend/reference/gemm.h"
#include "model/spec/rnn.h"
#include "singa/core/plan.h"

namespace singa::reference {

/// Sequences that go through the steps together. Fixed, so that the computation of a sequence does
/// not depend on the number of threads.
constexpr int64_t kSequenceGroup = 16;

/// C = op(A)·op(B) + beta·C on all threads, by blocks of rows of C. The blocks depend on the sizes
/// alone.
template <class T>
void GemmByRows(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a,
                int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  constexpr int64_t kBlockWork = int64_t{1} << 22;
  const int64_t block = std::clamp<int64_t>(kBlockWork / std::max<int64_t>(1, n * k), 32, 1024);
  const int64_t blocks = (m + block - 1) / block;
  ParallelFor(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * block; i < std::min(m, end * block); i += block)
      Gemm(trans_a, trans_b, std::min(block, m - i), n, k, T(1), a + (trans_a ? i : i * lda), lda,
           b, ldb, beta, c + i * ldc, ldc);
  });
}

/// The tensor's data; null if the tensor is empty.
template <class T>
const T* DataOrNull(const Tensor& t) {
  return t.empty() ? nullptr : static_cast<const T*>(t.raw_data());
}

class RnnSteps {
 public:
  /// Throws std::invalid_argument, naming `op`, if a length is outside [0, steps].
  RnnSteps(const char* op, const RnnFields& fields, const Tensor& seq_lengths)
      : fields_(fields), lengths_(DataOrNull<int32_t>(seq_lengths)) {
    if (lengths_) CheckLengths(op, fields, {lengths_, static_cast<size_t>(fields.batch)});
  }

  /// The time of step s of a direction. Direction 1 runs backwards.
  int64_t time(int64_t direction, int64_t s) const {
    return direction == 0 ? s : fields_.steps - 1 - s;
  }
  /// Whether the sequence extends to this time.
  bool counts(int64_t time, int64_t sequence) const {
    return lengths_ == nullptr || time < lengths_[sequence];
  }

  /// Calls run(direction, first, last) on all threads, for groups of sequences of each direction.
  template <class Run>
  void ForEachGroup(const Run& run) const {
    const int64_t groups = (fields_.batch + kSequenceGroup - 1) / kSequenceGroup;
    const int64_t work = fields_.steps * kSequenceGroup * fields_.gate_rows() * fields_.hidden;
    ParallelFor(fields_.directions * groups, std::max<int64_t>(1, kGemmGrain / work),
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const int64_t first = i % groups * kSequenceGroup;
                    run(i / groups, first, std::min(fields_.batch, first + kSequenceGroup));
                  }
                });
  }

 private:
  const RnnFields& fields_;
  const int32_t* lengths_;
};

/// First row of the state before step s; `initial` (or zeros) before the first step.
template <class T>
const T* PreviousState(const RnnFields& fields, const RnnSteps& steps, int64_t direction, int64_t s,
                       const T* initial, const T* states) {
  if (s == 0) return initial;
  return states + steps.time(direction, s - 1) * fields.batch * fields.hidden;
}

}  // namespace singa::reference

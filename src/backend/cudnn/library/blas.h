#pragma once

// What the kernels of this folder ask of cuBLASLt. nvidia/ answers with the library, emulated/ with
// loops on the host.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cudnn/library/executable.h"
#include "singa/core/dtype.h"

namespace singa::cudnn {

/// y = relu(alpha · op(a) · op(b) + beta · y + bias) for `batch` row-major matrices: y (m, n),
/// op(a) (m, k), op(b) (k, n). Arguments: a, b [, bias (n)], y.
struct MatMulProblem {
  DType dtype = kFloat32;
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false;  ///< a is stored (k, m)
  bool trans_b = false;  ///< b is stored (n, k)
  int64_t batch = 1;
  /// Elements from one matrix to the next; 0: the same one each time.
  int64_t a_step = 0, b_step = 0, y_step = 0;
  double alpha = 1;
  double beta = 0;  ///< of what y holds before
  bool bias = false;
  bool relu = false;
  bool tf32 = false;          ///< float32 factors may be rounded to TF32
  bool rounds_sums = true;    ///< partial sums may be kept as they are stored
  int alignment = 16;         ///< all begin at multiples of so many bytes
  size_t most_workspace = 0;  ///< bytes
  bool operator==(const MatMulProblem&) const = default;
};

/// One of the library's algorithms with its parameters.
struct MatMulWay {
  std::string name;  ///< "algo66 tile20 stages24 ...": the same in every process
  size_t workspace = 0;
  std::shared_ptr<const void> algorithm = nullptr;  ///< the library's own
};

class BlasLibrary {
 public:
  virtual ~BlasLibrary() = default;
  /// Why it cannot be used, in a sentence that says what to install; empty where it can be.
  virtual std::string Problem() = 0;
  /// "cuBLASLt 13.1.0"
  virtual std::string Version() = 0;
  // For the GPU that is the calling thread's.
  /// `most` algorithms at most that need no more than most_workspace, best first.
  virtual std::vector<MatMulWay> Ways(const MatMulProblem& problem, int most) = 0;
  virtual std::shared_ptr<const Executable> Build(const MatMulProblem& problem,
                                                  const MatMulWay& way) = 0;
};

/// That of this build: cuBLASLt, or the host's.
BlasLibrary& Blas();

}  // namespace singa::cudnn

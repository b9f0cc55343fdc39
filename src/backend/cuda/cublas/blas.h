#pragma once

// The interface of this folder's kernels to cuBLASLt. nvidia/ implements it with the library,
// test/emulated_gpu with loops on the host.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cuda/cudnn/executable.h"
#include "singa/core/dtype.h"

namespace singa::cudnn {

/// y = alpha · op(a) · op(b) + beta · y + bias for `batch` row-major matrices: y (m, n),
/// op(a) (m, k), op(b) (k, n). Arguments: a, b [, bias (n)], y.
struct MatMulProblem {
  DType dtype = kFloat32;
  int64_t m = 0, n = 0, k = 0;
  bool trans_a = false;  ///< a is stored as (k, m)
  bool trans_b = false;  ///< b is stored as (n, k)
  int64_t batch = 1;
  /// Elements between the matrices of a batch; 0 if all share one.
  int64_t a_step = 0, b_step = 0, y_step = 0;
  double alpha = 1;
  double beta = 0;  ///< factor of y's previous contents
  bool bias = false;
  bool tf32 = false;          ///< float32 factors may be rounded to TF32
  int alignment = 16;         ///< all addresses are multiples of this many bytes
  size_t most_workspace = 0;  ///< bytes
  bool operator==(const MatMulProblem&) const = default;
};

/// One of the library's algorithms with its parameters.
struct MatMulAlgorithm {
  std::string name;  ///< "algo66 tile20 stages24 ...": the same in every process
  size_t workspace = 0;
  std::shared_ptr<const void> handle = nullptr;  ///< the library's algorithm object
};

class BlasLibrary {
 public:
  virtual ~BlasLibrary() = default;
  /// Why the library cannot be used and what to install; empty if it can be used.
  virtual std::string Problem() = 0;
  /// "cuBLASLt 13.1.0"
  virtual std::string Version() = 0;
  // The following are for the calling thread's current GPU.
  /// Up to `most` algorithms within most_workspace, best first.
  virtual std::vector<MatMulAlgorithm> Algorithms(const MatMulProblem& problem, int most) = 0;
  virtual std::shared_ptr<const Executable> Build(const MatMulProblem& problem,
                                                  const MatMulAlgorithm& algorithm) = 0;
};

/// The library of this build: cuBLASLt, or its emulation on the host.
BlasLibrary& Blas();

}  // namespace singa::cudnn

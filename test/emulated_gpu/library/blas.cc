#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "emulated_gpu/library/element.h"
#include "emulated_gpu/library/libraries.h"
#include "emulated_gpu/queue.h"

namespace singa::cudnn {
namespace emulated {
namespace {

/// Reads a matrix of factors in row-major order.
std::vector<double> Read(const MatMulProblem& p, const void* data, int64_t first, int64_t rows,
                         int64_t columns, bool transposed) {
  const bool tf32 = p.tf32 && p.dtype == kFloat32;
  std::vector<double> values;
  values.reserve(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      const double value =
          Load(data, p.dtype, first + (transposed ? j * rows + i : i * columns + j));
      values.push_back(tf32 ? ToTf32(value) : value);
    }
  return values;
}

void Multiply(const MatMulProblem& p, const std::vector<void*>& arguments) {
  void* const y = arguments.back();
  for (int64_t i = 0; i < p.batch; ++i) {
    const std::vector<double> a = Read(p, arguments[0], i * p.a_step, p.m, p.k, p.trans_a);
    const std::vector<double> b = Read(p, arguments[1], i * p.b_step, p.k, p.n, p.trans_b);
    for (int64_t row = 0; row < p.m; ++row) {
      std::vector<double> sums(static_cast<size_t>(p.n));
      for (int64_t k = 0; k < p.k; ++k) {
        const double factor = a[static_cast<size_t>(row * p.k + k)];
        const double* const b_row = b.data() + k * p.n;
        for (size_t col = 0; col < sums.size(); ++col) sums[col] += factor * b_row[col];
      }
      for (int64_t col = 0; col < p.n; ++col) {
        const int64_t place = i * p.y_step + row * p.n + col;
        double value = p.alpha * sums[static_cast<size_t>(col)];
        if (p.beta != 0) value += p.beta * Load(y, p.dtype, place);
        if (p.bias) value += Load(arguments[2], p.dtype, col);
        Store(y, p.dtype, place, value);
      }
    }
  }
}

class Product final : public Executable {
 public:
  Product(const MatMulProblem& problem, size_t workspace)
      : problem_(problem), workspace_(workspace) {}
  void Run(const Device& device, std::span<void* const> arguments, void* workspace) const override {
    CheckAlignment(arguments, problem_.alignment, workspace);
    cuda::emulated::Enqueue(cuda::StreamOf(device),
                            [problem = problem_, bytes = workspace_, workspace,
                             held = std::vector<void*>(arguments.begin(), arguments.end())] {
                              if (bytes) std::memset(workspace, 0x5a, bytes);
                              Multiply(problem, held);
                            });
  }
  size_t workspace_bytes() const override { return workspace_; }

 private:
  MatMulProblem problem_;
  size_t workspace_;
};

class HostBlas final : public BlasLibrary {
 public:
  std::string Problem() override { return ""; }
  std::string Version() override { return "emulation 1"; }
  std::vector<MatMulAlgorithm> Algorithms(const MatMulProblem& problem, int most) override {
    if (std::min({problem.batch, problem.m, problem.n, problem.k}) < 1)
      throw std::runtime_error("cuBLASLt takes no empty matrix");
    emulated::Blas().asked.push_back(problem);
    std::vector<MatMulAlgorithm> found;
    for (const MatMulAlgorithm& algorithm :
         {MatMulAlgorithm{"algo2 split4", 1 << 16, nullptr}, MatMulAlgorithm{"algo1", 0, nullptr}})
      if (algorithm.workspace <= problem.most_workspace && std::ssize(found) < most)
        found.push_back(algorithm);
    return found;
  }
  std::shared_ptr<const Executable> Build(const MatMulProblem& problem,
                                          const MatMulAlgorithm& algorithm) override {
    return std::make_shared<Product>(problem, algorithm.workspace);
  }
};

}  // namespace

BlasState& Blas() {
  static auto& state = *new BlasState;
  return state;
}

}  // namespace emulated

BlasLibrary& Blas() {
  static auto& library = *new emulated::HostBlas;
  return library;
}

}  // namespace singa::cudnn

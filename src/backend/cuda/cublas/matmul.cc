// Matrix products by cuBLASLt. A row c with factor 1 is added by its bias epilogue. Any other c is
// copied to y first, and the product is added to y. ReLU is our own kernel's, on y: that of the
// epilogue makes 0 of NaN.

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/cuda/cublas/blas.h"
#include "backend/cuda/cudnn/own_kernel.h"
#include "model/dispatch/kernel.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/linalg/spec.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::cudnn {
namespace {

constexpr const char* kName = "cublaslt";
/// NVIDIA's recommendation for Hopper; algorithms for smaller GPUs need less.
constexpr size_t kWorkspace = size_t{32} << 20;
constexpr int kMostMeasured = 12;

/// A product of stacks of matrices: one call for the last batch axis, at each position along the
/// other axes.
struct Calls {
  MatMulProblem problem;
  struct Place {
    int64_t a, b, y;  ///< first elements
  };
  std::vector<Place> places;
};

/// True if c is a row with factor 1. float64 has no epilogues.
bool AddsBias(const MatMulSpec& s) {
  return s.c_rows == 1 && s.c_cols == s.n && s.beta == 1 && s.dtype != kFloat64;
}

Calls CallsOf(const MatMulSpec& s) {
  Calls calls;
  MatMulProblem& p = calls.problem;
  p.dtype = s.dtype;
  p.m = s.m, p.n = s.n, p.k = s.k;
  p.trans_a = s.trans_a, p.trans_b = s.trans_b;
  p.alpha = s.alpha;
  p.bias = AddsBias(s);
  p.beta = s.c_rows > 0 && !p.bias ? s.beta : 0;
  p.tf32 = RoundsFloat32Factors();
  p.most_workspace = kWorkspace;

  const int64_t a_size = s.m * s.k, b_size = s.k * s.n, y_size = s.m * s.n;
  const int rank = s.a_batch.rank();
  if (rank > 0) {
    p.batch = s.batch(rank - 1);
    p.a_step = s.a_batch[rank - 1] > 1 ? a_size : 0;
    p.b_step = s.b_batch[rank - 1] > 1 ? b_size : 0;
    p.y_step = y_size;
  }
  calls.places = {{0, 0, 0}};
  int64_t a_step = rank > 0 ? a_size * s.a_batch[rank - 1] : 0;
  int64_t b_step = rank > 0 ? b_size * s.b_batch[rank - 1] : 0;
  int64_t y_step = y_size * p.batch;
  for (int axis = rank - 2; axis >= 0; --axis) {
    std::vector<Calls::Place> more;
    for (int64_t i = 0; i < s.batch(axis); ++i)
      for (const Calls::Place& place : calls.places)
        more.push_back({place.a + (s.a_batch[axis] > 1 ? i * a_step : 0),
                        place.b + (s.b_batch[axis] > 1 ? i * b_step : 0), place.y + i * y_step});
    calls.places = std::move(more);
    a_step *= s.a_batch[axis], b_step *= s.b_batch[axis], y_step *= s.batch(axis);
  }
  uint64_t places = static_cast<uint64_t>(s.alignment);
  for (const Calls::Place& place : calls.places)
    places |= static_cast<uint64_t>(place.a | place.b | place.y) * SizeOf(s.dtype);
  p.alignment = static_cast<int>(places & (~places + 1));
  return calls;
}

PlanPtr ReluOf(const MatMulSpec& spec) { return OwnKernel(UnarySpec{UnaryOp::kRelu, spec.dtype}); }

class MatMulPlan final : public Plan {
 public:
  MatMulPlan(const MatMulSpec& spec, const MatMulAlgorithm& algorithm)
      : Plan(kName), name_(algorithm.name), calls_(CallsOf(spec)), size_(SizeOf(spec.dtype)) {
    executable_ = Blas().Build(calls_.problem, algorithm);
    if (spec.relu) relu_ = ReluOf(spec);
  }

  void Run(const Execution& execution) const override {
    const Tensor& y = execution.outputs[0];
    const MatMulProblem& p = calls_.problem;
    if (p.beta != 0) execution.device.CopyElements(execution.inputs[2].Broadcast(y.shape()), y);
    for (const Calls::Place& place : calls_.places) {
      void* arguments[4] = {At(execution.inputs[0], place.a), At(execution.inputs[1], place.b)};
      size_t count = 2;
      if (p.bias) arguments[count++] = execution.inputs[2].raw_data();
      arguments[count++] = At(y, place.y);
      executable_->Run(execution.device, {arguments, count}, execution.workspace);
    }
    if (relu_) {
      const Tensor in_place[] = {y};
      relu_->Run({execution.device, in_place, in_place, execution.scalars, execution.workspace});
    }
  }
  std::string Describe() const override {
    return std::string(kName) + " " + name_ + (factor_error() > 0 ? " tf32" : "");
  }
  size_t workspace_bytes() const override { return executable_->workspace_bytes(); }
  double factor_error() const override {
    return calls_.problem.tf32 && calls_.problem.dtype == kFloat32 ? kTf32Error : 0;
  }
  size_t bytes() const override { return size_t{4} << 10; }

 private:
  void* At(const Tensor& t, int64_t element) const {
    return static_cast<char*>(t.raw_data()) + static_cast<size_t>(element) * size_;
  }

  std::string name_;
  Calls calls_;
  size_t size_;
  std::shared_ptr<const Executable> executable_;
  PlanPtr relu_;
};

/// y = 0, or c broadcast to y's shape, for k = 0.
class EmptySum final : public Plan {
 public:
  EmptySum() : Plan(kName) {}
  void Run(const Execution& execution) const override {
    const Tensor& y = execution.outputs[0];
    if (execution.inputs.size() > 2) {
      execution.device.CopyElements(execution.inputs[2].Broadcast(y.shape()), y);
    } else {
      execution.device.ZeroBytes(y.raw_data(), static_cast<size_t>(y.bytes()));
    }
  }
  std::string Describe() const override { return std::string(kName) + " sum of nothing"; }
};

std::vector<MatMulAlgorithm> AlgorithmsOf(const MatMulSpec& spec, int most) {
  MatMulProblem problem = CallsOf(spec).problem;
  std::vector<MatMulAlgorithm> found = Blas().Algorithms(problem, most);
  if (most == 1 && !found.empty()) return found;
  // Offers an algorithm without workspace, too, in case memory is scarce.
  problem.most_workspace = 0;
  for (MatMulAlgorithm& algorithm : Blas().Algorithms(problem, most == 1 ? 1 : 2))
    if (std::none_of(found.begin(), found.end(),
                     [&](const MatMulAlgorithm& other) { return other.name == algorithm.name; }))
      found.push_back(std::move(algorithm));
  return found;
}

std::string Refuses(const MatMulSpec& spec) {
  if (!IsFloat(spec.dtype))
    return std::string("cuBLASLt does not multiply ") + DTypeName(spec.dtype);
  if (spec.k == 0)
    return spec.c_rows > 0 && (spec.beta != 1 || spec.relu) ? "sums of nothing, and more than that"
                                                            : "";
  if (spec.relu && !ReluOf(spec)) return "no kernel cuts off negative values on this device";
  return Blas().Problem();
}

std::vector<Candidate> Candidates(const MatMulSpec& spec) {
  if (spec.k == 0)
    return {{std::string(kName) + " sum of nothing", [] { return std::make_shared<EmptySum>(); }}};
  std::vector<Candidate> candidates;
  for (const MatMulAlgorithm& algorithm : AlgorithmsOf(spec, kMostMeasured))
    candidates.push_back(
        {std::string(kName) + " " + Blas().Version() + " " + algorithm.name,
         [spec, algorithm] { return std::make_shared<MatMulPlan>(spec, algorithm); },
         algorithm.workspace});
  return candidates;
}

PlanOrReason Make(const MatMulSpec& spec) {
  if (spec.k == 0) return std::make_shared<EmptySum>();
  const std::vector<MatMulAlgorithm> found = AlgorithmsOf(spec, 1);
  if (found.empty()) return PlanOrReason::None("cuBLASLt has no algorithm for this");
  return std::make_shared<MatMulPlan>(spec, found[0]);
}

}  // namespace

SINGA_KERNELS(cuda_libraries) {
  Register<MatMulSpec>(DeviceKind::kCuda, kName,
                       {.refuses = Refuses, .make = Make, .candidates = Candidates});
}

}  // namespace singa::cudnn

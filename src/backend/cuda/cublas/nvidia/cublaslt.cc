// Matrix products by cuBLASLt, which stores matrices by columns. To it, a row-major matrix is its
// transpose, so this computes y' = op(b)' · op(a)', with b as the first factor.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "backend/cuda/cublas/blas.h"
#include "backend/cuda/cudnn/nvidia/vendor.h"
#include "backend/cuda/runtime/runtime.h"
#include "singa/core/error.h"

namespace singa::cudnn {
namespace {

const VendorLibrary& File() {
  static const auto& library =
      *new VendorLibrary("libcublasLt.so.13", "nvidia/cu13/lib", "nvidia-cublas");
  return library;
}

struct Functions {
  SINGA_VENDOR_FUNCTION(File, Create, cublasLtCreate);
  SINGA_VENDOR_FUNCTION(File, GetVersion, cublasLtGetVersion);
  SINGA_VENDOR_FUNCTION(File, GetStatusString, cublasLtGetStatusString);
  SINGA_VENDOR_FUNCTION(File, DescCreate, cublasLtMatmulDescCreate);
  SINGA_VENDOR_FUNCTION(File, DescDestroy, cublasLtMatmulDescDestroy);
  SINGA_VENDOR_FUNCTION(File, DescSet, cublasLtMatmulDescSetAttribute);
  SINGA_VENDOR_FUNCTION(File, LayoutCreate, cublasLtMatrixLayoutCreate);
  SINGA_VENDOR_FUNCTION(File, LayoutDestroy, cublasLtMatrixLayoutDestroy);
  SINGA_VENDOR_FUNCTION(File, LayoutSet, cublasLtMatrixLayoutSetAttribute);
  SINGA_VENDOR_FUNCTION(File, PreferenceCreate, cublasLtMatmulPreferenceCreate);
  SINGA_VENDOR_FUNCTION(File, PreferenceDestroy, cublasLtMatmulPreferenceDestroy);
  SINGA_VENDOR_FUNCTION(File, PreferenceSet, cublasLtMatmulPreferenceSetAttribute);
  SINGA_VENDOR_FUNCTION(File, GetHeuristic, cublasLtMatmulAlgoGetHeuristic);
  SINGA_VENDOR_FUNCTION(File, AlgoGet, cublasLtMatmulAlgoConfigGetAttribute);
  SINGA_VENDOR_FUNCTION(File, Matmul, cublasLtMatmul);
};

const Functions& Lt() {
  static const Functions functions;
  return functions;
}

std::string Text(const MatMulProblem& p) {
  return std::to_string(p.batch) + " x (" + std::to_string(p.m) + ", " + std::to_string(p.k) +
         ") by (" + std::to_string(p.k) + ", " + std::to_string(p.n) + ") " + DTypeName(p.dtype);
}

void CheckLt(cublasStatus_t status, const char* call, const MatMulProblem* problem = nullptr) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  std::string text = std::string("cuBLASLt: cannot ") + call;
  if (problem) text += " for " + Text(*problem);
  text += std::string(": ") + Lt().GetStatusString(status);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw OutOfMemory(text);
  throw std::runtime_error(text);
}

/// The handle for the thread's current GPU. Threads share it.
cublasLtHandle_t Handle() {
  static auto& mutex = *new std::mutex;
  static auto& handles = *new std::map<int, cublasLtHandle_t>;
  int device = 0;
  if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess)
    throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
  const std::lock_guard<std::mutex> lock(mutex);
  cublasLtHandle_t& handle = handles[device];
  if (!handle) CheckLt(Lt().Create(&handle), "start");
  return handle;
}

/// Owns one of the library's descriptors.
template <class Handle>
class Owned {
 public:
  Owned() = default;
  Owned(Handle handle, cublasStatus_t (*destroy)(Handle)) : handle_(handle), destroy_(destroy) {}
  ~Owned() {
    if (handle_) destroy_(handle_);
  }
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), destroy_(other.destroy_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(destroy_, other.destroy_);
    return *this;
  }
  Handle get() const { return handle_; }

 private:
  Handle handle_ = nullptr;
  cublasStatus_t (*destroy_)(Handle) = nullptr;
};

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case kFloat16:
      return CUDA_R_16F;
    case kBFloat16:
      return CUDA_R_16BF;
    case kFloat64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

/// A stack of column-major matrices with `rows` contiguous elements per column.
Owned<cublasLtMatrixLayout_t> NewLayout(const MatMulProblem& p, int64_t rows, int64_t cols,
                                        int64_t step) {
  cublasLtMatrixLayout_t layout = nullptr;
  CheckLt(Lt().LayoutCreate(&layout, TypeOf(p.dtype), static_cast<uint64_t>(rows),
                            static_cast<uint64_t>(cols), rows),
          "describe a matrix", &p);
  Owned<cublasLtMatrixLayout_t> owned(layout, Lt().LayoutDestroy);
  if (p.batch > 1) {
    const auto count = static_cast<int32_t>(p.batch);
    CheckLt(Lt().LayoutSet(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)),
            "describe a batch", &p);
    CheckLt(
        Lt().LayoutSet(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof(step)),
        "describe a batch", &p);
  }
  return owned;
}

/// The library's description of a product.
struct Description {
  Owned<cublasLtMatmulDesc_t> desc;
  Owned<cublasLtMatrixLayout_t> first, second, result;

  explicit Description(const MatMulProblem& p) {
    cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
    if (p.dtype == kFloat64) compute = CUBLAS_COMPUTE_64F;
    if (p.dtype == kFloat32 && p.tf32) compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    cublasLtMatmulDesc_t handle = nullptr;
    CheckLt(Lt().DescCreate(&handle, compute, p.dtype == kFloat64 ? CUDA_R_64F : CUDA_R_32F),
            "describe a product", &p);
    desc = Owned<cublasLtMatmulDesc_t>(handle, Lt().DescDestroy);
    const auto set = [&](cublasLtMatmulDescAttributes_t name, auto value) {
      CheckLt(Lt().DescSet(handle, name, &value, sizeof(value)), "describe a product", &p);
    };
    const auto transposed = [](bool trans) {
      return static_cast<int32_t>(trans ? CUBLAS_OP_T : CUBLAS_OP_N);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, transposed(p.trans_b));
    set(CUBLASLT_MATMUL_DESC_TRANSB, transposed(p.trans_a));
    const uint32_t epilogue = p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    first = p.trans_b ? NewLayout(p, p.k, p.n, p.b_step) : NewLayout(p, p.n, p.k, p.b_step);
    second = p.trans_a ? NewLayout(p, p.m, p.k, p.a_step) : NewLayout(p, p.k, p.m, p.a_step);
    result = NewLayout(p, p.n, p.m, p.y_step);
    // The heuristics read the alignment from the address; null would promise any alignment.
    if (p.bias) SetBias(reinterpret_cast<void*>(static_cast<uintptr_t>(p.alignment)));
  }

  void SetBias(void* bias) const {
    CheckLt(Lt().DescSet(desc.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)),
            "take the bias");
  }
};

template <class T>
int64_t ConfigOf(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t name) {
  T value{};
  size_t written = 0;
  CheckLt(Lt().AlgoGet(&algo, name, &value, sizeof(value), &written), "describe an algorithm");
  return static_cast<int64_t>(value);
}

std::string NameOf(const cublasLtMatmulAlgo_t& algo) {
  const auto number = [&](const char* word, int64_t value) {
    return value ? std::string(" ") + word + std::to_string(value) : std::string();
  };
  return "algo" + std::to_string(ConfigOf<int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID)) +
         number("tile", ConfigOf<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID)) +
         number("stages", ConfigOf<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID)) +
         number("split", ConfigOf<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM)) +
         number("reduction", ConfigOf<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME)) +
         number("swizzle", ConfigOf<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING)) +
         number("option", ConfigOf<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION)) +
         number("inner", ConfigOf<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID)) +
         number("cluster", ConfigOf<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

class Product final : public Executable {
 public:
  Product(const MatMulProblem& problem, const MatMulAlgorithm& algorithm)
      : problem_(problem),
        description_(problem),
        algorithm_(*static_cast<const cublasLtMatmulAlgo_t*>(algorithm.handle.get())),
        workspace_(algorithm.workspace) {}

  void Run(const Device& device, std::span<void* const> arguments, void* workspace) const override {
    const cuda::Stream stream = cuda::StreamOf(device);  // makes this GPU current
    void* const y = arguments.back();
    // The bias pointer is part of the description, which threads share. The library reads it during
    // the call only.
    std::unique_lock<std::mutex> lock(bias_mutex_, std::defer_lock);
    if (problem_.bias) {
      lock.lock();
      description_.SetBias(arguments[2]);
    }
    const double alpha64 = problem_.alpha, beta64 = problem_.beta;
    const auto alpha32 = static_cast<float>(alpha64), beta32 = static_cast<float>(beta64);
    const bool wide = problem_.dtype == kFloat64;
    const void* alpha = wide ? static_cast<const void*>(&alpha64) : &alpha32;
    const void* beta = wide ? static_cast<const void*>(&beta64) : &beta32;
    CheckLt(Lt().Matmul(Handle(), description_.desc.get(), alpha, arguments[1],
                        description_.first.get(), arguments[0], description_.second.get(), beta, y,
                        description_.result.get(), y, description_.result.get(), &algorithm_,
                        workspace, workspace_, stream),
            "multiply", &problem_);
  }
  size_t workspace_bytes() const override { return workspace_; }

 private:
  MatMulProblem problem_;
  Description description_;
  mutable std::mutex bias_mutex_;
  cublasLtMatmulAlgo_t algorithm_;
  size_t workspace_;
};

class CublasLt final : public BlasLibrary {
 public:
  std::string Problem() override { return File().problem(); }
  std::string Version() override {
    const size_t v = Lt().GetVersion();
    return "cuBLASLt " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
           std::to_string(v % 100);
  }

  std::vector<MatMulAlgorithm> Algorithms(const MatMulProblem& p, int most) override {
    const Description d(p);
    cublasLtMatmulPreference_t handle = nullptr;
    CheckLt(Lt().PreferenceCreate(&handle), "ask", &p);
    const Owned<cublasLtMatmulPreference_t> preference(handle, Lt().PreferenceDestroy);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t name, auto value) {
      CheckLt(Lt().PreferenceSet(handle, name, &value, sizeof(value)), "ask", &p);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(p.most_workspace));
    for (const auto name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(name, static_cast<uint32_t>(p.alignment));
    // Other schemes round the parts of a long sum to the type of the result.
    if (SizeOf(p.dtype) < sizeof(float))
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
    int count = 0;
    const cublasStatus_t status =
        Lt().GetHeuristic(Handle(), d.desc.get(), d.first.get(), d.second.get(), d.result.get(),
                          d.result.get(), handle, most, results.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    CheckLt(status, "choose an algorithm", &p);
    std::vector<MatMulAlgorithm> found;
    for (int i = 0; i < count; ++i) {
      const cublasLtMatmulHeuristicResult_t& result = results[static_cast<size_t>(i)];
      if (result.state != CUBLAS_STATUS_SUCCESS) continue;
      found.push_back({NameOf(result.algo), result.workspaceSize,
                       std::make_shared<const cublasLtMatmulAlgo_t>(result.algo)});
    }
    return found;
  }

  std::shared_ptr<const Executable> Build(const MatMulProblem& problem,
                                          const MatMulAlgorithm& algorithm) override {
    return std::make_shared<Product>(problem, algorithm);
  }
};

}  // namespace

BlasLibrary& Blas() {
  static auto& library = *new CublasLt;
  return library;
}

}  // namespace singa::cudnn

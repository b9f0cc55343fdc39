// cuDNN's graph API: engines from its heuristics for an operation graph, and execution plans.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "backend/cuda/cudnn/nvidia/descriptor.h"
#include "backend/cuda/cudnn/nvidia/graph.h"
#include "backend/cuda/runtime/runtime.h"
#include "singa/core/error.h"

namespace singa::cudnn {
namespace {

// Required up to cuDNN 9.7, ignored since, and marked as deprecated.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
constexpr cudnnBackendAttributeName_t kPlanHandle = CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
#pragma GCC diagnostic pop

/// A cuDNN handle belongs to one thread and one GPU at a time. Threads that end pass their handles
/// to others. Handles are never destroyed, because the driver may be gone by then.
class Handles {
 public:
  /// This thread's handle for its current GPU.
  static cudnnHandle_t Get() {
    thread_local Mine mine;
    int device = 0;
    if (const cudaError_t status = cudaGetDevice(&device); status != cudaSuccess)
      throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(status));
    cudnnHandle_t& handle = mine.handles[device];
    if (!handle) handle = Take(device);
    return handle;
  }

 private:
  struct Mine {
    std::map<int, cudnnHandle_t> handles;
    ~Mine() {
      const std::lock_guard<std::mutex> lock(Mutex());
      for (const auto& [device, handle] : handles) Spare()[device].push_back(handle);
    }
  };
  static cudnnHandle_t Take(int device) {
    {
      const std::lock_guard<std::mutex> lock(Mutex());
      std::vector<cudnnHandle_t>& spare = Spare()[device];
      if (!spare.empty()) {
        const cudnnHandle_t handle = spare.back();
        spare.pop_back();
        return handle;
      }
    }
    cudnnHandle_t handle = nullptr;
    // Creating a handle allocates memory. This thread may be capturing work that only other threads
    // have queued before, so allow it during a capture.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    const cudnnStatus_t status = Cudnn().Create(&handle);
    cudaThreadExchangeStreamCaptureMode(&mode);
    CheckCudnn(status, "cudnnCreate");
    return handle;
  }
  static std::mutex& Mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
  }
  static std::map<int, std::vector<cudnnHandle_t>>& Spare() {
    static auto& spare = *new std::map<int, std::vector<cudnnHandle_t>>;
    return spare;
  }
};

/// The type behind Engine::config.
struct Config {
  std::shared_ptr<const Graph> graph;
  Descriptor config;
};

/// The engine's number, and its knobs in numerical order.
std::string NameOf(const Descriptor& config, const Descriptor& engine) {
  std::string name = "eng" + std::to_string(engine.GetInt(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  std::map<int, int64_t> knobs;
  for (const Descriptor& choice :
       config.GetDescriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                             CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    const auto type = choice.Get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                                         CUDNN_TYPE_KNOB_TYPE, 1);
    knobs[type.at(0)] = choice.GetInt(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  }
  for (const auto& [type, value] : knobs)
    name += " k" + std::to_string(type) + "=" + std::to_string(value);
  return name;
}

class Plan final : public Executable {
 public:
  Plan(std::shared_ptr<const Graph> graph, Descriptor plan)
      : graph_(std::move(graph)),
        plan_(std::move(plan)),
        workspace_(static_cast<size_t>(plan_.GetInt(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE))),
        uids_(graph_->arguments()) {
    uids_.insert(uids_.end(), graph_->constants().begin(), graph_->constants().end());
  }

  void Run(const Device& device, std::span<void* const> arguments, void* workspace) const override {
    const cuda::Stream stream = cuda::StreamOf(device);  // makes this GPU current
    const cudnnHandle_t handle = CudnnHandle();
    CheckCudnn(Cudnn().SetStream(handle, stream), "set the stream");
    std::vector<const void*> places(arguments.begin(), arguments.end());
    for (const void* constant : graph_->constant_values()) places.push_back(constant);
    Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.SetInts(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, uids_);
    pack.Set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             static_cast<int64_t>(places.size()), places.data());
    pack.Set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack.Finalize("take the arguments");
    CheckCudnn(Cudnn().Execute(handle, plan_.get(), pack.get()), "run");
  }
  size_t workspace_bytes() const override { return workspace_; }

 private:
  std::shared_ptr<const Graph> graph_;
  Descriptor plan_;
  size_t workspace_;
  std::vector<int64_t> uids_;
};

class CudnnLibrary final : public DnnLibrary {
 public:
  std::string Problem() override { return CudnnFile().problem(); }
  std::string Version() override {
    const size_t v = Cudnn().GetVersion();
    return "cuDNN " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." +
           std::to_string(v % 100);
  }

  std::vector<Engine> Engines(const DnnProblem& problem) override {
    const auto graph = std::make_shared<const Graph>(problem);
    std::vector<Engine> engines;
    // The fallback engines are slow, but support graphs that no other engine does.
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
      for (Engine& engine : Ask(graph, mode))
        if (std::none_of(engines.begin(), engines.end(),
                         [&](const Engine& other) { return other.name == engine.name; }))
          engines.push_back(std::move(engine));
    return engines;
  }

  std::shared_ptr<const Executable> Build(const DnnProblem&, const Engine& engine) override {
    const auto& config = *static_cast<const Config*>(engine.config.get());
    Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.SetDescriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config.config);
    const cudnnHandle_t handle = CudnnHandle();
    plan.Set(kPlanHandle, CUDNN_TYPE_HANDLE, 1, &handle);
    plan.Finalize("build the plan");
    return std::make_shared<Plan>(config.graph, std::move(plan));
  }

 private:
  std::vector<Engine> Ask(const std::shared_ptr<const Graph>& graph,
                          cudnnBackendHeurMode_t mode) const {
    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.SetDescriptor(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph->get());
    heuristics.Set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    // A failing status means that no engine supports the graph.
    if (heuristics.TryFinalize() != CUDNN_STATUS_SUCCESS) return {};
    std::vector<Engine> engines;
    for (Descriptor& found : heuristics.GetDescriptors(
             CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
             heuristics.Count(CUDNN_ATTR_ENGINEHEUR_RESULTS)))
      engines.push_back(Describe(graph, std::move(found)));
    return engines;
  }

  static Engine Describe(const std::shared_ptr<const Graph>& graph, Descriptor found) {
    const std::vector<Descriptor> bare =
        found.GetDescriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    const Descriptor& of = bare.at(0);
    Engine engine;
    engine.name = NameOf(found, of);
    engine.workspace = static_cast<size_t>(found.GetInt(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE));
    for (const auto note : of.Get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                               CUDNN_TYPE_NUMERICAL_NOTE,
                                                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT)) {
      engine.tensor_cores |= note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
      engine.rounds_inputs |= note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
      engine.rounds_sums |= note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
      engine.transforms |= note == CUDNN_NUMERICAL_NOTE_FFT ||
                           note == CUDNN_NUMERICAL_NOTE_WINOGRAD ||
                           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 ||
                           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 ||
                           note == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
      if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) engine.deterministic = false;
    }
    engine.config = std::make_shared<const Config>(Config{graph, std::move(found)});
    return engine;
  }
};

}  // namespace

const VendorLibrary& CudnnFile() {
  static const auto& library =
      *new VendorLibrary("libcudnn.so.9", "nvidia/cudnn/lib", "nvidia-cudnn-cu13");
  return library;
}

cudnnDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case kFloat64:
      return CUDNN_DATA_DOUBLE;
    case kFloat16:
      return CUDNN_DATA_HALF;
    case kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

cudnnHandle_t CudnnHandle() { return Handles::Get(); }

const CudnnFunctions& Cudnn() {
  static const CudnnFunctions functions;
  return functions;
}

void CheckCudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) [[likely]]
    return;
  char details[1024] = {};
  Cudnn().GetLastErrorString(details, sizeof(details));
  std::string text = std::string("cuDNN: cannot ") + call + ": " + Cudnn().GetErrorString(status);
  if (*details) text += std::string(" (") + details + ")";
  if (status == CUDNN_STATUS_ALLOC_FAILED) throw OutOfMemory(text);
  throw std::runtime_error(text);
}

DnnLibrary& Dnn() {
  static auto& library = *new CudnnLibrary;
  return library;
}

}  // namespace singa::cudnn

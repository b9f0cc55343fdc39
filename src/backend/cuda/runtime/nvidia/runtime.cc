#include "backend/cuda/runtime/runtime.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include "backend/cuda/runtime/capture.h"
#include "singa/core/error.h"

namespace singa::cuda::runtime {
namespace {

void Checked(cudaError_t status, const char* call) {
  if (status == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();  // clears the error, so that the next launch does not report it
  throw Error(std::string(call) + ": " + cudaGetErrorString(status) + " (" +
              cudaGetErrorName(status) + ")");
}

std::string VersionText(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

int DriverVersion() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

constexpr int kLeastCapability = 80;  // Ampere: bfloat16 and TF32

std::string FindProblem() {
  if (!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
    return "there is no NVIDIA driver on this machine: libcuda.so.1 was not found";
  constexpr int kLeastDriver = CUDART_VERSION / 1000 * 1000;  // minor versions are compatible
  if (const int version = DriverVersion(); version < kLeastDriver)
    return "the NVIDIA driver is too old: it supports CUDA " + VersionText(version) +
           ", this build needs " + VersionText(kLeastDriver);
  int count = 0;
  if (const cudaError_t status = cudaGetDeviceCount(&count); status != cudaSuccess)
    return std::string("the driver finds no GPU: ") + cudaGetErrorString(status);
  if (count == 0) return "the driver finds no GPU";
  for (int id = 0; id < count; ++id) {
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, id);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, id);
    if (10 * major + minor < kLeastCapability)
      return "GPU " + std::to_string(id) + " has compute capability " + std::to_string(major) +
             "." + std::to_string(minor) +
             ", this build needs 8.0 (Ampere) or newer; "
             "CUDA_VISIBLE_DEVICES hides GPUs";
  }
  return {};
}

}  // namespace

std::string Problem() {
  static const std::string& problem = *new std::string(FindProblem());
  return problem;
}

int NumGpus() {
  int count = 0;
  Checked(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

GpuProperties Properties(int id) {
  cudaDeviceProp found{};
  Checked(cudaGetDeviceProperties(&found, id), "cudaGetDeviceProperties");
  size_t free = 0, total = 0;
  Use(id);
  Checked(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  GpuProperties properties;
  properties.name = found.name;
  properties.major = found.major;
  properties.minor = found.minor;
  properties.multiprocessors = found.multiProcessorCount;
  properties.total_memory = total;
  properties.free_memory = free;
  return properties;
}

std::vector<std::string> Report() {
  const int driver = DriverVersion();
  return {"CUDA runtime " + VersionText(CUDART_VERSION),
          driver ? "driver for CUDA " + VersionText(driver) : "no driver"};
}

void Use(int id) {
  thread_local int used = -1;
  if (used == id) return;
  Checked(cudaSetDevice(id), "cudaSetDevice");
  used = id;
}

void* Malloc(size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  Checked(status, "cudaMalloc");
  return data;
}

void Free(void* data) { Checked(cudaFree(data), "cudaFree"); }

void* MallocPinned(size_t bytes) {
  void* data = nullptr;
  Checked(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), "cudaHostAlloc");
  return data;
}

void FreePinned(void* data) { Checked(cudaFreeHost(data), "cudaFreeHost"); }

Stream NewStream() {
  cudaStream_t stream = nullptr;
  Checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return stream;
}

void DeleteStream(Stream stream) { Checked(cudaStreamDestroy(stream), "cudaStreamDestroy"); }

void Synchronize(Stream stream) { Checked(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

void CopyToDevice(void* device, const void* host, size_t bytes, Stream stream) {
  Checked(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream), "cudaMemcpyAsync");
}

void CopyToHost(void* host, const void* device, size_t bytes, Stream stream) {
  Checked(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
}

void CopyWithin(void* to, const void* from, size_t bytes, Stream stream) {
  Checked(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
}

void Zero(void* data, size_t bytes, Stream stream) {
  Checked(cudaMemsetAsync(data, 0, bytes, stream), "cudaMemsetAsync");
}

Event NewEvent() {
  cudaEvent_t event = nullptr;
  Checked(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

void DeleteEvent(Event event) { Checked(cudaEventDestroy(event), "cudaEventDestroy"); }

void Record(Event event, Stream stream) {
  Checked(cudaEventRecord(event, stream), "cudaEventRecord");
}

bool Reached(Event event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  Checked(status, "cudaEventQuery");
  return true;
}

void Wait(Event event) { Checked(cudaEventSynchronize(event), "cudaEventSynchronize"); }

void QueueWait(Event event, Stream stream) {
  Checked(cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent");
}

void CheckLaunches() { Checked(cudaGetLastError(), "launch"); }

void BeginCapture(Stream stream) {
  // Calls of other threads neither fail nor invalidate this capture.
  Checked(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
}

CapturedGraph EndCapture(Stream stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
  Checked(ended, "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t made = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  Checked(made, "cudaGraphInstantiate");
  return executable;
}

std::vector<CapturedLaunch> CapturesAfter(Stream stream) {
  cudaStreamCaptureStatus status{};
  const cudaGraphNode_t* nodes = nullptr;
  // Must be requested, because the call fails if there are edge data otherwise. They allow a launch
  // to begin before its predecessors have ended. They are not passed on, so steps wait for the
  // ends.
  const cudaGraphEdgeData* edges = nullptr;
  size_t count = 0;
  Checked(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count),
          "cudaStreamGetCaptureInfo");
  if (status != cudaStreamCaptureStatusActive)
    Checked(cudaErrorStreamCaptureInvalidated, "capture");
  return {nodes, nodes + count};
}

void SetCapturesAfter(Stream stream, const std::vector<CapturedLaunch>& launches) {
  std::vector<cudaGraphNode_t> nodes = launches;  // the call does not modify it
  Checked(cudaStreamUpdateCaptureDependencies(stream, nodes.data(), nullptr, nodes.size(),
                                              cudaStreamSetCaptureDependencies),
          "cudaStreamUpdateCaptureDependencies");
}

void DeleteGraph(CapturedGraph graph) {
  Checked(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
}

void LaunchGraph(CapturedGraph graph, Stream stream) {
  Checked(cudaGraphLaunch(graph, stream), "cudaGraphLaunch");
}

}  // namespace singa::cuda::runtime

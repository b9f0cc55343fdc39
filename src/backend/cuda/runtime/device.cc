#include "backend/cuda/runtime/device.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cuda/kernels/copy.h"
#include "backend/cuda/kernels/replay_scalars.h"
#include "backend/cuda/nccl/group.h"
#include "backend/cuda/runtime/allocator.h"
#include "backend/cuda/runtime/capture.h"
#include "backend/cuda/runtime/faults.h"
#include "backend/cuda/runtime/runtime.h"
#include "backend/cuda/runtime/staging.h"
#include "backend/cuda/runtime/uploads.h"
#include "core/graph/capture.h"
#include "core/tensor/copy.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa::cuda {
namespace {

/// Allocates from the CUDA runtime.
class GpuMemory final : public MemorySource {
 public:
  explicit GpuMemory(int id) : id_(id) {}
  void* Malloc(size_t bytes) override { return runtime::Use(id_), runtime::Malloc(bytes); }
  void Free(void* data) override { runtime::Use(id_), runtime::Free(data); }
  Event Mark(Stream stream) override {
    runtime::Use(id_);
    const Event event = runtime::NewEvent();
    runtime::Record(event, stream);
    return event;
  }
  bool Passed(Event mark) override { return runtime::Reached(mark); }
  void Await(Event mark) override { runtime::Wait(mark); }
  void Discard(Event mark) override { runtime::DeleteEvent(mark); }

 private:
  int id_;
};

/// Runs fn() and ignores errors, for destructors: errors of a failed device were reported before.
template <class Fn>
void Quietly(const Fn& fn) noexcept {
  try {
    fn();
  } catch (const Error&) {
  }
}

/// A capture by this thread. Its work goes to a separate stream, so that work queued by other
/// threads is not captured, and runs.
class Capturing {
 public:
  Capturing(const Device& device, Stream stream, ReplayScalars& scalars)
      : device_(&device), stream_(stream), scalars_(scalars) {
    runtime::BeginCapture(stream);
    current_ = this;
  }
  ~Capturing() {
    if (current_ == this) Quietly([&] { runtime::DeleteGraph(End()); });
  }
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

  CapturedGraph End() {
    current_ = nullptr;
    return runtime::EndCapture(stream_);
  }
  /// This thread's capture on the device; null if there is none.
  static Capturing* On(const Device& device) {
    return current_ && current_->device_ == &device ? current_ : nullptr;
  }
  Stream stream() const { return stream_; }
  uint64_t number() const { return number_; }
  ReplayScalars& scalars() const { return scalars_; }

  /// Starts a step: work queued next depends only on the given earlier steps.
  void BeginStep(std::span<const size_t> after) {
    if (std::exchange(has_steps_, true)) ends_.push_back(runtime::CapturesAfter(stream_));
    std::vector<CapturedLaunch> launches;
    for (size_t step : after)
      for (const CapturedLaunch end : ends_.at(step))
        if (std::find(launches.begin(), launches.end(), end) == launches.end())
          launches.push_back(end);
    runtime::SetCapturesAfter(stream_, launches);
  }

 private:
  static uint64_t Next() {
    static std::atomic<uint64_t> captures{0};
    return ++captures;
  }

  static thread_local Capturing* current_;
  const Device* device_;
  Stream stream_;
  const uint64_t number_ = Next();
  ReplayScalars& scalars_;
  bool has_steps_ = false;
  std::vector<std::vector<CapturedLaunch>> ends_;  // last launches of each step
};
thread_local Capturing* Capturing::current_ = nullptr;

/// "NVIDIA H100 80GB HBM3 9.0, 132 multiprocessors"
std::string HardwareOf(const GpuProperties& gpu) {
  return gpu.name + " " + std::to_string(gpu.major) + "." + std::to_string(gpu.minor) + ", " +
         std::to_string(gpu.multiprocessors) + " multiprocessors";
}

class CudaDevice final : public Device, public Capturer, public DeviceGroups {
 public:
  explicit CudaDevice(int id)
      : Device(DeviceKind::kCuda, id, "cuda:" + std::to_string(id)),
        memory_(id),
        allocator_(memory_, name()),
        hardware_(HardwareOf(runtime::Properties(id))),
        stream_(NewStream()),
        capture_stream_(NewStream()),
        copy_stream_(NewStream()),
        uploads_(allocator_, copy_stream_) {}

  ~CudaDevice() override {
    Quietly([&] {
      runtime::Use(id());
      staging_.Release();
      uploads_.Release();
      runtime::DeleteStream(copy_stream_);
      runtime::DeleteStream(capture_stream_);
      runtime::DeleteStream(stream_);
    });
  }

  Stream stream() const {
    runtime::Use(id());
    const Capturing* capturing = Capturing::On(*this);
    return capturing ? capturing->stream() : stream_;
  }

  void* Allocate(size_t bytes) override {
    RefuseInCapture("takes memory");
    return Named([&] { return allocator_.Allocate(bytes, stream_, CurrentOp()); });
  }
  void Free(void* data, size_t) noexcept override {
    uploads_.Forget(data);
    allocator_.Free(data);
  }
  /// cuBLASLt requires this alignment of its workspace.
  size_t alignment() const override { return 256; }
  MemoryStats memory() const override { return allocator_.stats(); }
  void ResetPeak() override { allocator_.ResetPeak(); }
  void EmptyCache() override {
    Sync();
    allocator_.EmptyCache();
  }

  void CopyFromHost(void* device_data, const void* host_data, size_t bytes) override {
    if (bytes == 0) return;
    RefuseInCapture("copies from the host");
    const std::lock_guard<std::mutex> lock(staging_mutex_);
    Named([&] {
      staging_.ToDevice(static_cast<char*>(device_data), static_cast<const char*>(host_data), bytes,
                        stream());
    });
  }
  void CopyToHost(void* host_data, const void* device_data, size_t bytes) override {
    if (bytes == 0) return;
    RefuseInCapture("copies to the host");
    const std::lock_guard<std::mutex> lock(staging_mutex_);
    Named([&] {
      staging_.ToHost(static_cast<char*>(host_data), static_cast<const char*>(device_data), bytes,
                      stream());
    });
    RaiseFound();
  }

  void* AllocateCopy(const void* host_data, size_t bytes) override {
    RefuseInCapture("copies from the host");
    runtime::Use(id());
    return Named([&] { return uploads_.Send(host_data, bytes, CurrentOp()); });
  }
  void AwaitCopy(const void* data) override {
    runtime::Use(id());
    // Captured work is also launched on this stream.
    Named([&] { uploads_.Await(data, stream_); });
  }

  void CopyElements(const Tensor& from, const Tensor& to) override {
    Tensor source = from;
    if (OverlapsPartly(from, to)) {
      source = Tensor(from.shape(), from.device(), from.data_type());
      Named([&] { QueueCopy(from, source, stream()); });
    }
    Named([&] { QueueCopy(source, to, stream()); });
  }
  void FillElements(const Tensor& t, double value) override {
    Named([&] { QueueFill(t, value, stream()); });
  }
  void CopyBytes(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) Named([&] { runtime::CopyWithin(to, from, bytes, stream()); });
  }
  void ZeroBytes(void* to, size_t bytes) override {
    if (bytes > 0) Named([&] { runtime::Zero(to, bytes, stream()); });
  }

  void Sync() override {
    RefuseInCapture("waits for the device");
    Named([&] {
      runtime::Synchronize(stream());
      uploads_.Synchronize();
    });
    RaiseFound();
  }

  void MakeCurrent() const override { runtime::Use(id()); }
  std::string hardware() const override { return hardware_; }

  std::string NewGroupId() override { return nccl::NewGroupId(); }
  DeviceGroupPtr JoinGroup(const std::string& id, int rank, int world_size,
                           const std::function<void(double)>& check) override {
    RefuseInCapture("joins other ranks");
    return nccl::JoinGroup(shared_from_this(), id, rank, world_size, check);
  }
  void FailNextWait(const std::string& text) {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    failure_ = text;
  }

  bool captures() const override { return captures_ && !blocking_; }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& queue) override;
  void CaptureLive(const Scalars& scalars, const std::function<void()>& queue) override {
    const Capturing* capturing = Capturing::On(*this);
    Check<std::logic_error>(capturing, CurrentOp(), "nothing is captured on ", name());
    Check<NotCapturable>(capturing->scalars().Follow(scalars, queue), CurrentOp(),
                         "scalars of each step are arguments of its kernels, which captured "
                         "work repeats, on ",
                         name());
  }
  size_t branches() const override { return branches_; }
  void CaptureAfter(std::span<const size_t> calls) override {
    Capturing* capturing = Capturing::On(*this);
    Check<std::logic_error>(capturing, CurrentOp(), "nothing is captured on ", name());
    Named([&] { capturing->BeginStep(calls); });
  }
  void Launch(const ReplayScalars& scalars, CapturedGraph graph, const char* last_op) {
    CheckOpen(last_op);
    Named([&] {
      scalars.Send(stream());
      runtime::LaunchGraph(graph, stream());
    });
    Queued(last_op);
  }

 protected:
  void Queued(const char* op) override {
    last_op_.store(op, std::memory_order_relaxed);
    if (blocking_) {
      Sync();
    } else {
      Named([] { runtime::CheckLaunches(); });
      // Libraries may hide that they invalidated the capture.
      if (const Capturing* capturing = Capturing::On(*this))
        Named([&] { runtime::CapturesAfter(capturing->stream()); });
    }
  }
  void ReleaseAll() noexcept override {
    try {
      Sync();
    } catch (const std::exception&) {
      // The failure was reported before, or nobody is left to handle it.
    }
    allocator_.ReleaseAll();
  }

 private:
  Stream NewStream() const {
    runtime::Use(id());
    return runtime::NewStream();
  }

  void RefuseInCapture(const char* what) const {
    Check<NotCapturable>(!Capturing::On(*this), CurrentOp(), "it ", what,
                         ", which captured work cannot repeat, on ", name());
  }

  /// Throws what kernels and collectives have found.
  void RaiseFound() {
    RaiseFaults();
    std::string failure;
    {
      const std::lock_guard<std::mutex> lock(failure_mutex_);
      failure.swap(failure_);
    }
    if (!failure.empty()) throw std::runtime_error(failure);
  }

  /// Calls fn() and adds the name of the last queued operation to errors, which may be from earlier
  /// work.
  template <class Fn>
  std::invoke_result_t<Fn> Named(const Fn& fn) const {
    try {
      return fn();
    } catch (const Error& error) {
      const char* op = last_op_.load(std::memory_order_relaxed);
      throw std::runtime_error(detail::Message(
          op, error.what(), " on ", name(),
          blocking_ ? ""
                    : "; this operation was queued last, but an earlier one may be the cause: "
                      "SINGA_CUDA_BLOCKING=1 names it"));
    }
  }

  GpuMemory memory_;
  StreamAllocator allocator_;
  const std::string hardware_;
  const Stream stream_;
  const Stream capture_stream_;  // kept, because libraries remember their last stream
  std::mutex capture_mutex_;
  const Stream copy_stream_;
  Uploads uploads_;
  std::mutex staging_mutex_;
  Staging staging_;
  std::mutex failure_mutex_;
  std::string failure_;
  std::atomic<const char*> last_op_{"cuda"};
  const bool blocking_ = EnvironmentFlag("SINGA_CUDA_BLOCKING");
  const bool captures_ = EnvironmentFlag("SINGA_CUDA_GRAPHS");
  /// One by default: the gain of several has not been measured, and with one, kernels have the GPU
  /// to themselves, as when they were tuned.
  const size_t branches_ = static_cast<size_t>(EnvironmentNumber("SINGA_CUDA_BRANCHES"));
};

class CudaGraph final : public CapturedWork {
 public:
  CudaGraph(CudaDevice& device, std::unique_ptr<const ReplayScalars> scalars, CapturedGraph graph,
            const char* last_op)
      : device_(device), scalars_(std::move(scalars)), graph_(graph), last_op_(last_op) {}
  ~CudaGraph() override {
    Quietly([&] {
      runtime::Use(device_.id());
      runtime::DeleteGraph(graph_);
    });
  }
  void Launch() override { device_.Launch(*scalars_, graph_, last_op_); }

 private:
  CudaDevice& device_;
  std::unique_ptr<const ReplayScalars> scalars_;
  CapturedGraph graph_;
  const char* last_op_;  ///< last operation in the graph
};

std::unique_ptr<CapturedWork> CudaDevice::Capture(const std::function<void()>& queue) {
  RefuseInCapture("captures operations");
  const std::lock_guard<std::mutex> lock(capture_mutex_);
  runtime::Use(id());
  PrepareFaults();  // memory that kernels would ask for
  auto scalars = std::make_unique<ReplayScalars>(shared_from_this());
  try {
    return Named([&] {
      Capturing capturing(*this, capture_stream_, *scalars);
      queue();
      const CapturedGraph graph = capturing.End();
      return std::make_unique<CudaGraph>(*this, std::move(scalars), graph, last_op_.load());
    });
  } catch (const NotCapturable&) {
    throw;
  } catch (const std::exception& error) {  // recurs later if not due to capturing
    throw NotCapturable(std::string("it cannot be captured: ") + error.what());
  }
}

}  // namespace

Stream StreamOf(const Device& device) { return static_cast<const CudaDevice&>(device).stream(); }

uint64_t CaptureOf(const Device& device) {
  const Capturing* capturing = Capturing::On(device);
  return capturing ? capturing->number() : 0;
}

void FailNextWait(Device& device, const std::string& text) {
  static_cast<CudaDevice&>(device).FailNextWait(text);
}

DevicePtr NewDevice(int id) { return std::make_shared<CudaDevice>(id); }

}  // namespace singa::cuda

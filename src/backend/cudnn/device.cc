#include "backend/cudnn/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cudnn/allocator.h"
#include "backend/cudnn/capture.h"
#include "backend/cudnn/faults.h"
#include "backend/cudnn/kernels/copy.h"
#include "backend/cudnn/kernels/numbers.h"
#include "backend/cudnn/runtime.h"
#include "backend/cudnn/staging.h"
#include "backend/cudnn/uploads.h"
#include "core/capture.h"
#include "core/copy.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa::cuda {
namespace {

/// Whether a variable of the environment says yes; `unset` where it says nothing.
bool Asked(const char* variable, bool unset) {
  const char* text = std::getenv(variable);
  return text && *text ? std::strcmp(text, "0") != 0 : unset;
}

/// How many branches captured work may have. One unless asked: whether more are quicker has not
/// been measured, and each kernel then has the GPU for itself, as when its implementation was
/// chosen.
size_t BranchesAsked() {
  constexpr const char* kVariable = "SINGA_CUDA_BRANCHES";
  constexpr long kMost = 16;
  const char* text = std::getenv(kVariable);
  if (!text || !*text) return 1;
  char* end = nullptr;
  const long number = std::strtol(text, &end, 10);
  Check(*end == '\0' && number >= 1 && number <= kMost, "cuda", kVariable,
        " has to be a number from 1 to ", kMost, ", not ", text);
  return static_cast<size_t>(number);
}

/// Memory straight from the runtime.
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

/// For destructors: what a device says that has failed concerns nobody any more.
template <class Fn>
void Quietly(const Fn& fn) noexcept {
  try {
    fn();
  } catch (const Error&) {
  }
}

/// While a thread captures, what it queues on the device goes to a stream of its own: whatever
/// other threads queue meanwhile is no part of it, and runs.
class Capturing {
 public:
  Capturing(const Device& device, Stream stream, LiveNumbers& numbers)
      : device_(&device), stream_(stream), numbers_(numbers) {
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
  /// Where this thread captures what is queued on the device; null where it does not.
  static Capturing* On(const Device& device) {
    return current_ && current_->device_ == &device ? current_ : nullptr;
  }
  Stream stream() const { return stream_; }
  LiveNumbers& numbers() const { return numbers_; }

  /// What is queued next is a step of its own, after those earlier ones alone.
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
  static thread_local Capturing* current_;
  const Device* device_;
  Stream stream_;
  LiveNumbers& numbers_;
  bool has_steps_ = false;
  std::vector<std::vector<CapturedLaunch>>
      ends_;  // of steps: what comes after these waits for them
};
thread_local Capturing* Capturing::current_ = nullptr;

/// "NVIDIA H100 80GB HBM3 9.0, 132 multiprocessors"
std::string HardwareOf(const GpuProperties& gpu) {
  return gpu.name + " " + std::to_string(gpu.major) + "." + std::to_string(gpu.minor) + ", " +
         std::to_string(gpu.multiprocessors) + " multiprocessors";
}

class CudaDevice final : public Device, public Capturer {
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
  /// What cuBLASLt asks of its workspace.
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
    RaiseFaults();
  }

  void* AllocateCopy(const void* host_data, size_t bytes) override {
    RefuseInCapture("copies from the host");
    runtime::Use(id());
    return Named([&] { return uploads_.Send(host_data, bytes, CurrentOp()); });
  }
  void AwaitCopy(const void* data) override {
    runtime::Use(id());
    // Captured work, too, is launched on this stream.
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
    RaiseFaults();
  }

  void MakeCurrent() const override { runtime::Use(id()); }
  std::string hardware() const override { return hardware_; }

  bool captures() const override { return captures_ && !blocking_; }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& queue) override;
  void CaptureLive(const Scalars& scalars, const std::function<void()>& queue) override {
    const Capturing* capturing = Capturing::On(*this);
    Check<std::logic_error>(capturing, CurrentOp(), "nothing is captured on ", name());
    Check<NotCapturable>(capturing->numbers().Follow(scalars, queue), CurrentOp(),
                         "its numbers of each step are arguments of its kernels, which captured "
                         "work repeats, on ",
                         name());
  }
  size_t branches() const override { return branches_; }
  void CaptureAfter(std::span<const size_t> calls) override {
    Capturing* capturing = Capturing::On(*this);
    Check<std::logic_error>(capturing, CurrentOp(), "nothing is captured on ", name());
    Named([&] { capturing->BeginStep(calls); });
  }
  void Launch(const LiveNumbers& numbers, CapturedGraph graph, const char* last_op) {
    CheckOpen(last_op);
    Named([&] {
      numbers.Send(stream());
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
      // A library may have kept to itself that it did what spoils a capture.
      if (const Capturing* capturing = Capturing::On(*this))
        Named([&] { runtime::CapturesAfter(capturing->stream()); });
    }
  }
  void ReleaseAll() noexcept override {
    try {
      Sync();
    } catch (const std::exception&) {
      // What has failed was said before, or concerns nobody any more.
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
                         ", which captured work cannot do again, on ", name());
  }

  /// Calls fn(); what the runtime says is of work that was queued some time ago.
  template <class Fn>
  std::invoke_result_t<Fn> Named(const Fn& fn) const {
    try {
      return fn();
    } catch (const Error& error) {
      const char* op = last_op_.load(std::memory_order_relaxed);
      throw std::runtime_error(detail::Message(
          op, error.what(), " on ", name(),
          blocking_ ? ""
                    : "; that was the operation queued last, and one before it may be the cause: "
                      "SINGA_CUDA_BLOCKING=1 tells which"));
    }
  }

  GpuMemory memory_;
  StreamAllocator allocator_;
  const std::string hardware_;
  const Stream stream_;
  const Stream capture_stream_;  // kept: libraries remember the stream that they had last
  std::mutex capture_mutex_;
  const Stream copy_stream_;
  Uploads uploads_;
  std::mutex staging_mutex_;
  Staging staging_;
  std::atomic<const char*> last_op_{"cuda"};
  const bool blocking_ = Asked("SINGA_CUDA_BLOCKING", false);
  const bool captures_ = Asked("SINGA_CUDA_GRAPHS", true);
  const size_t branches_ = BranchesAsked();
};

/// A CUDA graph.
class CudaGraph final : public CapturedWork {
 public:
  CudaGraph(CudaDevice& device, std::unique_ptr<const LiveNumbers> numbers, CapturedGraph graph,
            const char* last_op)
      : device_(device), numbers_(std::move(numbers)), graph_(graph), last_op_(last_op) {}
  ~CudaGraph() override {
    Quietly([&] {
      runtime::Use(device_.id());
      runtime::DeleteGraph(graph_);
    });
  }
  void Launch() override { device_.Launch(*numbers_, graph_, last_op_); }

 private:
  CudaDevice& device_;
  std::unique_ptr<const LiveNumbers> numbers_;
  CapturedGraph graph_;
  const char* last_op_;  ///< in it
};

std::unique_ptr<CapturedWork> CudaDevice::Capture(const std::function<void()>& queue) {
  RefuseInCapture("captures operations");
  const std::lock_guard<std::mutex> lock(capture_mutex_);
  runtime::Use(id());
  PrepareFaults();  // memory that kernels would ask for
  auto numbers = std::make_unique<LiveNumbers>(shared_from_this());
  try {
    return Named([&] {
      Capturing capturing(*this, capture_stream_, *numbers);
      queue();
      const CapturedGraph graph = capturing.End();
      return std::make_unique<CudaGraph>(*this, std::move(numbers), graph, last_op_.load());
    });
  } catch (const NotCapturable&) {
    throw;
  } catch (const std::exception& error) {  // which comes again where it is not about the capture
    throw NotCapturable(std::string("it cannot be captured: ") + error.what());
  }
}

}  // namespace

Stream StreamOf(const Device& device) { return static_cast<const CudaDevice&>(device).stream(); }

DevicePtr NewDevice(int id) { return std::make_shared<CudaDevice>(id); }

}  // namespace singa::cuda

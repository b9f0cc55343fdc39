#include "backend/cudnn/device.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <type_traits>
#include <utility>

#include "backend/cudnn/allocator.h"
#include "backend/cudnn/faults.h"
#include "backend/cudnn/kernels/copy.h"
#include "backend/cudnn/runtime.h"
#include "core/copy.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa::cuda {
namespace {

bool BlockingAsked() {
  const char* text = std::getenv("SINGA_CUDA_BLOCKING");
  return text && *text && std::strcmp(text, "0") != 0;
}

/// Memory straight from the runtime.
class GpuMemory final : public MemorySource {
 public:
  explicit GpuMemory(int id) : id_(id) {}
  void* Malloc(size_t bytes) override { return runtime::Use(id_), runtime::Malloc(bytes); }
  void Free(void* data) override { runtime::Use(id_), runtime::Free(data); }
  Event Mark(Stream stream) override {
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

/// Two pieces of pinned memory, so that the host fills or empties one while the other is on its
/// way.
class Staging {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;

  void Release() {
    for (Half& half : halves_) {
      if (!half.data) continue;
      runtime::Wait(half.moved);
      runtime::DeleteEvent(half.moved);
      runtime::FreePinned(std::exchange(half.data, nullptr));
    }
  }

  void ToDevice(char* device, const char* host, size_t bytes, Stream stream) {
    for (size_t at = 0; at < bytes; at += kBytes) {
      Half& half = Next();
      const size_t count = std::min(kBytes, bytes - at);
      std::memcpy(half.data, host + at, count);
      runtime::CopyToDevice(device + at, half.data, count, stream);
      runtime::Record(half.moved, stream);
    }
  }

  void ToHost(char* host, const char* device, size_t bytes, Stream stream) {
    size_t arrived = 0;
    Half* underway = nullptr;
    for (size_t at = 0; at < bytes; at += kBytes) {
      Half& half = Next();
      const size_t count = std::min(kBytes, bytes - at);
      runtime::CopyToHost(half.data, device + at, count, stream);
      runtime::Record(half.moved, stream);
      if (underway) arrived += Unload(*underway, host + arrived, kBytes);
      underway = &half;
    }
    if (underway) Unload(*underway, host + arrived, bytes - arrived);
  }

 private:
  struct Half {
    char* data = nullptr;
    Event moved = nullptr;
  };

  /// The one whose contents have moved on, or will have first.
  Half& Next() {
    Half& half = halves_[std::exchange(next_, 1 - next_)];
    if (!half.data) {
      half.data = static_cast<char*>(runtime::MallocPinned(kBytes));
      half.moved = runtime::NewEvent();
    }
    runtime::Wait(half.moved);
    return half;
  }

  static size_t Unload(const Half& half, char* host, size_t bytes) {
    runtime::Wait(half.moved);
    std::memcpy(host, half.data, bytes);
    return bytes;
  }

  std::array<Half, 2> halves_;
  size_t next_ = 0;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int id)
      : Device(DeviceKind::kCuda, id, "cuda:" + std::to_string(id)),
        memory_(id),
        allocator_(memory_, name()) {
    runtime::Use(id);
    stream_ = runtime::NewStream();
  }

  ~CudaDevice() override {
    try {
      runtime::Use(id());
      staging_.Release();
      runtime::DeleteStream(stream_);
    } catch (const Error&) {
      // A device that has failed.
    }
  }

  Stream stream() const {
    runtime::Use(id());
    return stream_;
  }

  void* Allocate(size_t bytes) override {
    return Named([&] { return allocator_.Allocate(bytes, stream_, CurrentOp()); });
  }
  void Free(void* data, size_t) noexcept override { allocator_.Free(data); }
  MemoryStats memory() const override { return allocator_.stats(); }
  void ResetPeak() override { allocator_.ResetPeak(); }
  void EmptyCache() override {
    Sync();
    allocator_.EmptyCache();
  }

  void CopyFromHost(void* device_data, const void* host_data, size_t bytes) override {
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(staging_mutex_);
    Named([&] {
      staging_.ToDevice(static_cast<char*>(device_data), static_cast<const char*>(host_data), bytes,
                        stream());
    });
  }
  void CopyToHost(void* host_data, const void* device_data, size_t bytes) override {
    if (bytes == 0) return;
    const std::lock_guard<std::mutex> lock(staging_mutex_);
    Named([&] {
      staging_.ToHost(static_cast<char*>(host_data), static_cast<const char*>(device_data), bytes,
                      stream());
    });
    RaiseFaults();
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
    Named([&] { runtime::Synchronize(stream()); });
    RaiseFaults();
  }

 protected:
  void Queued(const char* op) override {
    last_op_.store(op, std::memory_order_relaxed);
    if (blocking_) {
      Sync();
    } else {
      Named([] { runtime::CheckLaunches(); });
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
  Stream stream_ = nullptr;
  std::mutex staging_mutex_;
  Staging staging_;
  std::atomic<const char*> last_op_{"cuda"};
  const bool blocking_ = BlockingAsked();
};

}  // namespace

Stream StreamOf(const Device& device) { return static_cast<const CudaDevice&>(device).stream(); }

DevicePtr NewDevice(int id) { return std::make_shared<CudaDevice>(id); }

}  // namespace singa::cuda

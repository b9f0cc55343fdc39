#include <cstring>
#include <initializer_list>
#include <string>

#include "core/device/parallel.h"
#include "core/memory/caching_allocator.h"
#include "core/tensor/copy.h"
#include "singa/core/device.h"
#include "singa/core/environment.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif

namespace singa {
namespace {

/// Lets malloc keep a few MiB of freed memory, unless the environment configures malloc (MALLOC_*_,
/// GLIBC_TUNABLES). oneDNN's matrix products allocate packing buffers in each call. By default
/// glibc returns them to the system, so each step faults their pages again.
void KeepFreedHeap() {
#if defined(__GLIBC__)
  constexpr int kLargest = 4 << 20;  // larger requests are mapped separately
  constexpr int kKept = 16 << 20;
  for (const char* name : {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"})
    if (!EnvironmentValue(name).empty()) return;
  if (EnvironmentValue("GLIBC_TUNABLES").find("glibc.malloc.") != std::string::npos) return;
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, kKept);
#endif
}

class CpuDevice final : public Device {
 public:
  CpuDevice(int id, std::string name) : Device(DeviceKind::kCpu, id, std::move(name)) {}

  void* Allocate(size_t bytes) override { return allocator_.Allocate(bytes); }
  void Free(void* data, size_t bytes) noexcept override { allocator_.Free(data, bytes); }
  MemoryStats memory() const override { return allocator_.stats(); }
  void ResetPeak() override { allocator_.ResetPeak(); }
  void EmptyCache() override { allocator_.EmptyCache(); }
  void CopyFromHost(void* device_data, const void* host_data, size_t bytes) override {
    if (bytes > 0) std::memcpy(device_data, host_data, bytes);  // an empty tensor has no data
  }
  void CopyToHost(void* host_data, const void* device_data, size_t bytes) override {
    if (bytes > 0) std::memcpy(host_data, device_data, bytes);
  }
  void CopyElements(const Tensor& from, const Tensor& to) override { StridedCopy(from, to); }
  void FillElements(const Tensor& t, double value) override { StridedFill(t, value); }
  void CopyBytes(void* to, const void* from, size_t bytes) override {
    constexpr int64_t kGrain = 4 * kParallelGrain;
    ParallelFor(static_cast<int64_t>(bytes), kGrain, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                  static_cast<size_t>(end - begin));
    });
  }
  void ZeroBytes(void* to, size_t bytes) override {
    if (bytes > 0) std::memset(to, 0, bytes);
  }

 protected:
  void ReleaseAll() noexcept override { allocator_.ReleaseAll(); }

 private:
  CachingAllocator allocator_;
};

}  // namespace

DevicePtr DefaultDevice() {
  // Never destroyed, because tensors in static variables may be destroyed later.
  static DevicePtr& device = *new DevicePtr([] {
    KeepFreedHeap();
    return std::make_shared<CpuDevice>(-1, "cpu");
  }());
  return device;
}

DevicePtr CreateCpuDevice() {
  static std::atomic<int> next{-2};
  const int id = next--;
  return std::make_shared<CpuDevice>(id, "cpu" + std::to_string(id));
}

}  // namespace singa

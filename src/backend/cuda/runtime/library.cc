// The entry point of libsinga_cuda.so; see core/device/cuda_library.h.

#include <cstring>
#include <mutex>

#include "backend/cuda/runtime/channels_last.h"
#include "backend/cuda/runtime/device.h"
#include "backend/cuda/runtime/runtime.h"
#include "core/device/cuda_library.h"
#include "model/dispatch/field_text.h"
#include "model/dispatch/kernel.h"
#include "singa/version.h"

namespace singa::cuda {
namespace {

class Library final : public CudaLibrary {
 public:
  std::string Problem() override { return runtime::Problem(); }
  int NumGpus() override { return runtime::NumGpus(); }
  GpuProperties Properties(int id) override { return runtime::Properties(id); }
  DevicePtr Open(int id) override {
    static std::once_flag registered;
    std::call_once(registered, [] {  // best first
      AddLayoutMaker("cudnn", [](const std::string& name, const Shape& shape, DType dtype) {
        return name == "nhwc" ? cudnn::ChannelsLastOf(shape, dtype) : nullptr;
      });
      RegisterBackend("cuda_libraries");
      RegisterBackend("cuda");
      RegisterBackend("cuda_alternatives");  // chosen only where measured to be faster
    });
    return NewDevice(id);
  }
  std::vector<std::string> Report() override { return runtime::Report(); }
};

}  // namespace
}  // namespace singa::cuda

extern "C" __attribute__((visibility("default"))) const char* singa_cuda_open(
    int interface, const char* version, singa::CudaLibrary** library) {
  if (interface != singa::kCudaInterface || std::strcmp(version, SINGA_VERSION) != 0)
    return "it was built for another version of singa (" SINGA_VERSION
           "); install both from one "
           "package";
  static singa::cuda::Library instance;
  *library = &instance;
  return nullptr;
}

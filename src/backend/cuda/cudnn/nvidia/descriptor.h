#pragma once

// cuDNN's graph API, in which everything is a descriptor with attributes. Functions are called
// through addresses that were looked up when the library was opened.

#include <cudnn_graph.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "backend/cuda/cudnn/nvidia/vendor.h"
#include "singa/core/dtype.h"

namespace singa::cudnn {

/// The library's file, for functions that only some users need.
const VendorLibrary& CudnnFile();

/// The functions of libcudnn.so.9 that are used.
struct CudnnFunctions {
  SINGA_VENDOR_FUNCTION(CudnnFile, GetVersion, cudnnGetVersion);
  SINGA_VENDOR_FUNCTION(CudnnFile, GetErrorString, cudnnGetErrorString);
  SINGA_VENDOR_FUNCTION(CudnnFile, GetLastErrorString, cudnnGetLastErrorString);
  SINGA_VENDOR_FUNCTION(CudnnFile, Create, cudnnCreate);
  SINGA_VENDOR_FUNCTION(CudnnFile, Destroy, cudnnDestroy);
  SINGA_VENDOR_FUNCTION(CudnnFile, SetStream, cudnnSetStream);
  SINGA_VENDOR_FUNCTION(CudnnFile, CreateDescriptor, cudnnBackendCreateDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, DestroyDescriptor, cudnnBackendDestroyDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, SetAttribute, cudnnBackendSetAttribute);
  SINGA_VENDOR_FUNCTION(CudnnFile, GetAttribute, cudnnBackendGetAttribute);
  SINGA_VENDOR_FUNCTION(CudnnFile, Finalize, cudnnBackendFinalize);
  SINGA_VENDOR_FUNCTION(CudnnFile, Execute, cudnnBackendExecute);
};

/// Opens the library. Throws Unavailable if it is missing.
const CudnnFunctions& Cudnn();
/// The calling thread's handle for its current GPU.
cudnnHandle_t CudnnHandle();
/// Throws OutOfMemory or std::runtime_error with cuDNN's message, unless `status` is success.
void CheckCudnn(cudnnStatus_t status, const char* call);

/// cuDNN's constant for a float type.
cudnnDataType_t TypeOf(DType dtype);

/// Owns one descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    CheckCudnn(Cudnn().CreateDescriptor(type, &handle_), "create");
  }
  ~Descriptor() {
    if (handle_) Cudnn().DestroyDescriptor(handle_);
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  cudnnBackendDescriptor_t get() const { return handle_; }

  void Set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values) {
    CheckCudnn(Cudnn().SetAttribute(handle_, name, type, count, values), "set an attribute");
  }
  void SetInt(cudnnBackendAttributeName_t name, int64_t value) {
    Set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  template <class Container>
  void SetInts(cudnnBackendAttributeName_t name, const Container& values) {
    Set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  void SetFloat(cudnnBackendAttributeName_t name, float value) {
    Set(name, CUDNN_TYPE_FLOAT, 1, &value);
  }
  void SetBool(cudnnBackendAttributeName_t name, bool value) {
    Set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
  }
  void SetType(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
    Set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
  }
  void SetDescriptor(cudnnBackendAttributeName_t name, const Descriptor& value) {
    Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.handle_);
  }
  void SetDescriptors(cudnnBackendAttributeName_t name, const std::vector<Descriptor>& values) {
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const Descriptor& value : values) handles.push_back(value.get());
    Set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(handles.size()), handles.data());
  }
  cudnnStatus_t TryFinalize() { return Cudnn().Finalize(handle_); }
  void Finalize(const char* what) { CheckCudnn(TryFinalize(), what); }

  /// Up to `most` elements of an attribute.
  template <class T>
  std::vector<T> Get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                     int64_t most) const {
    std::vector<T> values(static_cast<size_t>(most));
    int64_t count = 0;
    CheckCudnn(Cudnn().GetAttribute(handle_, name, type, most, &count, values.data()),
               "get an attribute");
    values.resize(static_cast<size_t>(count < most ? count : most));
    return values;
  }
  int64_t GetInt(cudnnBackendAttributeName_t name) const {
    return Get<int64_t>(name, CUDNN_TYPE_INT64, 1).at(0);
  }
  /// Number of elements of an attribute.
  int64_t Count(cudnnBackendAttributeName_t name) const {
    int64_t count = 0;
    CheckCudnn(
        Cudnn().GetAttribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "count an attribute");
    return count;
  }
  /// Up to `most` descriptors of `type` from an attribute. cuDNN fills descriptors that the caller
  /// has created.
  std::vector<Descriptor> GetDescriptors(cudnnBackendAttributeName_t name,
                                         cudnnBackendDescriptorType_t type, int64_t most) const {
    std::vector<Descriptor> values;
    std::vector<cudnnBackendDescriptor_t> handles;
    for (int64_t i = 0; i < most; ++i) handles.push_back(values.emplace_back(type).get());
    int64_t count = 0;
    if (most > 0)
      CheckCudnn(Cudnn().GetAttribute(handle_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count,
                                      handles.data()),
                 "get an attribute");
    values.resize(static_cast<size_t>(count < most ? count : most));
    return values;
  }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

}  // namespace singa::cudnn

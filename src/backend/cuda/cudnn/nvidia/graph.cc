#include "backend/cuda/cudnn/nvidia/graph.h"

#include "singa/core/error.h"

namespace singa::cudnn {
namespace {

// Required up to cuDNN 9.7, ignored since, and marked as deprecated.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
constexpr cudnnBackendAttributeName_t kGraphHandle = CUDNN_ATTR_OPERATIONGRAPH_HANDLE;
// Also marked as deprecated, but still the way to make ReLU propagate NaN.
constexpr cudnnBackendAttributeName_t kReluNan = CUDNN_ATTR_POINTWISE_NAN_PROPAGATION;
constexpr cudnnBackendAttributeType_t kReluNanType = CUDNN_TYPE_NAN_PROPOGATION;
constexpr cudnnNanPropagation_t kKeepNan = CUDNN_PROPAGATE_NAN;
#pragma GCC diagnostic pop

}  // namespace

Graph::Graph(const DnnProblem& problem) {
  std::visit([&](const auto& p) { Build(p, *this); }, problem);
  graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph_.SetDescriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_);
  const cudnnHandle_t handle = CudnnHandle();
  graph_.Set(kGraphHandle, CUDNN_TYPE_HANDLE, 1, &handle);
  graph_.Finalize("build the graph");
}

std::vector<const void*> Graph::constant_values() const {
  std::vector<const void*> places;
  for (const float& value : values_) places.push_back(&value);
  return places;
}

int64_t Graph::NewTensor(const DnnTensor& t, cudnnDataType_t type, int alignment, bool between,
                         bool constant) {
  const auto uid = static_cast<int64_t>(tensors_.size()) + 1;
  Descriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.SetInt(CUDNN_ATTR_TENSOR_UNIQUE_ID, uid);
  tensor.SetType(CUDNN_ATTR_TENSOR_DATA_TYPE, type);
  tensor.SetInt(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  tensor.SetInts(CUDNN_ATTR_TENSOR_DIMENSIONS, t.dims);
  tensor.SetInts(CUDNN_ATTR_TENSOR_STRIDES, t.strides);
  tensor.SetBool(CUDNN_ATTR_TENSOR_IS_VIRTUAL, between);
  tensor.SetBool(CUDNN_ATTR_TENSOR_IS_BY_VALUE, constant);
  tensor.Finalize("describe a tensor");
  tensors_.push_back(std::move(tensor));
  return uid;
}

int64_t Graph::Argument(const DnnTensor& tensor, cudnnDataType_t type, int alignment) {
  return arguments_.emplace_back(NewTensor(tensor, type, alignment, false, false));
}

int64_t Graph::Between(const DnnTensor& tensor) {
  return NewTensor(tensor, CUDNN_DATA_FLOAT, 16, true, false);
}

int64_t Graph::Constant(float value) {
  values_.push_back(value);
  const DnnTensor one = {{1, 1, 1, 1}, {1, 1, 1, 1}};
  return constants_.emplace_back(NewTensor(one, CUDNN_DATA_FLOAT, sizeof(float), false, true));
}

Descriptor Graph::Operation(
    cudnnBackendDescriptorType_t type,
    std::initializer_list<std::pair<cudnnBackendAttributeName_t, int64_t>> tensors) const {
  Descriptor operation(type);
  for (const auto& [name, uid] : tensors)
    operation.SetDescriptor(name, tensors_[static_cast<size_t>(uid - 1)]);
  return operation;
}

void Graph::Pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t other, int64_t y) {
  Descriptor pointwise(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  pointwise.Set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  pointwise.SetType(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_RELU_FWD) pointwise.Set(kReluNan, kReluNanType, 1, &kKeepNan);
  pointwise.Finalize("describe an operation on elements");
  Descriptor operation = Operation(
      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x}, {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y}});
  operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
  if (other)
    operation.SetDescriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                            tensors_[static_cast<size_t>(other - 1)]);
  operation.Finalize("build an operation on elements");
  Add(std::move(operation));
}

}  // namespace singa::cudnn

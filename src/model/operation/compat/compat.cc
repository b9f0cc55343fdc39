#include "singa/compat.h"

#include "model/operation/check.h"
#include "singa/core/device.h"

namespace singa {
namespace {

/// `t`, which has to be on a CUDA device.
const Tensor& OnCuda(const char* op, const char* name, const Tensor& t) {
  CheckGiven(op, name, t);
  const DevicePtr device = t.device();
  Check<Unavailable>(device->kind() == DeviceKind::kCuda, op, name, " is on ", device->name(),
                     ", not on a CUDA device. A build of singa with the CUDA backend (CUDA 13, "
                     "cuDNN 9) makes such devices by device.create_cuda_gpu(); on the CPU use the "
                     "Cpu functions, or those without a device in their name");
  return t;
}

/// The handle, for tensors that lie as the recorder says.
const ConvHandle& Matching(const char* op, const Recorder& recorder,
                           const CudnnConvHandles& handles) {
  Check(
      recorder.Along(&Recorder::Axis::kernel) == handles.recorder.Along(&Recorder::Axis::kernel) &&
          recorder.in_channels == handles.recorder.in_channels &&
          recorder.out_channels == handles.recorder.out_channels &&
          recorder.group == handles.recorder.group,
      op, "the handles were made for another recorder: ", handles.recorder.ToString(),
      " instead of ", recorder.ToString());
  return handles;
}

Tensor BackwardX(const Tensor& dy, const Tensor& W, const Tensor& x, const ConvHandle& handle) {
  return ConvBackward(dy, x, W, handle, true, false, false)[0];
}

Tensor BackwardW(const char* op, const Tensor& dy, const Tensor& x, const Tensor& W,
                 const ConvHandle& handle) {
  // W only says what shape dW has.
  if (!W.empty()) CheckShapeIs(op, "W", W, handle.recorder.weight_shape());
  return ConvBackwardW(dy, x, handle);
}

Tensor BackwardB(const char* op, const Tensor& dy, const Tensor& b, const ConvHandle& handle) {
  if (!b.empty()) CheckShapeIs(op, "b", b, {handle.recorder.out_channels});
  return ConvBackwardB(dy, handle);
}

}  // namespace

CudnnConvHandle::CudnnConvHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                                 const std::vector<int64_t>& stride,
                                 const std::vector<int64_t>& padding, int64_t in_channels,
                                 int64_t out_channels, bool bias, int64_t group,
                                 size_t workspace_byte_limit, const std::string& prefer)
    : ConvHandle(OnCuda("CudnnConvHandle", "input", input), kernel, stride, padding, in_channels,
                 out_channels, bias, group, {1, 1}, workspace_byte_limit, prefer) {}

CudnnConvHandle::CudnnConvHandle(const char* op, const Tensor& input, const Recorder& recorder,
                                 size_t workspace_byte_limit, const std::string& prefer)
    : ConvHandle(WithInput(op, recorder, OnCuda(op, "input", input).shape()), workspace_byte_limit,
                 prefer) {}

CudnnConvHandles::CudnnConvHandles(const Tensor& input, const Recorder& recorder,
                                   size_t workspace_byte_limit, const std::string& prefer)
    : CudnnConvHandle("InitCudnnConvHandles", input, recorder, workspace_byte_limit, prefer) {}

CudnnConvHandles InitCudnnConvHandles(const Tensor& input, const Recorder& recorder,
                                      size_t workspace_byte_limit, const std::string& prefer) {
  return CudnnConvHandles(input, recorder, workspace_byte_limit, prefer);
}

Tensor CpuConvForward(const Tensor& x, const Tensor& W, const Tensor& b, const ConvHandle& handle) {
  return ConvForward(x, W, b, handle);
}
Tensor CpuConvBackwardx(const Tensor& dy, const Tensor& W, const Tensor& x,
                        const ConvHandle& handle) {
  return BackwardX(dy, W, x, handle);
}
Tensor CpuConvBackwardW(const Tensor& dy, const Tensor& x, const Tensor& W,
                        const ConvHandle& handle) {
  return BackwardW("CpuConvBackwardW", dy, x, W, handle);
}
Tensor CpuConvBackwardb(const Tensor& dy, const Tensor& b, const ConvHandle& handle) {
  return BackwardB("CpuConvBackwardb", dy, b, handle);
}

Tensor CpuConvForward(const Tensor& x, const Tensor& W, const Tensor& b, const Recorder& recorder) {
  return CpuConvForward(x, W, b, ConvHandle(recorder));
}
Tensor CpuConvBackwardx(const Tensor& dy, const Tensor& W, const Tensor& x,
                        const Recorder& recorder) {
  return CpuConvBackwardx(dy, W, x, ConvHandle(recorder));
}
Tensor CpuConvBackwardW(const Tensor& dy, const Tensor& x, const Tensor& W,
                        const Recorder& recorder) {
  return CpuConvBackwardW(dy, x, W, ConvHandle(recorder));
}
Tensor CpuConvBackwardb(const Tensor& dy, const Tensor& b, const Recorder& recorder) {
  return CpuConvBackwardb(dy, b, ConvHandle(recorder));
}

Tensor GpuConvForward(const Tensor& x, const Tensor& W, const Tensor& b,
                      const CudnnConvHandle& handle) {
  return ConvForward(OnCuda("GpuConvForward", "x", x), W, b, handle);
}
Tensor GpuConvBackwardx(const Tensor& dy, const Tensor& W, const Tensor& x,
                        const CudnnConvHandle& handle) {
  return BackwardX(OnCuda("GpuConvBackwardx", "dy", dy), W, x, handle);
}
Tensor GpuConvBackwardW(const Tensor& dy, const Tensor& x, const Tensor& W,
                        const CudnnConvHandle& handle) {
  constexpr const char* kOp = "GpuConvBackwardW";
  return BackwardW(kOp, OnCuda(kOp, "dy", dy), x, W, handle);
}
Tensor GpuConvBackwardb(const Tensor& dy, const Tensor& b, const CudnnConvHandle& handle) {
  constexpr const char* kOp = "GpuConvBackwardb";
  return BackwardB(kOp, OnCuda(kOp, "dy", dy), b, handle);
}

Tensor GpuConvForward(const Tensor& x, const Tensor& W, const Tensor& b, const Recorder& recorder,
                      const CudnnConvHandles& handles) {
  Matching("GpuConvForward", recorder, handles);
  return GpuConvForward(x, W, b, handles);
}
Tensor GpuConvBackwardx(const Tensor& dy, const Tensor& W, const Tensor& x,
                        const Recorder& recorder, const CudnnConvHandles& handles) {
  Matching("GpuConvBackwardx", recorder, handles);
  return GpuConvBackwardx(dy, W, x, handles);
}
Tensor GpuConvBackwardW(const Tensor& dy, const Tensor& x, const Tensor& W,
                        const Recorder& recorder, const CudnnConvHandles& handles) {
  Matching("GpuConvBackwardW", recorder, handles);
  return GpuConvBackwardW(dy, x, W, handles);
}
Tensor GpuConvBackwardb(const Tensor& dy, const Tensor& b, const Recorder& recorder,
                        const CudnnConvHandles& handles) {
  Matching("GpuConvBackwardb", recorder, handles);
  return GpuConvBackwardb(dy, b, handles);
}

CudnnPoolingHandle::CudnnPoolingHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                                       const std::vector<int64_t>& stride,
                                       const std::vector<int64_t>& padding, bool is_max)
    : PoolingHandle(OnCuda("CudnnPoolingHandle", "input", input), kernel, stride, padding, is_max) {
}

Tensor CpuPoolingForward(const PoolingHandle& handle, const Tensor& x) {
  return PoolingForward(handle, x, false)[0];
}
Tensor CpuPoolingBackward(const PoolingHandle& handle, const Tensor& dy, const Tensor& x,
                          const Tensor& y) {
  return PoolingBackward(handle, dy, x, y, Tensor());
}
Tensor GpuPoolingForward(const CudnnPoolingHandle& handle, const Tensor& x) {
  return CpuPoolingForward(handle, OnCuda("GpuPoolingForward", "x", x));
}
Tensor GpuPoolingBackward(const CudnnPoolingHandle& handle, const Tensor& dy, const Tensor& x,
                          const Tensor& y) {
  return CpuPoolingBackward(handle, OnCuda("GpuPoolingBackward", "dy", dy), x, y);
}

CudnnBatchNormHandle::CudnnBatchNormHandle(double momentum, const Tensor& input)
    : BatchNormHandle(momentum, OnCuda("CudnnBatchNormHandle", "input", input)) {}

std::vector<Tensor> CpuBatchNormForwardTraining(const BatchNormHandle& handle, const Tensor& x,
                                                const Tensor& scale, const Tensor& bias,
                                                const Tensor& running_mean,
                                                const Tensor& running_var) {
  return BatchNormForwardTraining(handle, x, scale, bias, running_mean, running_var);
}
Tensor CpuBatchNormForwardInference(const BatchNormHandle& handle, const Tensor& x,
                                    const Tensor& scale, const Tensor& bias,
                                    const Tensor& running_mean, const Tensor& running_var) {
  return BatchNormForwardInference(handle, x, scale, bias, running_mean, running_var);
}
std::vector<Tensor> CpuBatchNormBackwardx(const BatchNormHandle& handle, const Tensor& /*y*/,
                                          const Tensor& dy, const Tensor& x, const Tensor& scale,
                                          const Tensor& /*bias*/, const Tensor& mean,
                                          const Tensor& var) {
  return BatchNormBackward(handle, dy, x, scale, mean, var);
}
std::vector<Tensor> GpuBatchNormForwardTraining(const CudnnBatchNormHandle& handle, const Tensor& x,
                                                const Tensor& scale, const Tensor& bias,
                                                const Tensor& running_mean,
                                                const Tensor& running_var) {
  return BatchNormForwardTraining(handle, OnCuda("GpuBatchNormForwardTraining", "x", x), scale,
                                  bias, running_mean, running_var);
}
Tensor GpuBatchNormForwardInference(const CudnnBatchNormHandle& handle, const Tensor& x,
                                    const Tensor& scale, const Tensor& bias,
                                    const Tensor& running_mean, const Tensor& running_var) {
  return BatchNormForwardInference(handle, OnCuda("GpuBatchNormForwardInference", "x", x), scale,
                                   bias, running_mean, running_var);
}
std::vector<Tensor> GpuBatchNormBackward(const CudnnBatchNormHandle& handle, const Tensor& dy,
                                         const Tensor& x, const Tensor& scale, const Tensor& mean,
                                         const Tensor& var) {
  return BatchNormBackward(handle, OnCuda("GpuBatchNormBackward", "dy", dy), x, scale, mean, var);
}

}  // namespace singa

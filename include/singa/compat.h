#pragma once

// Apache SINGA's functional operations, with its names and argument orders, as thin wrappers of
// singa's own. Cpu functions accept tensors on any device. Gpu functions and Cudnn handles require
// a CUDA device and raise Unavailable otherwise. An empty tensor means no bias.

#include <cstddef>
#include <string>
#include <vector>

#include "singa/operation/batchnorm.h"
#include "singa/operation/conv.h"
#include "singa/operation/pooling.h"
#include "singa/operation/recorder.h"

namespace singa {

// Convolution -------------------------------------------------------------------------------------

/// A ConvHandle for a tensor on a CUDA device.
class SINGA_API CudnnConvHandle : public ConvHandle {
 public:
  CudnnConvHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                  const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                  int64_t in_channels, int64_t out_channels, bool bias = true, int64_t group = 1,
                  size_t workspace_byte_limit = kWorkspaceByteLimit,
                  const std::string& prefer = "fastest");

 protected:
  CudnnConvHandle(const char* op, const Tensor& input, const Recorder& recorder,
                  size_t workspace_byte_limit, const std::string& prefer);
};

/// The handle of SINGA's older interface, where the geometry is a separate Recorder.
class SINGA_API CudnnConvHandles : public CudnnConvHandle {
 public:
  CudnnConvHandles(const Tensor& input, const Recorder& recorder, size_t workspace_byte_limit,
                   const std::string& prefer);
};

/// `prefer`: fastest, limited_workspace, no_workspace or autotune. Raises Unavailable unless
/// `input` is on a CUDA device.
SINGA_API CudnnConvHandles InitCudnnConvHandles(const Tensor& input, const Recorder& recorder,
                                                size_t workspace_byte_limit = kWorkspaceByteLimit,
                                                const std::string& prefer = "fastest");

SINGA_API Tensor CpuConvForward(const Tensor& x, const Tensor& W, const Tensor& b,
                                const ConvHandle& handle);
SINGA_API Tensor CpuConvBackwardx(const Tensor& dy, const Tensor& W, const Tensor& x,
                                  const ConvHandle& handle);
SINGA_API Tensor CpuConvBackwardW(const Tensor& dy, const Tensor& x, const Tensor& W,
                                  const ConvHandle& handle);
SINGA_API Tensor CpuConvBackwardb(const Tensor& dy, const Tensor& b, const ConvHandle& handle);

SINGA_API Tensor CpuConvForward(const Tensor& x, const Tensor& W, const Tensor& b,
                                const Recorder& recorder);
SINGA_API Tensor CpuConvBackwardx(const Tensor& dy, const Tensor& W, const Tensor& x,
                                  const Recorder& recorder);
SINGA_API Tensor CpuConvBackwardW(const Tensor& dy, const Tensor& x, const Tensor& W,
                                  const Recorder& recorder);
SINGA_API Tensor CpuConvBackwardb(const Tensor& dy, const Tensor& b, const Recorder& recorder);

SINGA_API Tensor GpuConvForward(const Tensor& x, const Tensor& W, const Tensor& b,
                                const CudnnConvHandle& handle);
SINGA_API Tensor GpuConvBackwardx(const Tensor& dy, const Tensor& W, const Tensor& x,
                                  const CudnnConvHandle& handle);
SINGA_API Tensor GpuConvBackwardW(const Tensor& dy, const Tensor& x, const Tensor& W,
                                  const CudnnConvHandle& handle);
SINGA_API Tensor GpuConvBackwardb(const Tensor& dy, const Tensor& b, const CudnnConvHandle& handle);

SINGA_API Tensor GpuConvForward(const Tensor& x, const Tensor& W, const Tensor& b,
                                const Recorder& recorder, const CudnnConvHandles& handles);
SINGA_API Tensor GpuConvBackwardx(const Tensor& dy, const Tensor& W, const Tensor& x,
                                  const Recorder& recorder, const CudnnConvHandles& handles);
SINGA_API Tensor GpuConvBackwardW(const Tensor& dy, const Tensor& x, const Tensor& W,
                                  const Recorder& recorder, const CudnnConvHandles& handles);
SINGA_API Tensor GpuConvBackwardb(const Tensor& dy, const Tensor& b, const Recorder& recorder,
                                  const CudnnConvHandles& handles);

// Pooling -----------------------------------------------------------------------------------------

/// A PoolingHandle for a tensor on a CUDA device.
class SINGA_API CudnnPoolingHandle : public PoolingHandle {
 public:
  CudnnPoolingHandle(const Tensor& input, const std::vector<int64_t>& kernel,
                     const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                     bool is_max = true);
};

SINGA_API Tensor CpuPoolingForward(const PoolingHandle& handle, const Tensor& x);
SINGA_API Tensor CpuPoolingBackward(const PoolingHandle& handle, const Tensor& dy, const Tensor& x,
                                    const Tensor& y);
SINGA_API Tensor GpuPoolingForward(const CudnnPoolingHandle& handle, const Tensor& x);
SINGA_API Tensor GpuPoolingBackward(const CudnnPoolingHandle& handle, const Tensor& dy,
                                    const Tensor& x, const Tensor& y);

// Batch normalisation -----------------------------------------------------------------------------

/// A BatchNormHandle for a tensor on a CUDA device.
class SINGA_API CudnnBatchNormHandle : public BatchNormHandle {
 public:
  CudnnBatchNormHandle(double momentum, const Tensor& input);
};

/// Returns {y, mean, var} and updates the running tensors.
SINGA_API std::vector<Tensor> CpuBatchNormForwardTraining(const BatchNormHandle& handle,
                                                          const Tensor& x, const Tensor& scale,
                                                          const Tensor& bias,
                                                          const Tensor& running_mean,
                                                          const Tensor& running_var);
SINGA_API Tensor CpuBatchNormForwardInference(const BatchNormHandle& handle, const Tensor& x,
                                              const Tensor& scale, const Tensor& bias,
                                              const Tensor& running_mean,
                                              const Tensor& running_var);
/// Returns {dx, dscale, dbias}. y and bias are not used and may be empty.
SINGA_API std::vector<Tensor> CpuBatchNormBackwardx(const BatchNormHandle& handle, const Tensor& y,
                                                    const Tensor& dy, const Tensor& x,
                                                    const Tensor& scale, const Tensor& bias,
                                                    const Tensor& mean, const Tensor& var);
SINGA_API std::vector<Tensor> GpuBatchNormForwardTraining(const CudnnBatchNormHandle& handle,
                                                          const Tensor& x, const Tensor& scale,
                                                          const Tensor& bias,
                                                          const Tensor& running_mean,
                                                          const Tensor& running_var);
SINGA_API Tensor GpuBatchNormForwardInference(const CudnnBatchNormHandle& handle, const Tensor& x,
                                              const Tensor& scale, const Tensor& bias,
                                              const Tensor& running_mean,
                                              const Tensor& running_var);
/// Returns {dx, dscale, dbias}. The arguments are in cuDNN's order.
SINGA_API std::vector<Tensor> GpuBatchNormBackward(const CudnnBatchNormHandle& handle,
                                                   const Tensor& dy, const Tensor& x,
                                                   const Tensor& scale, const Tensor& mean,
                                                   const Tensor& var);

}  // namespace singa

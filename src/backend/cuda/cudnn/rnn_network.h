#pragma once

// The interface of this folder's kernels to cuDNN's recurrent networks. nvidia/ implements it with
// cuDNN's functions, test/emulated_gpu with loops on the host.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/operation/rnn.h"

namespace singa::cudnn {

/// Recurrent layers without dropout between them. All tensors are row-major: x (steps, batch,
/// input), y (steps, batch, directions·hidden), states (layers·directions, batch, hidden).
struct RnnProblem {
  RnnMode mode = RnnMode::kTanh;
  DType dtype = kFloat32;  ///< products and gates are at least float32
  int64_t steps = 0, batch = 0, input = 0, hidden = 0;
  int64_t layers = 1, directions = 1;
  bool bias = true;
  bool training = false;  ///< forward saves state for backward
  bool tf32 = false;      ///< float32 factors may be rounded to TF32
  bool operator==(const RnnProblem&) const = default;
};

/// Addresses of a forward pass. hx and cx may be null (zeros). cx and cy are null except for LSTM.
struct RnnForwardArguments {
  const void *x, *hx, *cx, *weights;
  void *y, *hy, *cy;
  void* workspace;
  void* reserve;  ///< null unless training
};

/// Addresses of a backward pass. hx, cx, dhy and dcy may be null (zeros).
struct RnnBackwardArguments {
  const void *x, *hx, *cx, *weights, *y;
  const void *dy, *dhy, *dcy;
  void *dx, *dhx, *dcx;
  void* dweights;  ///< added to
  void* workspace;
  void* reserve;  ///< state from forward; overwritten
};

/// Offsets of a gate's weights, in elements.
struct RnnPlace {
  int64_t matrix;  ///< (hidden, inputs), row-major
  int64_t bias;    ///< -1 without biases
};

/// A compiled network. It runs from any thread, on the GPU for which it was built.
class RnnNetwork {
 public:
  virtual ~RnnNetwork() = default;

  virtual size_t weight_bytes() const = 0;
  virtual size_t workspace_bytes() const = 0;
  /// 0 except in training.
  virtual size_t reserve_bytes() const = 0;
  /// `part` = layer · directions + direction. Gates are in RnnHandle's order, which is also
  /// cuDNN's. `recurrent` selects the weights of the hidden state instead of those of the layer's
  /// input.
  virtual RnnPlace place(int64_t part, int64_t gate, bool recurrent) const = 0;

  // Asynchronous. `lengths` of the sequences; empty if all have full length. y is zero beyond a
  // sequence's end.
  virtual void Forward(const Device& device, std::span<const int32_t> lengths,
                       const RnnForwardArguments& arguments) const = 0;
  virtual void Backward(const Device& device, std::span<const int32_t> lengths,
                        const RnnBackwardArguments& arguments) const = 0;
};

/// Compiles a network with the library of this build (cuDNN, or its emulation on the host) for the
/// calling thread's GPU. Throws std::runtime_error if the library fails.
std::shared_ptr<const RnnNetwork> NewRnnNetwork(const RnnProblem& problem);

}  // namespace singa::cudnn

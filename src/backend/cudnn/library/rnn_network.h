#pragma once

// What the kernels of this folder ask of cuDNN about recurrent networks. nvidia/ answers with
// cuDNN's functions, emulated/ with loops on the host.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/operation/rnn.h"

namespace singa::cudnn {

/// Recurrent layers without dropout between them. All is row-major: x (steps, batch, input), y
/// (steps, batch, directions·hidden), states (layers·directions, batch, hidden).
struct RnnProblem {
  RnnMode mode = RnnMode::kTanh;
  DType dtype = kFloat32;  ///< products and gates are float32 at least
  int64_t steps = 0, batch = 0, input = 0, hidden = 0;
  int64_t layers = 1, directions = 1;
  bool bias = true;
  bool training = false;  ///< forward keeps something for backward
  bool tf32 = false;      ///< float32 factors may be rounded to TF32
  bool operator==(const RnnProblem&) const = default;
};

/// Addresses of a forward pass; hx and cx may be null (zeros), and so are cx and cy unless LSTM.
struct RnnForwardArguments {
  const void *x, *hx, *cx, *weights;
  void *y, *hy, *cy;
  void* workspace;
  void* reserve;  ///< null unless training
};

/// Addresses of a backward pass; hx, cx, dhy and dcy may be null (zeros).
struct RnnBackwardArguments {
  const void *x, *hx, *cx, *weights, *y;
  const void *dy, *dhy, *dcy;
  void *dx, *dhx, *dcx;
  void* dweights;  ///< added to
  void* workspace;
  void* reserve;  ///< what forward left; of no use afterwards
};

/// Where the weights of a gate begin, in elements.
struct RnnPlace {
  int64_t matrix;  ///< (hidden, inputs), row-major
  int64_t bias;    ///< -1 where there are none
};

/// A network made ready: it runs from any thread, on the GPU that it was built for.
class RnnNetwork {
 public:
  virtual ~RnnNetwork() = default;

  virtual size_t weight_bytes() const = 0;
  virtual size_t workspace_bytes() const = 0;
  /// 0 unless training.
  virtual size_t reserve_bytes() const = 0;
  /// `part` = layer · directions + direction; gates in RnnHandle's order, which is cuDNN's; those
  /// that multiply the hidden state, or the layer's input.
  virtual RnnPlace place(int64_t part, int64_t gate, bool recurrent) const = 0;

  // Queued. `lengths` of the sequences, or none: all are whole. Beyond a sequence's length y is
  // zero.
  virtual void Forward(const Device& device, std::span<const int32_t> lengths,
                       const RnnForwardArguments& arguments) const = 0;
  virtual void Backward(const Device& device, std::span<const int32_t> lengths,
                        const RnnBackwardArguments& arguments) const = 0;
};

/// By the library of this build, cuDNN or the host, for the calling thread's GPU. Raises
/// std::runtime_error where the library fails.
std::shared_ptr<const RnnNetwork> NewRnnNetwork(const RnnProblem& problem);

}  // namespace singa::cudnn

#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

enum class RnnMode : int { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };

/// Recurrent layers over x (seq, batch, input). Gates in PyTorch's (and cuDNN's) order: LSTM i, f,
/// g, o; GRU r, z, n with the reset gate applied to (h·Whn + bhn). All weights lie in one flat
/// tensor, as cuDNN does it: per layer, per direction W_ih (gates·hidden, in) then W_hh
/// (gates·hidden, hidden); after all of those, in the same order, b_ih then b_hh (gates·hidden
/// each).
class SINGA_API RnnHandle {
 public:
  RnnHandle(const Tensor& x, int64_t hidden_size, RnnMode mode, int64_t num_layers = 1,
            bool bias = true, double dropout = 0, bool bidirectional = false);
  int64_t input_size, hidden_size, num_layers, directions;
  RnnMode mode;
  bool bias;
  double dropout;
  /// Elements of the flat weight tensor.
  int64_t weights_size;
};

/// {y (seq, batch, directions·hidden), hy, cy (layers·directions, batch, hidden; empty unless
/// LSTM), saved}. hx and cx may be empty (zeros). `seq_lengths` (batch) int32, or empty: steps
/// beyond a sequence's length give zeros in y and leave its state. For a GPU they may lie on the
/// CPU, where cuDNN reads them: nobody waits then. In training, layers above the
/// first see their inputs after dropout (the device's next random numbers). Types of 16 bits are
/// computed in float32; on a GPU the hidden states are rounded from step to step. What `saved`
/// holds is the implementation's own affair.
SINGA_API std::vector<Tensor> RnnForward(const RnnHandle& handle, const Tensor& x, const Tensor& hx,
                                         const Tensor& cx, const Tensor& W,
                                         const Tensor& seq_lengths, bool training = true);
/// {dx, dhx, dcx (empty unless LSTM), dW}. dy, dhy and dcy may be empty (zeros). `saved` is that of
/// a forward with `training`.
SINGA_API std::vector<Tensor> RnnBackward(const RnnHandle& handle, const Tensor& dy,
                                          const Tensor& dhy, const Tensor& dcy, const Tensor& x,
                                          const Tensor& hx, const Tensor& cx, const Tensor& W,
                                          const Tensor& y, const Tensor& seq_lengths,
                                          const Tensor& saved);

}  // namespace singa

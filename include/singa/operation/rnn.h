#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// kGruResetBefore is a GRU whose reset gate multiplies h before the product, as in the first
/// version of its paper and ONNX's default: n = tanh(Win·x + bin + Whn·(r·h) + bhn). cuDNN has
/// none.
enum class RnnMode : int { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3, kGruResetBefore = 4 };

/// Recurrent layers over x (seq, batch, input). Gates are in the order of PyTorch and cuDNN: i, f,
/// g, o for LSTM; r, z, n for GRU, with the reset gate applied to (Whn·h + bhn). All weights are in
/// one flat tensor, as in cuDNN: for each layer and direction W_ih (gates·hidden, in), then W_hh
/// (gates·hidden, hidden); after all of these, in the same order, b_ih and b_hh (gates·hidden
/// each).
class SINGA_API RnnHandle {
 public:
  RnnHandle(const Tensor& x, int64_t hidden_size, RnnMode mode, int64_t num_layers = 1,
            bool bias = true, double dropout = 0, bool bidirectional = false);
  int64_t input_size, hidden_size, num_layers, directions;
  RnnMode mode;
  bool bias;
  double dropout;
  /// Number of elements of the flat weight tensor.
  int64_t weights_size;
};

/// Returns {y (seq, batch, directions·hidden), hy, cy, saved}. States (hx, cx, hy, cy) are
/// (layers·directions, batch, hidden); cy is empty unless the mode is LSTM. Empty hx and cx mean
/// zeros.
///
/// `seq_lengths` (batch) is int32 or empty. Steps beyond the length of a sequence give zeros in y
/// and do not change its state. For a GPU the lengths may be on the CPU, where cuDNN reads them;
/// this saves a synchronisation.
///
/// In training, dropout from the device's random sequence is applied to the inputs of all layers
/// but the first. 16-bit types are computed in float32; on a GPU the hidden state is rounded after
/// each step. `saved` is private to the implementation.
SINGA_API std::vector<Tensor> RnnForward(const RnnHandle& handle, const Tensor& x, const Tensor& hx,
                                         const Tensor& cx, const Tensor& W,
                                         const Tensor& seq_lengths, bool training = true);
/// Returns {dx, dhx, dcx, dW}; dcx is empty unless the mode is LSTM. Empty dy, dhy and dcy mean
/// zeros. `saved` comes from a forward with `training`.
SINGA_API std::vector<Tensor> RnnBackward(const RnnHandle& handle, const Tensor& dy,
                                          const Tensor& dhy, const Tensor& dcy, const Tensor& x,
                                          const Tensor& hx, const Tensor& cx, const Tensor& W,
                                          const Tensor& y, const Tensor& seq_lengths,
                                          const Tensor& saved);

}  // namespace singa

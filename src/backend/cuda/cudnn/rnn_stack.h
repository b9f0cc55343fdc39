#pragma once

#include <memory>
#include <vector>

#include "backend/cuda/cudnn/rnn_network.h"
#include "model/operation/rnn/spec.h"

namespace singa::cudnn {

/// Consecutive layers that cuDNN computes as one network, and the copies of their weights between
/// RnnHandle's flat tensor and cuDNN's memory.
class RnnStack {
 public:
  RnnStack(const RnnFields& fields, int64_t first_layer, int64_t layers);

  const RnnNetwork& network() const { return *network_; }
  /// Bytes for weights in cuDNN's order; 0 if the flat tensor already has it.
  size_t packed_bytes() const { return direct_ ? 0 : network_->weight_bytes(); }

  /// The weights in cuDNN's order: in place in `weights`, or copied to `packed`.
  const void* Pack(Device& device, const void* weights, void* packed) const;
  /// The zeroed memory for their gradient: in place in `gradient`, or `packed`.
  void* StartGradient(Device& device, void* gradient, void* packed) const;
  /// Copies the gradient to `gradient`, unless it was computed in place.
  void FinishGradient(Device& device, const void* packed, void* gradient) const;

 private:
  struct Piece {
    size_t ours, theirs, bytes;
  };
  void AddPiece(int64_t ours, int64_t theirs, int64_t count, size_t element);

  std::shared_ptr<const RnnNetwork> network_;
  std::vector<Piece> pieces_;  // all weights of the stack
  bool direct_;
};

}  // namespace singa::cudnn

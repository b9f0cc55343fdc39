#pragma once

#include <memory>
#include <vector>

#include "backend/cudnn/library/rnn_network.h"
#include "model/operation/rnn_spec.h"

namespace singa::cudnn {

/// Successive layers of a recurrent network that cuDNN computes at once, and the way of their
/// weights from RnnHandle's flat tensor to cuDNN's memory and back.
class RnnStack {
 public:
  RnnStack(const RnnFields& fields, int64_t first_layer, int64_t layers);

  const RnnNetwork& network() const { return *network_; }
  /// Bytes of memory for weights in cuDNN's order; 0 where they lie that way already.
  size_t packed_bytes() const { return direct_ ? 0 : network_->weight_bytes(); }

  /// The weights as cuDNN wants them: within `weights`, or copied to `packed`.
  const void* Pack(Device& device, const void* weights, void* packed) const;
  /// Where their gradient is added up, zero at first: within `gradient`, or `packed`.
  void* StartGradient(Device& device, void* gradient, void* packed) const;
  /// Brings what was added up there to `gradient`.
  void FinishGradient(Device& device, const void* packed, void* gradient) const;

 private:
  struct Piece {
    size_t ours, theirs, bytes;
  };
  void AddPiece(int64_t ours, int64_t theirs, int64_t count, size_t element);

  std::shared_ptr<const RnnNetwork> network_;
  std::vector<Piece> pieces_;  // of all the stack's weights
  bool direct_;
};

}  // namespace singa::cudnn

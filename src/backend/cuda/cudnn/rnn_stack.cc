#include "backend/cuda/cudnn/rnn_stack.h"

#include <type_traits>

#include "singa/dispatch/plan_cache.h"

namespace singa::cudnn {
namespace {

template <class T>
T* At(T* data, size_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<Byte*>(data) + bytes;
}

RnnProblem ProblemOf(const RnnFields& fields, int64_t first_layer, int64_t layers) {
  RnnProblem problem;
  problem.mode = fields.mode;
  problem.dtype = fields.dtype;
  problem.steps = fields.steps;
  problem.batch = fields.batch;
  problem.input = fields.layer_input(first_layer);
  problem.hidden = fields.hidden;
  problem.layers = layers;
  problem.directions = fields.directions;
  problem.bias = fields.bias;
  problem.training = fields.training;
  problem.tf32 = RoundsFloat32Factors();
  return problem;
}

}  // namespace

RnnStack::RnnStack(const RnnFields& fields, int64_t first_layer, int64_t layers)
    : network_(NewRnnNetwork(ProblemOf(fields, first_layer, layers))) {
  const int64_t hidden = fields.hidden, gates = fields.gate_rows() / hidden;
  const size_t element = SizeOf(fields.dtype);
  const int64_t first = first_layer * fields.directions, parts = layers * fields.directions;
  // All matrices, then all biases: the order in both memories, so that neighbouring pieces merge.
  for (int64_t i = 0; i < parts; ++i)
    for (const bool recurrent : {false, true})
      for (int64_t gate = 0; gate < gates; ++gate) {
        const int64_t part = first + i;
        const int64_t size =
            hidden * (recurrent ? hidden : fields.layer_input(part / fields.directions));
        AddPiece((recurrent ? fields.w_hh(part) : fields.w_ih(part)) + gate * size,
                 network_->place(i, gate, recurrent).matrix, size, element);
      }
  if (fields.bias)
    for (int64_t i = 0; i < parts; ++i)
      for (const bool recurrent : {false, true})
        for (int64_t gate = 0; gate < gates; ++gate) {
          const int64_t part = first + i;
          AddPiece((recurrent ? fields.b_hh(part) : fields.b_ih(part)) + gate * hidden,
                   network_->place(i, gate, recurrent).bias, hidden, element);
        }
  direct_ = pieces_.size() == 1 && pieces_[0].theirs == 0 &&
            pieces_[0].bytes == network_->weight_bytes() && pieces_[0].ours % kVectorBytes == 0 &&
            fields.alignment == kVectorBytes;
}

void RnnStack::AddPiece(int64_t ours, int64_t theirs, int64_t count, size_t element) {
  const Piece piece{static_cast<size_t>(ours) * element, static_cast<size_t>(theirs) * element,
                    static_cast<size_t>(count) * element};
  if (!pieces_.empty()) {
    Piece& last = pieces_.back();
    if (last.ours + last.bytes == piece.ours && last.theirs + last.bytes == piece.theirs) {
      last.bytes += piece.bytes;
      return;
    }
  }
  pieces_.push_back(piece);
}

const void* RnnStack::Pack(Device& device, const void* weights, void* packed) const {
  if (direct_) return At(weights, pieces_[0].ours);
  for (const Piece& piece : pieces_)
    device.CopyBytes(At(packed, piece.theirs), At(weights, piece.ours), piece.bytes);
  return packed;
}

void* RnnStack::StartGradient(Device& device, void* gradient, void* packed) const {
  void* const sum = direct_ ? At(gradient, pieces_[0].ours) : packed;
  device.ZeroBytes(sum, network_->weight_bytes());
  return sum;
}

void RnnStack::FinishGradient(Device& device, const void* packed, void* gradient) const {
  if (direct_) return;
  for (const Piece& piece : pieces_)
    device.CopyBytes(At(gradient, piece.ours), At(packed, piece.theirs), piece.bytes);
}

}  // namespace singa::cudnn

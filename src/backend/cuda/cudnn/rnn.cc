// Recurrent networks by cuDNN. All layers form one cuDNN network, unless there is dropout between
// them: then each layer is a network, and our own kernels apply dropout with the device's random
// numbers, as everywhere else.
//
// cuDNN reads sequence lengths on the host. A call with lengths on the device waits for them, so it
// cannot be captured.

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/cudnn/dnn.h"
#include "backend/cuda/cudnn/own_kernel.h"
#include "backend/cuda/cudnn/rnn_stack.h"
#include "model/dispatch/kernel.h"
#include "model/operation/random/spec.h"
#include "model/operation/rnn/spec.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::cudnn {
namespace {

constexpr const char* kName = "cudnn";
/// cuDNN takes sizes as int.
constexpr int64_t kMostElements = (int64_t{1} << 31) - 1;

/// Divides a block of memory into aligned parts.
class Cuts {
 public:
  /// The offset of the next `bytes` bytes.
  size_t Take(size_t bytes) {
    constexpr size_t kUnit = 256;
    const size_t place = end_;
    end_ += (bytes + kUnit - 1) / kUnit * kUnit;
    return place;
  }
  size_t bytes() const { return end_; }

 private:
  size_t end_ = 0;
};

/// What forward saves for a stack. It includes y, which is not an argument of backward.
struct SavedStack {
  size_t reserve = 0, y = 0;
  // If another stack follows: its input, which is y after dropout, and the mask.
  size_t dropped = 0, mask = 0;
};

/// Common to both passes.
class RnnPlan : public Plan {
 public:
  explicit RnnPlan(const RnnFields& fields)
      : Plan(kName),
        rounds_factors_(fields.dtype == kFloat32 && RoundsFloat32Factors()),
        f_(fields) {
    if (fields.batch == 0) return;
    const int64_t layers = fields.dropout > 0 ? 1 : fields.layers;
    for (int64_t first = 0; first < fields.layers; first += layers)
      stacks_.emplace_back(fields, first, layers);
    Cuts saved;
    for (const RnnStack& stack : stacks_) {
      SavedStack& s = saved_.emplace_back();
      s.reserve = saved.Take(stack.network().reserve_bytes());
      s.y = saved.Take(width_bytes());
      if (&stack == &stacks_.back()) break;
      s.dropped = saved.Take(width_bytes());
      s.mask = saved.Take(static_cast<size_t>(fields.rows() * fields.width()));
    }
    saved_bytes_ = saved.bytes();
  }
  std::string Describe() const override {
    return std::string(kName) + (rounds_factors_ ? " rnn tf32" : " rnn");
  }
  double factor_error() const override { return rounds_factors_ ? kTf32Error : 0; }
  size_t workspace_bytes() const override { return cuts_.bytes(); }
  size_t bytes() const override { return size_t{4} << 10; }

 protected:
  /// The largest size among the stacks.
  template <class Bytes>
  size_t Most(const Bytes& bytes) const {
    size_t most = 0;
    for (const RnnStack& stack : stacks_) most = std::max(most, bytes(stack));
    return most;
  }
  size_t MostWorkspace() const {
    return Most([](const RnnStack& s) { return s.network().workspace_bytes(); });
  }
  size_t MostWeights() const {
    return Most([](const RnnStack& s) { return s.packed_bytes(); });
  }
  /// Bytes of a layer's output.
  size_t width_bytes() const {
    return static_cast<size_t>(f_.rows() * f_.width()) * SizeOf(f_.dtype);
  }
  /// Offset of a stack's layers in the states.
  size_t StateOffset(size_t stack) const {
    return static_cast<size_t>(f_.states()) * SizeOf(f_.dtype) / stacks_.size() * stack;
  }

  std::vector<int32_t> LengthsOf(const char* op, const Execution& execution,
                                 const Tensor& seq_lengths) const {
    if (seq_lengths.empty()) return {};
    std::vector<int32_t> lengths(static_cast<size_t>(f_.batch));
    const size_t bytes = lengths.size() * sizeof(int32_t);
    if (seq_lengths.device()->kind() == DeviceKind::kCpu) {
      std::memcpy(lengths.data(), seq_lengths.raw_data(), bytes);
    } else {
      execution.device.CopyToHost(lengths.data(), seq_lengths.raw_data(), bytes);
    }
    CheckLengths(op, f_, lengths);
    return lengths;
  }
  static char* At(const Tensor& t, size_t offset = 0) {
    return t.empty() ? nullptr : static_cast<char*>(t.raw_data()) + offset;
  }
  static char* At(void* memory, size_t offset) { return static_cast<char*>(memory) + offset; }
  /// A layer's output or its mask at this address, as a flat tensor.
  Tensor Flat(const DevicePtr& device, void* data, DType dtype) const {
    return PlainAt(device, data, {f_.rows() * f_.width()}, dtype);
  }

  const bool rounds_factors_;
  const RnnFields f_;
  std::vector<RnnStack> stacks_;  // from the first layer on; empty for an empty batch
  std::vector<SavedStack> saved_;
  size_t saved_bytes_ = 0;
  Cuts cuts_;  // of the workspace
};

class RnnForwardPlan final : public RnnPlan {
 public:
  explicit RnnForwardPlan(const RnnForwardSpec& spec) : RnnPlan(spec) {
    for (size_t i = 0; i + 1 < stacks_.size(); ++i)
      dropouts_.push_back(OwnKernel(
          DropoutSpec{spec.dtype, nullptr, static_cast<int64_t>(i) * spec.rows() * spec.width()}));
    weights_ = cuts_.Take(MostWeights());
    workspace_ = cuts_.Take(MostWorkspace());
  }
  size_t private_bytes(size_t i) const override { return i == 3 && f_.training ? saved_bytes_ : 0; }

  void Run(const Execution& execution) const override {
    const std::span<const Tensor> in = execution.inputs, out = execution.outputs;
    const std::vector<int32_t> lengths = LengthsOf("RnnForward", execution, in[4]);
    RnnForwardArguments a{};
    a.x = At(in[0]);
    a.workspace = At(execution.workspace, workspace_);
    for (size_t i = 0; i < stacks_.size(); ++i) {
      const bool top = i + 1 == stacks_.size();
      const size_t state = StateOffset(i);
      a.hx = At(in[1], state), a.cx = At(in[2], state);
      a.hy = At(out[1], state), a.cy = At(out[2], state);
      a.y = top ? At(out[0]) : At(out[3], saved_[i].y);
      a.reserve = At(out[3], saved_[i].reserve);
      a.weights = stacks_[i].Pack(execution.device, At(in[3]), At(execution.workspace, weights_));
      stacks_[i].network().Forward(execution.device, lengths, a);
      if (top && f_.training)
        execution.device.CopyBytes(At(out[3], saved_[i].y), a.y, width_bytes());
      if (top) return;
      Drop(execution, i);
      a.x = At(out[3], saved_[i].dropped);
    }
  }

 private:
  void Drop(const Execution& execution, size_t i) const {
    const Tensor& saved = execution.outputs[3];
    const DevicePtr device = saved.device();
    const Tensor y[] = {Flat(device, At(saved, saved_[i].y), f_.dtype)};
    const Tensor dropped[] = {Flat(device, At(saved, saved_[i].dropped), f_.dtype),
                              Flat(device, At(saved, saved_[i].mask), kUInt8)};
    // Passes the call's Scalars object itself: captured work identifies it by its address.
    dropouts_[i]->Run({execution.device, y, dropped, execution.scalars, nullptr});
  }

  std::vector<PlanPtr> dropouts_;  // above each stack except the last
  size_t weights_ = 0, workspace_ = 0;
};

class RnnBackwardPlan final : public RnnPlan {
 public:
  explicit RnnBackwardPlan(const RnnBackwardSpec& spec) : RnnPlan(spec) {
    if (spec.dropout > 0) dropout_ = OwnKernel(DropoutBackwardSpec{spec.dtype});
    weights_ = cuts_.Take(MostWeights());
    dweights_ = cuts_.Take(MostWeights());
    workspace_ = cuts_.Take(MostWorkspace());
    reserve_ = cuts_.Take(Most([](const RnnStack& s) { return s.network().reserve_bytes(); }));
    dy_ = cuts_.Take(width_bytes());
    if (stacks_.size() > 1) dx_ = cuts_.Take(width_bytes());
  }

  void Run(const Execution& execution) const override {
    const std::span<const Tensor> in = execution.inputs, out = execution.outputs;
    Device& device = execution.device;
    if (stacks_.empty()) return device.ZeroBytes(At(out[3]), static_cast<size_t>(out[3].bytes()));
    const std::vector<int32_t> lengths = LengthsOf("RnnBackward", execution, in[7]);
    const Tensor& saved = in[8];
    Check(saved.bytes() == static_cast<int64_t>(saved_bytes_), "RnnBackward",
          "saved is from another forward pass: it must have ", saved_bytes_, " bytes, got ", saved);
    const auto part = [&](size_t place) { return At(execution.workspace, place); };

    RnnBackwardArguments a{};
    a.dy = At(in[0]);
    if (in[0].empty()) {
      device.ZeroBytes(part(dy_), width_bytes());
      a.dy = part(dy_);
    }
    a.workspace = part(workspace_);
    a.reserve = part(reserve_);
    for (size_t i = stacks_.size(); i-- > 0;) {
      const RnnStack& stack = stacks_[i];
      const size_t state = StateOffset(i);
      a.hx = At(in[4], state), a.cx = At(in[5], state);
      a.dhy = At(in[1], state), a.dcy = At(in[2], state);
      a.dhx = At(out[1], state), a.dcx = At(out[2], state);
      a.x = i == 0 ? At(in[3]) : At(saved, saved_[i - 1].dropped);
      a.y = At(saved, saved_[i].y);
      a.dx = i == 0 ? At(out[0]) : part(dx_);
      // cuDNN leaves dx undefined beyond the end of a sequence.
      const auto inputs = static_cast<size_t>(f_.rows() * (i == 0 ? f_.input : f_.width()));
      if (!lengths.empty()) device.ZeroBytes(a.dx, inputs * SizeOf(f_.dtype));
      // cuDNN overwrites the reserve, and backward may run again.
      device.CopyBytes(a.reserve, At(saved, saved_[i].reserve), stack.network().reserve_bytes());
      a.weights = stack.Pack(device, At(in[6]), part(weights_));
      a.dweights = stack.StartGradient(device, At(out[3]), part(dweights_));
      stack.network().Backward(device, lengths, a);
      stack.FinishGradient(device, a.dweights, At(out[3]));
      if (i == 0) return;
      Drop(execution, i - 1);
      a.dy = part(dy_);
    }
  }

 private:
  /// Computes the gradient of the lower stack's output from that of a stack's input.
  void Drop(const Execution& execution, size_t below) const {
    const Tensor& saved = execution.inputs[8];
    const DevicePtr device = saved.device();
    Scalars scalars;
    scalars.v[0] = f_.dropout;
    const Tensor dx[] = {Flat(device, At(execution.workspace, dx_), f_.dtype),
                         Flat(device, At(saved, saved_[below].mask), kUInt8)};
    const Tensor dy[] = {Flat(device, At(execution.workspace, dy_), f_.dtype)};
    dropout_->Run({execution.device, dx, dy, scalars, nullptr});
  }

  PlanPtr dropout_;
  size_t weights_ = 0, dweights_ = 0, workspace_ = 0, reserve_ = 0, dy_ = 0, dx_ = 0;
};

std::string RefusesFields(const RnnFields& f) {
  if (f.resets_before()) return "cuDNN resets behind the product";
  if (f.rows() * std::max({f.input, f.width(), f.gate_rows()}) > kMostElements)
    return "a tensor has too many elements for cuDNN, which counts to 2^31";
  if (f.dropout > 0 &&
      (!OwnKernel(DropoutSpec{f.dtype}) || !OwnKernel(DropoutBackwardSpec{f.dtype})))
    return "no kernel drops out on this device";
  return Dnn().Problem();
}

std::string Refuses(const RnnForwardSpec& spec) { return RefusesFields(spec); }

std::string Refuses(const RnnBackwardSpec& spec) {
  // Of no sequences there is nothing to keep in a private form.
  if (spec.saved != SavedForm::kPrivate && spec.batch > 0)
    return "another implementation did forward";
  return RefusesFields(spec);
}

PlanOrReason MakeForward(const RnnForwardSpec& spec) {
  return std::make_shared<RnnForwardPlan>(spec);
}

PlanOrReason MakeBackward(const RnnBackwardSpec& spec) {
  return std::make_shared<RnnBackwardPlan>(spec);
}

}  // namespace

SINGA_KERNELS(cuda_libraries) {
  Register<RnnForwardSpec>(DeviceKind::kCuda, kName, {.refuses = Refuses, .make = MakeForward});
  Register<RnnBackwardSpec>(DeviceKind::kCuda, kName, {.refuses = Refuses, .make = MakeBackward});
}

}  // namespace singa::cudnn

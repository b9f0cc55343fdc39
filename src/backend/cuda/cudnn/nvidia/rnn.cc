// Recurrent networks by cuDNN's legacy functions; its graph API has none.

#include <cudnn_adv.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cuda/cudnn/nvidia/descriptor.h"
#include "backend/cuda/cudnn/rnn_network.h"
#include "backend/cuda/runtime/runtime.h"

namespace singa::cudnn {
namespace {

/// Functions of libcudnn.so.9, which loads its sublibrary for recurrent networks on the first call.
struct RnnFunctions {
  SINGA_VENDOR_FUNCTION(CudnnFile, CreateTensor, cudnnCreateTensorDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, DestroyTensor, cudnnDestroyTensorDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, SetTensor, cudnnSetTensorNdDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, GetTensor, cudnnGetTensorNdDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, CreateDropout, cudnnCreateDropoutDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, DestroyDropout, cudnnDestroyDropoutDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, SetDropout, cudnnSetDropoutDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, CreateRnn, cudnnCreateRNNDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, DestroyRnn, cudnnDestroyRNNDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, SetRnn, cudnnSetRNNDescriptor_v8);
  SINGA_VENDOR_FUNCTION(CudnnFile, CreateData, cudnnCreateRNNDataDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, DestroyData, cudnnDestroyRNNDataDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, SetData, cudnnSetRNNDataDescriptor);
  SINGA_VENDOR_FUNCTION(CudnnFile, GetWeightSpaceSize, cudnnGetRNNWeightSpaceSize);
  SINGA_VENDOR_FUNCTION(CudnnFile, GetWeightParams, cudnnGetRNNWeightParams);
  SINGA_VENDOR_FUNCTION(CudnnFile, GetTempSpaceSizes, cudnnGetRNNTempSpaceSizes);
  SINGA_VENDOR_FUNCTION(CudnnFile, Forward, cudnnRNNForward);
  SINGA_VENDOR_FUNCTION(CudnnFile, BackwardData, cudnnRNNBackwardData_v8);
  SINGA_VENDOR_FUNCTION(CudnnFile, BackwardWeights, cudnnRNNBackwardWeights_v8);
};

const RnnFunctions& Rnn() {
  static const RnnFunctions functions;
  return functions;
}

/// Owns a descriptor of cuDNN's legacy API.
template <class Handle>
class Owned {
 public:
  using Create = cudnnStatus_t (*)(Handle*);
  using Destroy = cudnnStatus_t (*)(Handle);
  Owned(Create create, Destroy destroy) : destroy_(destroy) {
    CheckCudnn(create(&handle_), "create a descriptor");
  }
  ~Owned() { destroy_(handle_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Handle get() const { return handle_; }

 private:
  Destroy destroy_;
  Handle handle_ = nullptr;
};

class TensorDescriptor : public Owned<cudnnTensorDescriptor_t> {
 public:
  TensorDescriptor() : Owned(Rnn().CreateTensor, Rnn().DestroyTensor) {}
};

/// The type in which cuDNN computes.
cudnnDataType_t PrecisionOf(const RnnProblem& problem) {
  return problem.dtype == kFloat64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

cudnnMathType_t MathOf(const RnnProblem& problem) {
  if (problem.dtype == kFloat16 || problem.dtype == kBFloat16) return CUDNN_TENSOR_OP_MATH;
  // The default permits TF32. float64 has no other mode.
  return problem.dtype == kFloat32 && !problem.tf32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

cudnnRNNMode_t ModeOf(RnnMode mode) {
  switch (mode) {
    case RnnMode::kRelu:
      return CUDNN_RNN_RELU;
    case RnnMode::kTanh:
      return CUDNN_RNN_TANH;
    case RnnMode::kLstm:
      return CUDNN_LSTM;
    case RnnMode::kGru:
      return CUDNN_GRU;
    case RnnMode::kGruResetBefore:
      break;
  }
  throw std::logic_error("no mode of a recurrent network");
}

int GatesOf(RnnMode mode) { return mode == RnnMode::kLstm ? 4 : mode == RnnMode::kGru ? 3 : 1; }

/// Describes x or y. Positions beyond a sequence's end are written as zero.
class DataDescriptor : public Owned<cudnnRNNDataDescriptor_t> {
 public:
  DataDescriptor(const RnnProblem& p, int64_t features, std::span<const int> lengths)
      : Owned(Rnn().CreateData, Rnn().DestroyData) {
    static double zero = 0;  // valid for all types
    CheckCudnn(Rnn().SetData(get(), TypeOf(p.dtype), CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED,
                             static_cast<int>(p.steps), static_cast<int>(p.batch),
                             static_cast<int>(features), lengths.data(), &zero),
               "describe the sequences");
  }
};

struct Sequences {
  DataDescriptor x, y;
  Sequences(const RnnProblem& p, std::span<const int> lengths)
      : x(p, p.input, lengths), y(p, p.directions * p.hidden, lengths) {}
};

class CudnnNetwork final : public RnnNetwork {
 public:
  explicit CudnnNetwork(const RnnProblem& problem)
      : p_(problem),
        dropout_(Rnn().CreateDropout, Rnn().DestroyDropout),
        rnn_(Rnn().CreateRnn, Rnn().DestroyRnn),
        whole_(problem, std::vector<int>(static_cast<size_t>(problem.batch),
                                         static_cast<int>(problem.steps))) {
    const cudnnHandle_t handle = CudnnHandle();
    CheckCudnn(Rnn().SetDropout(dropout_.get(), handle, 0, nullptr, 0, 0), "describe no dropout");
    const cudnnDataType_t type = TypeOf(p_.dtype);
    CheckCudnn(
        Rnn().SetRnn(rnn_.get(), CUDNN_RNN_ALGO_STANDARD, ModeOf(p_.mode),
                     p_.bias ? CUDNN_RNN_DOUBLE_BIAS : CUDNN_RNN_NO_BIAS,
                     p_.directions == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL,
                     CUDNN_LINEAR_INPUT, type, PrecisionOf(p_), MathOf(p_),
                     static_cast<int32_t>(p_.input), static_cast<int32_t>(p_.hidden),
                     static_cast<int32_t>(p_.hidden),  // no projection
                     static_cast<int32_t>(p_.layers), dropout_.get(), CUDNN_RNN_PADDED_IO_ENABLED),
        "describe a recurrent network");
    const int states[] = {static_cast<int>(p_.layers * p_.directions), static_cast<int>(p_.batch),
                          static_cast<int>(p_.hidden)};
    const int strides[] = {states[1] * states[2], states[2], 1};
    CheckCudnn(Rnn().SetTensor(state_.get(), type, 3, states, strides), "describe the states");
    CheckCudnn(Rnn().GetTempSpaceSizes(handle, rnn_.get(), Mode(), whole_.x.get(),
                                       &workspace_bytes_, &reserve_bytes_),
               "get the workspace size of a recurrent network");
    if (!p_.training) reserve_bytes_ = 0;
    CheckCudnn(Rnn().GetWeightSpaceSize(handle, rnn_.get(), &weight_bytes_),
               "get the size of a recurrent network's weights");
    FindPlaces(handle);
  }

  size_t weight_bytes() const override { return weight_bytes_; }
  size_t workspace_bytes() const override { return workspace_bytes_; }
  size_t reserve_bytes() const override { return reserve_bytes_; }
  RnnPlace place(int64_t part, int64_t gate, bool recurrent) const override {
    return places_.at(IndexOf(part, gate, recurrent));
  }

  void Forward(const Device& device, std::span<const int32_t> lengths,
               const RnnForwardArguments& a) const override {
    std::optional<Sequences> own;
    const Sequences& sequences = lengths.empty() ? whole_ : own.emplace(p_, lengths);
    // Lengths in device memory are null: since 8.9.1, cuDNN takes those of the descriptors.
    CheckCudnn(Rnn().Forward(HandleOn(device), rnn_.get(), Mode(), nullptr, sequences.x.get(), a.x,
                             sequences.y.get(), a.y, state_.get(), a.hx, a.hy, CellState(), a.cx,
                             a.cy, weight_bytes_, a.weights, workspace_bytes_, a.workspace,
                             reserve_bytes_, a.reserve),
               "run a recurrent network");
  }

  void Backward(const Device& device, std::span<const int32_t> lengths,
                const RnnBackwardArguments& a) const override {
    std::optional<Sequences> own;
    const Sequences& sequences = lengths.empty() ? whole_ : own.emplace(p_, lengths);
    const cudnnHandle_t handle = HandleOn(device);
    CheckCudnn(Rnn().BackwardData(handle, rnn_.get(), nullptr, sequences.y.get(), a.y, a.dy,
                                  sequences.x.get(), a.dx, state_.get(), a.hx, a.dhy, a.dhx,
                                  CellState(), a.cx, a.dcy, a.dcx, weight_bytes_, a.weights,
                                  workspace_bytes_, a.workspace, reserve_bytes_, a.reserve),
               "run a recurrent network backwards");
    // The order matters: BackwardWeights reads what BackwardData left in the reserve.
    CheckCudnn(
        Rnn().BackwardWeights(handle, rnn_.get(), CUDNN_WGRAD_MODE_ADD, nullptr, sequences.x.get(),
                              a.x, state_.get(), a.hx, sequences.y.get(), a.y, weight_bytes_,
                              a.dweights, workspace_bytes_, a.workspace, reserve_bytes_, a.reserve),
        "add up the weights' gradients of a recurrent network");
  }

 private:
  cudnnForwardMode_t Mode() const {
    return p_.training ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE;
  }
  cudnnTensorDescriptor_t CellState() const {
    return p_.mode == RnnMode::kLstm ? state_.get() : nullptr;
  }
  static cudnnHandle_t HandleOn(const Device& device) {
    const cuda::Stream stream = cuda::StreamOf(device);  // makes this GPU current
    const cudnnHandle_t handle = CudnnHandle();
    CheckCudnn(Cudnn().SetStream(handle, stream), "set the stream");
    return handle;
  }
  size_t IndexOf(int64_t part, int64_t gate, bool recurrent) const {
    const int64_t gates = GatesOf(p_.mode);
    return static_cast<size_t>((2 * part + (recurrent ? 1 : 0)) * gates + gate);
  }

  void FindPlaces(cudnnHandle_t handle) {
    const int gates = GatesOf(p_.mode);
    const int64_t element = static_cast<int64_t>(SizeOf(p_.dtype));
    // cuDNN only adds offsets to this address. It must not be null, because null results mean
    // missing weights.
    char* const base = reinterpret_cast<char*>(uintptr_t{1} << 20);
    const TensorDescriptor matrix, bias;
    for (int32_t part = 0; part < p_.layers * p_.directions; ++part)
      for (int32_t id = 0; id < 2 * gates; ++id) {  // of the input, then of the hidden state
        void *matrix_at = nullptr, *bias_at = nullptr;
        CheckCudnn(Rnn().GetWeightParams(handle, rnn_.get(), part, weight_bytes_, base, id,
                                         matrix.get(), &matrix_at, bias.get(), &bias_at),
                   "get the position of weights");
        const int64_t inputs = id >= gates            ? p_.hidden
                               : part < p_.directions ? p_.input
                                                      : p_.directions * p_.hidden;
        CheckSize(matrix, matrix_at, p_.hidden * inputs);
        if (p_.bias) CheckSize(bias, bias_at, p_.hidden);
        places_.push_back({(static_cast<char*>(matrix_at) - base) / element,
                           p_.bias ? (static_cast<char*>(bias_at) - base) / element : -1});
      }
  }

  static void CheckSize(const TensorDescriptor& descriptor, const void* address, int64_t size) {
    cudnnDataType_t type{};
    int rank = 0;
    std::array<int, 3> dims{}, strides{};
    CheckCudnn(Rnn().GetTensor(descriptor.get(), 3, &type, &rank, dims.data(), strides.data()),
               "get the size of weights");
    const int64_t found = int64_t{dims[0]} * dims[1] * dims[2];
    if (!address || found != size)
      throw std::runtime_error("cuDNN: " + std::to_string(size) +
                               " weights were expected, but it has " + std::to_string(found));
  }

  const RnnProblem p_;
  Owned<cudnnDropoutDescriptor_t> dropout_;
  Owned<cudnnRNNDescriptor_t> rnn_;
  TensorDescriptor state_;
  Sequences whole_;
  size_t workspace_bytes_ = 0, reserve_bytes_ = 0, weight_bytes_ = 0;
  std::vector<RnnPlace> places_;
};

}  // namespace

std::shared_ptr<const RnnNetwork> NewRnnNetwork(const RnnProblem& problem) {
  return std::make_shared<CudnnNetwork>(problem);
}

}  // namespace singa::cudnn

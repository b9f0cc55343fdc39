#pragma once

// What the kernels of this folder ask of cuDNN: which engines do a convolution or a batch norm, and
// one of them made ready. nvidia/ answers with cuDNN's graph API, emulated/ with loops on the host,
// so that all that is decided above this interface is tested without a GPU.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "backend/cudnn/library/executable.h"
#include "model/operation/conv_spec.h"
#include "singa/core/dtype.h"

namespace singa::cudnn {

/// Sizes along N, C, H, W (filters: out, in / group, H, W) and the distance of neighbours in
/// elements.
struct DnnTensor {
  std::array<int64_t, 4> dims{};
  std::array<int64_t, 4> strides{};
  bool operator==(const DnnTensor&) const = default;
};

/// A convolution as cuDNN sees it. Products and sums are float32, whatever the storage. Arguments,
/// in the operation's order: forward x, w [, b] [, add], y [, sums, sums of squares]; input
/// gradient dy, w, dx; filter gradient dy, x, dw.
struct ConvProblem {
  ConvPass pass = ConvPass::kForward;  ///< not kBackwardB
  DType dtype = kFloat32;
  DnnTensor x, w, y;  ///< of the forward pass; of their gradients in the others
  std::array<int64_t, 2> stride{}, dilation{}, before{}, after{};
  // Forward: y = relu(conv(x, w) + b + add), all stored in `dtype`.
  bool bias = false;
  bool add = false;  ///< lies as y
  bool relu = false;
  /// Of y's values and of their squares, for each channel, in float32.
  bool statistics = false;
  /// All tensors but the statistics begin at multiples of so many bytes.
  int alignment = 16;

  bool fused() const { return bias || add || relu; }
  bool operator==(const ConvProblem&) const = default;
};

/// Images begin at multiples of so many bytes: they lie with channels last, and are no views.
inline constexpr int kNormImageAlignment = 16;

/// Batch norm in training as cuDNN sees it. Whatever there is one of for each channel is float32,
/// and so are sums. Arguments: forward x, scale, bias [, add], mean, inverse deviation, y; backward
/// dy, x, scale, mean, inverse deviation, dscale, dbias, dx.
struct NormProblem {
  bool backward = false;
  DType dtype = kFloat32;  ///< of the images
  DnnTensor x;             ///< all images lie as it does
  // Forward: y = relu((x − mean) · inverse deviation · scale + bias + add), where the inverse
  // deviation is 1 / sqrt(biased variance + epsilon).
  float epsilon = 0;
  bool add = false;
  bool relu = false;
  bool operator==(const NormProblem&) const = default;
};

using DnnProblem = std::variant<ConvProblem, NormProblem>;

/// One way to do it: an engine of cuDNN's with its knobs set.
struct Engine {
  std::string name;  ///< "eng24 k2=6 k13=1": the same in every process with this cuDNN
  size_t workspace = 0;
  bool tensor_cores = false;
  bool rounds_inputs = false;  ///< to a narrower type than they are stored in
  bool rounds_sums = false;    ///< adds up in a narrower type than float32
  bool transforms = false;     ///< Winograd's method or Fourier transforms: errors spread
  bool deterministic = true;
  std::shared_ptr<const void> config = nullptr;  ///< the library's own
};

class DnnLibrary {
 public:
  virtual ~DnnLibrary() = default;
  /// Why it cannot be used, in a sentence that says what to install; empty where it can be.
  virtual std::string Problem() = 0;
  /// "cuDNN 9.28.0"
  virtual std::string Version() = 0;
  // For the GPU that is the calling thread's.
  /// All engines that do it, best first by the library's own judgement; none where it has no
  /// engine. Raises std::runtime_error where the library fails.
  virtual std::vector<Engine> Engines(const DnnProblem& problem) = 0;
  /// Raises std::runtime_error where the engine turns out not to do it.
  virtual std::shared_ptr<const Executable> Build(const DnnProblem& problem,
                                                  const Engine& engine) = 0;
};

/// That of this build: cuDNN, or the host's.
DnnLibrary& Dnn();

}  // namespace singa::cudnn

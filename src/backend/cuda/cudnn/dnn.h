#pragma once

// The interface of this folder's kernels to cuDNN: it lists engines for a convolution or batch
// norm, and builds one. nvidia/ implements it with cuDNN's graph API, test/emulated_gpu with loops
// on the host, so that the code above this interface can be tested without a GPU.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "backend/cuda/cudnn/executable.h"
#include "model/operation/conv/spec.h"
#include "singa/core/dtype.h"

namespace singa::cudnn {

/// Sizes and strides, in elements, along N, C, H, W (for filters: out, in / group, H, W).
struct DnnTensor {
  std::array<int64_t, 4> dims{};
  std::array<int64_t, 4> strides{};
  bool operator==(const DnnTensor&) const = default;
};

/// A convolution for cuDNN. Products and sums are float32 for every storage type. Arguments in the
/// operation's order: forward x, w [, b] [, add], y [, sums, sums of squares]; input gradient dy,
/// w, dx; filter gradient dy, x, dw.
struct ConvProblem {
  ConvPass pass = ConvPass::kForward;  ///< not kBackwardB
  DType dtype = kFloat32;
  DnnTensor x, w, y;  ///< of the forward pass, or their gradients
  std::array<int64_t, 2> stride{}, dilation{}, before{}, after{};
  // Forward: y = relu(conv(x, w) + b + add), all stored in `dtype`.
  bool bias = false;
  bool add = false;  ///< has y's layout
  bool relu = false;
  /// Sums of y's values and of their squares, for each channel, in float32.
  bool statistics = false;
  /// All tensors except the statistics are aligned to this many bytes.
  int alignment = 16;

  bool fused() const { return bias || add || relu; }
  bool operator==(const ConvProblem&) const = default;
};

/// Alignment of images in bytes. They are channels-last, so they are not views.
inline constexpr int kNormImageAlignment = 16;

/// A training batch norm for cuDNN. Sums and per-channel tensors are float32. Arguments: forward x,
/// scale, bias [, add], mean, inverse deviation, y; backward dy, x, scale, mean, inverse deviation,
/// dscale, dbias, dx.
struct NormProblem {
  bool backward = false;
  DType dtype = kFloat32;  ///< of the images
  DnnTensor x;             ///< all images have its strides
  // Forward: y = relu((x − mean) · inverse deviation · scale + bias + add), where the inverse
  // deviation is 1 / sqrt(biased variance + epsilon).
  float epsilon = 0;
  bool add = false;
  bool relu = false;
  bool operator==(const NormProblem&) const = default;
};

using DnnProblem = std::variant<ConvProblem, NormProblem>;

/// An engine of cuDNN with values for its knobs.
struct Engine {
  std::string name;  ///< "eng24 k2=6 k13=1": the same in every process with this cuDNN
  size_t workspace = 0;
  bool tensor_cores = false;
  bool rounds_inputs = false;  ///< to a narrower type than their storage
  bool rounds_sums = false;    ///< accumulates in a narrower type than float32
  bool transforms = false;     ///< uses Winograd or Fourier transforms, which spread errors
  bool deterministic = true;
  std::string defect = {};  ///< why its results are wrong; empty when none is known
  std::shared_ptr<const void> config = nullptr;  ///< the library's configuration object
};

class DnnLibrary {
 public:
  virtual ~DnnLibrary() = default;
  /// Why the library cannot be used and what to install; empty if it can be used.
  virtual std::string Problem() = 0;
  /// "cuDNN 9.28.0"
  virtual std::string Version() = 0;
  // The following are for the calling thread's current GPU.
  /// All engines that support the problem, best first in cuDNN's estimate; empty if there is none.
  /// Throws std::runtime_error if the library fails.
  virtual std::vector<Engine> Engines(const DnnProblem& problem) = 0;
  /// Throws std::runtime_error if the engine does not support the problem after all.
  virtual std::shared_ptr<const Executable> Build(const DnnProblem& problem,
                                                  const Engine& engine) = 0;
};

/// The library of this build: cuDNN, or its emulation on the host.
DnnLibrary& Dnn();

}  // namespace singa::cudnn

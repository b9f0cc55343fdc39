// Found with cuDNN 9.14 on an H200 by comparing every engine with `reference`, on 6,667 drawn calls
// in float32 and bfloat16 (docs/developers/cuda.md, "Engines that are wrong"). Other versions of
// cuDNN are taken to number their engines likewise.

#include "backend/cuda/cudnn/defects.h"

#include <charconv>
#include <string>

namespace singa::cudnn {
namespace {

/// The number behind `word` in an engine's name, such as 3 for " k0=" in "eng47 k0=3 k2=1"; 0 where
/// there is none.
int NumberAfter(std::string_view name, std::string_view word) {
  const size_t at = name.find(word);
  int number = 0;
  if (at != std::string_view::npos)
    std::from_chars(name.data() + at + word.size(), name.data() + name.size(), number);
  return number;
}

const char* DefectOf(const ConvProblem& p, std::string_view name) {
  const int engine = NumberAfter(name, "eng");
  const bool narrow = p.dtype == kFloat16 || p.dtype == kBFloat16;
  const bool uneven = p.before != p.after;
  constexpr const char* kUneven = "takes the padding at the start for that at the end, too";
  switch (p.pass) {
    case ConvPass::kForward:
      if (engine == 39 && narrow && (p.bias || p.add || p.relu))
        return "rounds the convolution before it adds, and its ReLU makes 0 of NaN";
      break;
    case ConvPass::kBackwardX:
      if (engine == 50 && uneven) return kUneven;
      break;
    case ConvPass::kBackwardW:
      if ((engine == 1 || engine == 17 || engine == 18) && uneven) return kUneven;
      if (engine == 17 && (p.w.dims[2] > 3 || p.w.dims[3] > 3))
        return "has errors of up to a hundredth with filters of 5 x 5";
      if (engine == 17 && (p.y.dims[2] < 4 || p.y.dims[3] < 4))
        return "has errors of 5e-5 with images that are smaller than its tiles";
      if (engine == 47 && narrow && NumberAfter(name, " k0=") > 1)
        return "rounds the parts of a sum to 16 bits";
      if (engine == 62 && narrow && (p.w.dims[0] % 8 != 0 || p.w.dims[1] % 8 != 0))
        return "has errors of a third with 31 channels";
      break;
    case ConvPass::kBackwardB:
      break;
  }
  return nullptr;
}

const char* DefectOf(const NormProblem&, std::string_view) { return nullptr; }

}  // namespace

const char* DefectOf(const DnnProblem& problem, std::string_view engine) {
  return std::visit([&](const auto& p) { return DefectOf(p, engine); }, problem);
}

}  // namespace singa::cudnn

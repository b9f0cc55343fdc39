#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "backend/cudnn/emulated/queue.h"
#include "backend/cudnn/library/emulated/element.h"
#include "backend/cudnn/library/emulated/libraries.h"

namespace singa::cudnn {
namespace emulated {
namespace {

using Index = std::array<int64_t, 4>;

int64_t PlaceOf(const DnnTensor& t, const Index& i) {
  int64_t place = 0;
  for (size_t axis = 0; axis < 4; ++axis) place += i[axis] * t.strides[axis];
  return place;
}

int64_t SpanOf(const DnnTensor& t) {
  int64_t last = 0;
  for (size_t axis = 0; axis < 4; ++axis) last += (t.dims[axis] - 1) * t.strides[axis];
  return last + 1;
}

/// Calls f(place in x, place in w, place in y) for every product of a convolution.
template <class F>
void ForEachProduct(const ConvProblem& p, const F& f) {
  const Index& y = p.y.dims;
  const int64_t in = p.w.dims[1], out = y[1] / (p.x.dims[1] / in);  // channels of one group
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t k = 0; k < y[1]; ++k)
      for (int64_t oh = 0; oh < y[2]; ++oh)
        for (int64_t ow = 0; ow < y[3]; ++ow)
          for (int64_t c = 0; c < in; ++c)
            for (int64_t r = 0; r < p.w.dims[2]; ++r)
              for (int64_t s = 0; s < p.w.dims[3]; ++s) {
                const int64_t h = oh * p.stride[0] - p.before[0] + r * p.dilation[0];
                const int64_t w = ow * p.stride[1] - p.before[1] + s * p.dilation[1];
                if (h < 0 || w < 0 || h >= p.x.dims[2] || w >= p.x.dims[3]) continue;
                f(PlaceOf(p.x, {n, k / out * in + c, h, w}), PlaceOf(p.w, {k, c, r, s}),
                  PlaceOf(p.y, {n, k, oh, ow}));
              }
}

void Convolve(const ConvProblem& p, bool tf32, const std::vector<void*>& arguments) {
  const auto load = [&](const void* data, int64_t i) {
    const double value = Load(data, p.dtype, i);
    return tf32 ? ToTf32(value) : value;
  };
  const void *a = arguments[0], *b = arguments[1];
  void* const result = arguments.back();
  const DnnTensor& made = p.pass == ConvPass::kForward     ? p.y
                          : p.pass == ConvPass::kBackwardX ? p.x
                                                           : p.w;
  std::vector<double> sums(static_cast<size_t>(SpanOf(made)));
  ForEachProduct(p, [&](int64_t x, int64_t w, int64_t y) {
    switch (p.pass) {
      case ConvPass::kForward:
        sums[static_cast<size_t>(y)] += load(a, x) * load(b, w);
        break;
      case ConvPass::kBackwardX:
        sums[static_cast<size_t>(x)] += load(a, y) * load(b, w);
        break;
      default:
        sums[static_cast<size_t>(w)] += load(a, y) * load(b, x);
        break;
    }
  });
  const Index& d = made.dims;
  for (int64_t i = 0; i < d[0] * d[1] * d[2] * d[3]; ++i) {
    const Index at = {i / (d[1] * d[2] * d[3]), i / (d[2] * d[3]) % d[1], i / d[3] % d[2],
                      i % d[3]};
    const int64_t place = PlaceOf(made, at);
    double value = sums[static_cast<size_t>(place)];
    if (p.bias) value += Load(arguments[2], p.dtype, at[1]);
    if (p.add) value += Load(arguments[p.bias ? 3 : 2], p.dtype, place);
    if (p.relu) value = std::max(value, 0.0);
    Store(result, p.dtype, place, value);
  }
}

class Convolution final : public Executable {
 public:
  Convolution(const ConvProblem& problem, const Engine& engine)
      : problem_(problem), engine_(engine) {}
  void Run(const Device& device, std::span<void* const> arguments, void* workspace) const override {
    CheckAlignment(arguments, problem_.alignment, workspace);
    cuda::emulated::Enqueue(
        cuda::StreamOf(device),
        [problem = problem_, tf32 = engine_.tensor_cores && problem_.dtype == kFloat32,
         bytes = engine_.workspace, workspace,
         held = std::vector<void*>(arguments.begin(), arguments.end())] {
          if (bytes) std::memset(workspace, 0x5a, bytes);  // all of it is ours
          Convolve(problem, tf32, held);
        });
  }
  size_t workspace_bytes() const override { return engine_.workspace; }

 private:
  ConvProblem problem_;
  Engine engine_;
};

class HostDnn final : public DnnLibrary {
 public:
  std::string Problem() override { return Dnn().problem; }
  std::string Version() override { return "emulation 1"; }
  std::vector<Engine> Engines(const ConvProblem& problem) override {
    Dnn().asked.push_back(problem);
    return Dnn().engines;
  }
  std::shared_ptr<const Executable> Build(const ConvProblem& problem,
                                          const Engine& engine) override {
    const std::vector<std::string>& broken = Dnn().broken;
    if (std::find(broken.begin(), broken.end(), engine.name) != broken.end())
      throw std::runtime_error("engine " + engine.name + " is broken");
    Dnn().built.push_back(engine.name);
    Dnn().built_on.push_back(cuda::emulated::CurrentGpu());
    return std::make_shared<Convolution>(problem, engine);
  }
};

std::vector<Engine> AllEngines() {
  return {
      {.name = "eng7 k2=1", .workspace = 64, .tensor_cores = true},
      {.name = "eng6", .workspace = 4096, .deterministic = false},
      {.name = "eng5 k2=1", .workspace = 1 << 20},
      {.name = "eng5 k2=3", .workspace = 2048},
      {.name = "eng4", .workspace = 256, .transforms = true},
      {.name = "eng0"},
  };
}

}  // namespace

DnnState& Dnn() {
  static auto& state = *new DnnState{.engines = AllEngines()};
  return state;
}

void Reset() {
  Dnn() = {.engines = AllEngines()};
  Blas() = {};
}

}  // namespace emulated

DnnLibrary& Dnn() {
  static auto& library = *new emulated::HostDnn;
  return library;
}

}  // namespace singa::cudnn

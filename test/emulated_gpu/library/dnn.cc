#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "emulated_gpu/library/element.h"
#include "emulated_gpu/library/libraries.h"
#include "emulated_gpu/library/norm.h"
#include "emulated_gpu/queue.h"

namespace singa::cudnn {
namespace emulated {
namespace {

/// Calls f(number, channel, offset in memory) for each element, numbered in row-major order.
template <class F>
void ForEachElement(const DnnTensor& t, const F& f) {
  size_t number = 0;
  for (int64_t n = 0; n < t.dims[0]; ++n)
    for (int64_t c = 0; c < t.dims[1]; ++c)
      for (int64_t h = 0; h < t.dims[2]; ++h)
        for (int64_t w = 0; w < t.dims[3]; ++w)
          f(number++, c, n * t.strides[0] + c * t.strides[1] + h * t.strides[2] + w * t.strides[3]);
}

/// Reads factors in row-major order.
std::vector<double> Read(const DnnTensor& t, DType dtype, bool tf32, const void* data) {
  std::vector<double> values;
  ForEachElement(t, [&](size_t, int64_t, int64_t place) {
    const double value = Load(data, dtype, place);
    values.push_back(tf32 ? ToTf32(value) : value);
  });
  return values;
}

/// The outputs [first, last) along an axis for which `tap` is inside the input: o·stride + start.
struct Seen {
  int64_t first, last, start;
  Seen(const ConvProblem& p, size_t axis, int64_t tap)
      : start(tap * p.dilation[axis] - p.before[axis]) {
    const int64_t stride = p.stride[axis], left = p.x.dims[2 + axis] - 1 - start;
    first = start < 0 ? (stride - 1 - start) / stride : 0;
    last = left < 0 ? 0 : std::min(p.y.dims[2 + axis], left / stride + 1);
  }
};

/// Accumulates the products of a convolution of row-major images and filters. One of x, w and y is
/// the result.
void AddProducts(const ConvProblem& p, double* x, double* w, double* y) {
  const auto [batch, channels, height, width] = p.x.dims;
  const auto [filters, in, kernel_h, kernel_w] = p.w.dims;
  const int64_t out_h = p.y.dims[2], out_w = p.y.dims[3], step = p.stride[1];
  const int64_t of_group = filters / (channels / in);
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t k = 0; k < filters; ++k)
      for (int64_t c = 0; c < in; ++c)
        for (int64_t r = 0; r < kernel_h; ++r)
          for (int64_t s = 0; s < kernel_w; ++s) {
            const Seen rows(p, 0, r), columns(p, 1, s);
            const int64_t channel = n * channels + k / of_group * in + c;
            double& result = w[((k * in + c) * kernel_h + r) * kernel_w + s];
            double weight = result;
            for (int64_t oh = rows.first; oh < rows.last; ++oh) {
              double* const from =
                  x + (channel * height + oh * p.stride[0] + rows.start) * width + columns.start;
              double* const to = y + ((n * filters + k) * out_h + oh) * out_w;
              switch (p.pass) {
                case ConvPass::kForward:
                  for (int64_t ow = columns.first; ow < columns.last; ++ow)
                    to[ow] += weight * from[ow * step];
                  break;
                case ConvPass::kBackwardX:
                  for (int64_t ow = columns.first; ow < columns.last; ++ow)
                    from[ow * step] += weight * to[ow];
                  break;
                default:
                  for (int64_t ow = columns.first; ow < columns.last; ++ow)
                    weight += from[ow * step] * to[ow];
                  break;
              }
            }
            result = weight;
          }
}

void Convolve(const ConvProblem& p, bool tf32, const std::vector<void*>& arguments) {
  const auto read = [&](const DnnTensor& t, size_t i) {
    return Read(t, p.dtype, tf32, arguments[i]);
  };
  const auto zeros = [](const DnnTensor& t) {
    return std::vector<double>(static_cast<size_t>(t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3]));
  };
  const bool forward = p.pass == ConvPass::kForward, data = p.pass == ConvPass::kBackwardX;
  // x, w -> y; dy, w -> dx; dy, x -> dw
  std::vector<double> x = forward ? read(p.x, 0) : data ? zeros(p.x) : read(p.x, 1);
  std::vector<double> w = forward || data ? read(p.w, 1) : zeros(p.w);
  std::vector<double> y = forward ? zeros(p.y) : read(p.y, 0);
  AddProducts(p, x.data(), w.data(), y.data());
  const std::vector<double>& sums = forward ? y : data ? x : w;
  const size_t inputs = 2 + p.bias + p.add;
  void* const result = arguments[inputs];
  std::vector<float> statistics(p.statistics ? 2 * static_cast<size_t>(p.y.dims[1]) : 0);
  ForEachElement(forward ? p.y
                 : data  ? p.x
                         : p.w,
                 [&](size_t i, int64_t channel, int64_t place) {
                   double value = sums[i];
                   if (p.bias) value += Load(arguments[2], p.dtype, channel);
                   if (p.add) value += Load(arguments[p.bias ? 3 : 2], p.dtype, place);
                   if (p.relu) value = std::max(value, 0.0);
                   Store(result, p.dtype, place, value);
                   if (!p.statistics) return;
                   // Sums values before rounding, in float32: the lowest accuracy that is allowed.
                   float* const of = &statistics[2 * static_cast<size_t>(channel)];
                   of[0] += static_cast<float>(value);
                   of[1] += static_cast<float>(value) * static_cast<float>(value);
                 });
  for (size_t i = 0; i < statistics.size(); ++i)
    Store(arguments[inputs + 1 + i % 2], kFloat32, static_cast<int64_t>(i / 2), statistics[i]);
}

class Convolution final : public Executable {
 public:
  Convolution(const ConvProblem& problem, const Engine& engine)
      : problem_(problem), engine_(engine) {}
  void Run(const Device& device, std::span<void* const> arguments, void* workspace) const override {
    const size_t statistics = problem_.statistics ? 2 : 0;
    CheckAlignment(arguments.first(arguments.size() - statistics), problem_.alignment, workspace);
    CheckAlignment(arguments.last(statistics), sizeof(float), workspace);
    cuda::emulated::Enqueue(
        cuda::StreamOf(device),
        [problem = problem_, tf32 = engine_.tensor_cores && problem_.dtype == kFloat32,
         bytes = engine_.workspace, workspace,
         held = std::vector<void*>(arguments.begin(), arguments.end())] {
          if (bytes) std::memset(workspace, 0x5a, bytes);  // the engine may use all of it
          Convolve(problem, tf32, held);
        });
  }
  size_t workspace_bytes() const override { return engine_.workspace; }

 private:
  ConvProblem problem_;
  Engine engine_;
};

/// The engines that support the problem.
std::vector<Engine> EnginesOf(const ConvProblem& p) {
  std::vector<Engine> engines = Dnn().engines;
  if (!p.statistics) return engines;
  // Only tensor cores do, on channels-last images, and for filters with several channels.
  if (p.add || p.relu || p.y.strides[1] != 1 || p.w.dims[1] == 1) return {};
  std::erase_if(engines, [](const Engine& engine) { return !engine.tensor_cores; });
  return engines;
}

class HostDnn final : public DnnLibrary {
 public:
  std::string Problem() override { return Dnn().problem; }
  std::string Version() override { return "emulation 1"; }
  std::vector<Engine> Engines(const DnnProblem& problem) override {
    if (const auto* conv = std::get_if<ConvProblem>(&problem)) {
      CheckNotEmpty({conv->x, conv->w, conv->y});
      Dnn().asked.push_back(*conv);
      return EnginesOf(*conv);
    }
    const auto& norm = std::get<NormProblem>(problem);
    CheckNotEmpty({norm.x});
    Dnn().norms.push_back(norm);
    return HasNorm(norm) ? Dnn().engines : std::vector<Engine>();
  }
  std::shared_ptr<const Executable> Build(const DnnProblem& problem,
                                          const Engine& engine) override {
    const std::vector<std::string>& broken = Dnn().broken;
    if (std::find(broken.begin(), broken.end(), engine.name) != broken.end())
      throw std::runtime_error("engine " + engine.name + " is broken");
    Dnn().built.push_back(engine.name);
    Dnn().built_on.push_back(cuda::emulated::CurrentGpu());
    if (const auto* conv = std::get_if<ConvProblem>(&problem))
      return std::make_shared<Convolution>(*conv, engine);
    return NewNorm(std::get<NormProblem>(problem), engine);
  }

 private:
  static void CheckNotEmpty(std::initializer_list<DnnTensor> tensors) {
    for (const DnnTensor& t : tensors)
      if (*std::min_element(t.dims.begin(), t.dims.end()) < 1)
        throw std::runtime_error("cuDNN takes no empty tensor");
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

// Batch norm as in cuDNN: statistics are rounded to float, and the rest is computed from them.

#include "emulated_gpu/library/norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "emulated_gpu/library/element.h"
#include "emulated_gpu/queue.h"

namespace singa::cudnn::emulated {
namespace {

/// Calls f(offset in memory) for each value of channel c.
template <class F>
void ForChannel(const DnnTensor& t, int64_t c, const F& f) {
  for (int64_t n = 0; n < t.dims[0]; ++n)
    for (int64_t h = 0; h < t.dims[2]; ++h)
      for (int64_t w = 0; w < t.dims[3]; ++w)
        f(n * t.strides[0] + c * t.strides[1] + h * t.strides[2] + w * t.strides[3]);
}

double CountOf(const DnnTensor& t) {
  return static_cast<double>(t.dims[0] * t.dims[2] * t.dims[3]);
}

void Forward(const NormProblem& p, const std::vector<void*>& arguments) {
  size_t next = 0;
  const void *x = arguments[next++], *scale = arguments[next++], *bias = arguments[next++];
  const void* add = p.add ? arguments[next++] : nullptr;
  void *mean = arguments[next++], *inverse = arguments[next++], *y = arguments[next++];
  for (int64_t c = 0; c < p.x.dims[1]; ++c) {
    double sum = 0, squares = 0;
    ForChannel(p.x, c, [&](int64_t i) { sum += Load(x, p.dtype, i); });
    sum /= CountOf(p.x);
    ForChannel(p.x, c, [&](int64_t i) {
      const double d = Load(x, p.dtype, i) - sum;
      squares += d * d;
    });
    Store(mean, kFloat32, c, sum);
    Store(inverse, kFloat32, c, 1 / std::sqrt(squares / CountOf(p.x) + p.epsilon));
    const double factor = Load(inverse, kFloat32, c) * Load(scale, kFloat32, c);
    ForChannel(p.x, c, [&](int64_t i) {
      double value = (Load(x, p.dtype, i) - Load(mean, kFloat32, c)) * factor;
      value += Load(bias, kFloat32, c);
      if (add) value += Load(add, p.dtype, i);
      Store(y, p.dtype, i, p.relu && value <= 0 ? 0 : value);
    });
  }
}

void Backward(const NormProblem& p, const std::vector<void*>& arguments) {
  const void *dy = arguments[0], *x = arguments[1], *scale = arguments[2];
  void *dscale = arguments[5], *dbias = arguments[6], *dx = arguments[7];
  for (int64_t c = 0; c < p.x.dims[1]; ++c) {
    const double mean = Load(arguments[3], kFloat32, c), inverse = Load(arguments[4], kFloat32, c);
    const auto normal = [&](int64_t i) { return (Load(x, p.dtype, i) - mean) * inverse; };
    double sum = 0, products = 0;
    ForChannel(p.x, c, [&](int64_t i) {
      sum += Load(dy, p.dtype, i);
      products += Load(dy, p.dtype, i) * normal(i);
    });
    Store(dbias, kFloat32, c, sum);
    Store(dscale, kFloat32, c, products);
    sum /= CountOf(p.x);
    products /= CountOf(p.x);
    const double factor = Load(scale, kFloat32, c) * inverse;
    ForChannel(p.x, c, [&](int64_t i) {
      Store(dx, p.dtype, i, factor * (Load(dy, p.dtype, i) - sum - normal(i) * products));
    });
  }
}

class Norm final : public Executable {
 public:
  Norm(const NormProblem& problem, const Engine& engine)
      : problem_(problem), workspace_(engine.workspace) {}
  void Run(const Device& device, std::span<void* const> arguments, void* workspace) const override {
    CheckPlaces(arguments, workspace);
    cuda::emulated::Enqueue(cuda::StreamOf(device),
                            [problem = problem_, bytes = workspace_, workspace,
                             held = std::vector<void*>(arguments.begin(), arguments.end())] {
                              if (bytes) std::memset(workspace, 0x5a, bytes);  // may all be used
                              problem.backward ? Backward(problem, held) : Forward(problem, held);
                            });
  }
  size_t workspace_bytes() const override { return workspace_; }

 private:
  void CheckPlaces(std::span<void* const> arguments, const void* workspace) const {
    std::vector<size_t> images = {0, arguments.size() - 1};
    if (problem_.backward) images.push_back(1);
    if (problem_.add) images.push_back(3);
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool image = std::find(images.begin(), images.end(), i) != images.end();
      CheckAlignment(arguments.subspan(i, 1), image ? kNormImageAlignment : int{sizeof(float)},
                     workspace);
    }
  }

  NormProblem problem_;
  size_t workspace_;
};

}  // namespace

bool HasNorm(const NormProblem& problem) {
  const auto vector = kNormImageAlignment / static_cast<int64_t>(SizeOf(problem.dtype));
  return problem.x.strides[1] == 1 && problem.x.dims[1] % vector == 0 &&
         (!problem.add || problem.relu);
}

std::shared_ptr<const Executable> NewNorm(const NormProblem& problem, const Engine& engine) {
  return std::make_shared<Norm>(problem, engine);
}

}  // namespace singa::cudnn::emulated

// The overhead of an operation in C++, on tensors of a few elements: finding its plan in the cache,
// allocating the result, and calling the kernel. A Graph that replays the same operations only
// calls the kernel. counts.py preloads count_start() and count_stop(), which count the instructions
// of each chain of calls.

#include <dlfcn.h>
#include <singa/singa.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using singa::Tensor;
using Operation = std::function<Tensor(const Tensor&)>;

constexpr int kChain = 200;

void Count(const std::string& name, const std::function<void()>& chain) {
  static const auto start = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "count_start"));
  static const auto stop =
      reinterpret_cast<void (*)(const char*)>(dlsym(RTLD_DEFAULT, "count_stop"));
  chain();  // finds the plans
  if (start == nullptr || stop == nullptr) return;
  const std::string label = std::to_string(kChain) + " C++: " + name;
  start();
  chain();
  stop(label.c_str());
}

Tensor Chain(Tensor y, const Operation& operation) {
  for (int i = 0; i < kChain; ++i) y = operation(y);
  return y;
}

void Measure(const std::string& name, const Tensor& x, const Operation& operation) {
  Count(name + ", executed", [&] { Chain(x, operation); });
  const auto arena = std::make_shared<singa::Arena>(x.device());
  std::vector<std::shared_ptr<singa::Recording>> recordings;
  for (int i = 0; i < 2; ++i) {
    recordings.push_back(std::make_shared<singa::Recording>(x.device(), arena));
    recordings[i]->Start({x});
    const Tensor y = Chain(x, operation);
    recordings[i]->Finish({y});
  }
  singa::Graph graph(recordings[1]);
  Count(name + ", replayed", [&] { graph.Replay({x}); });
}

}  // namespace

int main() {
  singa::SetNumThreads(1);
  const Tensor number = singa::Full({1}, 1);
  Measure("add", number,
          [&](const Tensor& y) { return singa::Binary(singa::BinaryOp::kAdd, y, number); });
  Measure("relu", number, [](const Tensor& y) { return singa::Unary(singa::UnaryOp::kRelu, y); });
  const Tensor weights = singa::Full({4, 4}, 0.25);
  Measure("matrix product", singa::Full({1, 4}, 1),
          [&](const Tensor& y) { return singa::MatMul(y, weights); });
  const Tensor image = singa::Full({1, 8, 2, 2}, 1);
  const singa::ConvHandle handle(image, {1, 1}, {1, 1}, {0, 0}, 8, 8, false);
  // In the layout of their gradient, like a network's parameters.
  const Tensor filters = singa::ConvBackwardW(image, image, handle);
  Measure("convolution", image,
          [&](const Tensor& y) { return singa::ConvForward(y, filters, Tensor(), handle); });
  // This operation reorders the filters.
  Measure("convolution's dx", image,
          [&](const Tensor& dy) { return singa::ConvBackwardX(dy, filters, handle); });
  return 0;
}

// Measures the overhead of an operation in C++, on tensors of a few elements: finding its plan in
// the cache, allocating the result, and calling the kernel. A Graph that replays the same
// operations only calls the kernel, so the difference is the cost of the first two.
//
//   dispatch_benchmark [REPEATS [OPERATION]]
//
// Prints nanoseconds per call of OPERATION, or of each operation: the minimum over repetitions of a
// chain of calls. counts.py counts the instructions of a chain.

#include <dlfcn.h>
#include <singa/singa.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace {

using singa::Tensor;
using Operation = std::function<Tensor(const Tensor&)>;

constexpr int kChain = 200;

double Nanoseconds(int repeats, const std::function<void()>& chain) {
  double least = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    chain();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    least = std::min(least, took.count() / kChain);
  }
  return least;
}

/// Runs `chain` once more if count_start() and count_stop() are loaded (counts.py preloads them).
void Count(const std::string& name, const std::function<void()>& chain) {
  const auto start = reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "count_start"));
  const auto stop = reinterpret_cast<void (*)(const char*)>(dlsym(RTLD_DEFAULT, "count_stop"));
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

struct Options {
  int repeats;
  std::string only;
};

void Measure(const std::string& name, const Tensor& x, const Operation& operation,
             const Options& options) {
  if (!options.only.empty() && options.only != name) return;
  const int repeats = options.repeats;
  const double executed = Nanoseconds(repeats, [&] { Chain(x, operation); });
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
  const double replayed = Nanoseconds(repeats, [&] { graph.Replay({x}); });
  Count(name + ", replayed", [&] { graph.Replay({x}); });
  std::printf("%-24s executed %7.0f   replayed %7.0f   difference %7.0f\n", name.c_str(), executed,
              replayed, executed - replayed);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options{argc > 1 ? std::max(1, std::atoi(argv[1])) : 200, argc > 2 ? argv[2] : ""};
  singa::SetNumThreads(1);
  const Tensor number = singa::Full({1}, 1);
  Measure(
      "add", number,
      [&](const Tensor& y) { return singa::Binary(singa::BinaryOp::kAdd, y, number); }, options);
  Measure(
      "relu", number, [](const Tensor& y) { return singa::Unary(singa::UnaryOp::kRelu, y); },
      options);
  const Tensor weights = singa::Full({4, 4}, 0.25);
  Measure(
      "matrix product", singa::Full({1, 4}, 1),
      [&](const Tensor& y) { return singa::MatMul(y, weights); }, options);
  const Tensor image = singa::Full({1, 8, 2, 2}, 1);
  const singa::ConvHandle handle(image, {1, 1}, {1, 1}, {0, 0}, 8, 8, false);
  // In the layout of their gradient, like a network's parameters.
  const Tensor filters = singa::ConvBackwardW(image, image, handle);
  Measure(
      "convolution", image,
      [&](const Tensor& y) { return singa::ConvForward(y, filters, Tensor(), handle); }, options);
  // This operation reorders the filters.
  Measure(
      "convolution's dx", image,
      [&](const Tensor& dy) { return singa::ConvBackwardX(dy, filters, handle); }, options);
  return 0;
}

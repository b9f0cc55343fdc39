// One loop for all recurrent networks. Weights are in cuDNN's order, all matrices before all
// biases, and each part starts at a multiple of kUnit elements. So the order agrees with
// RnnHandle's for some sizes only.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "backend/cuda/cudnn/rnn_network.h"
#include "emulated_gpu/library/element.h"
#include "emulated_gpu/library/libraries.h"
#include "emulated_gpu/queue.h"

namespace singa::cudnn {
namespace emulated {
namespace {

constexpr int64_t kUnit = 8;  // elements
constexpr size_t kWorkspace = 1024;
constexpr size_t kMostGates = 4;

int64_t GatesOf(RnnMode mode) { return mode == RnnMode::kLstm ? 4 : mode == RnnMode::kGru ? 3 : 1; }

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Geometry and offsets of weights.
struct Network {
  RnnProblem p;
  int64_t gates;
  std::vector<RnnPlace> places;
  int64_t weights = 0;  // elements

  explicit Network(const RnnProblem& problem) : p(problem), gates(GatesOf(problem.mode)) {
    const auto take = [&](int64_t count) {
      const int64_t place = weights;
      weights = (place + count + kUnit - 1) / kUnit * kUnit;
      return place;
    };
    for (int64_t part = 0; part < parts(); ++part)
      for (const bool recurrent : {false, true}) {
        const int64_t size = p.hidden * (recurrent ? p.hidden : inputs(part));
        const int64_t first = take(gates * size);
        for (int64_t gate = 0; gate < gates; ++gate) places.push_back({first + gate * size, -1});
      }
    if (!p.bias) return;
    for (size_t i = 0; i < places.size(); i += static_cast<size_t>(gates)) {
      const int64_t first = take(gates * p.hidden);
      for (int64_t gate = 0; gate < gates; ++gate)
        places[i + static_cast<size_t>(gate)].bias = first + gate * p.hidden;
    }
  }
  int64_t parts() const { return p.layers * p.directions; }
  int64_t inputs(int64_t part) const {
    return part < p.directions ? p.input : p.directions * p.hidden;
  }
  const RnnPlace& place(int64_t part, int64_t gate, bool recurrent) const {
    return places[static_cast<size_t>((2 * part + (recurrent ? 1 : 0)) * gates + gate)];
  }
  /// Numbers that are saved for each hidden unit at each step: activations of four gates (GRU's
  /// fourth is Rn·h + bn), the cell and the hidden state.
  static constexpr int64_t kKept = 6;
  enum Kept : int64_t { kCell = 4, kHidden = 5 };
  int64_t kept_size() const { return parts() * p.steps * p.batch * p.hidden * kKept; }
  int64_t kept(int64_t part, int64_t t, int64_t n, int64_t j, int64_t what) const {
    return (((part * p.steps + t) * p.batch + n) * p.hidden + j) * kKept + what;
  }
  int64_t state(int64_t part, int64_t n, int64_t j) const {
    return (part * p.batch + n) * p.hidden + j;
  }
  /// Offset in y, or in the input of the layer above.
  int64_t output(int64_t part, int64_t t, int64_t n, int64_t j) const {
    return ((t * p.batch + n) * p.directions + part % p.directions) * p.hidden + j;
  }
  /// The time of step s in a sequence of this length.
  int64_t time(int64_t part, int64_t s, int64_t length) const {
    return part % p.directions == 0 ? s : length - 1 - s;
  }

  double load(const void* data, int64_t i) const { return data ? Load(data, p.dtype, i) : 0; }
  /// Rounds a value to a 16-bit type, as if it was stored between steps.
  double stored(double value) const {
    if (p.dtype != kFloat16 && p.dtype != kBFloat16) return value;
    double memory = 0;  // for any type
    Store(&memory, p.dtype, 0, value);
    return Load(&memory, p.dtype, 0);
  }
  /// Rounds a factor as tensor cores do, if they are used.
  double factor(double value) const {
    return p.tf32 && p.dtype == kFloat32 ? ToTf32(value) : value;
  }
};

/// One pass over a network.
class Pass {
 public:
  Pass(const Network& network, const std::vector<int32_t>& lengths, const void* x,
       const void* weights, double* kept)
      : net_(network), p_(network.p), lengths_(lengths), x_(x), weights_(weights), kept_(kept) {}

 protected:
  int64_t length(int64_t n) const {
    return lengths_.empty() ? p_.steps : lengths_[static_cast<size_t>(n)];
  }
  double& kept(int64_t part, int64_t t, int64_t n, int64_t j, int64_t what) {
    return kept_[net_.kept(part, t, n, j, what)];
  }
  double weight(int64_t part, int64_t gate, bool recurrent, int64_t j, int64_t i) const {
    const int64_t width = recurrent ? p_.hidden : net_.inputs(part);
    return net_.factor(
        net_.load(weights_, net_.place(part, gate, recurrent).matrix + j * width + i));
  }
  double bias(int64_t part, int64_t gate, bool recurrent, int64_t j) const {
    return p_.bias ? net_.load(weights_, net_.place(part, gate, recurrent).bias + j) : 0;
  }
  /// Feature i of a layer's input.
  double input(int64_t part, int64_t t, int64_t n, int64_t i) {
    if (part < p_.directions) return net_.load(x_, (t * p_.batch + n) * p_.input + i);
    const int64_t below = (part / p_.directions - 1) * p_.directions + i / p_.hidden;
    return kept(below, t, n, i % p_.hidden, Network::kHidden);
  }

  const Network& net_;
  const RnnProblem& p_;
  const std::vector<int32_t>& lengths_;
  const void* x_;
  const void* weights_;
  double* kept_;
};

class ForwardPass : public Pass {
 public:
  ForwardPass(const Network& network, const std::vector<int32_t>& lengths,
              const RnnForwardArguments& arguments, double* kept)
      : Pass(network, lengths, arguments.x, arguments.weights, kept), a_(arguments) {}

  void Run() {
    const int64_t size = p_.steps * p_.batch * p_.directions * p_.hidden;
    for (int64_t i = 0; i < size; ++i) Store(a_.y, p_.dtype, i, 0);
    for (int64_t part = 0; part < net_.parts(); ++part)
      for (int64_t n = 0; n < p_.batch; ++n) RunSequence(part, n);
  }

 private:
  void RunSequence(int64_t part, int64_t n) {
    std::vector<double> h, c;
    for (int64_t j = 0; j < p_.hidden; ++j) {
      h.push_back(net_.load(a_.hx, net_.state(part, n, j)));
      c.push_back(net_.load(a_.cx, net_.state(part, n, j)));
    }
    for (int64_t s = 0; s < length(n); ++s) {
      const int64_t t = net_.time(part, s, length(n));
      std::vector<double> next;
      for (int64_t j = 0; j < p_.hidden; ++j)
        next.push_back(net_.stored(RunUnit(part, t, n, j, h, c)));
      h = next;
      for (int64_t j = 0; j < p_.hidden; ++j) {
        kept(part, t, n, j, Network::kCell) = c[static_cast<size_t>(j)];
        kept(part, t, n, j, Network::kHidden) = h[static_cast<size_t>(j)];
        if (part >= net_.parts() - p_.directions)
          Store(a_.y, p_.dtype, net_.output(part, t, n, j), h[static_cast<size_t>(j)]);
      }
    }
    for (int64_t j = 0; j < p_.hidden; ++j) {
      Store(a_.hy, p_.dtype, net_.state(part, n, j), h[static_cast<size_t>(j)]);
      if (a_.cy) Store(a_.cy, p_.dtype, net_.state(part, n, j), c[static_cast<size_t>(j)]);
    }
  }

  /// Computes the next hidden state of a unit, and updates its cell.
  double RunUnit(int64_t part, int64_t t, int64_t n, int64_t j, const std::vector<double>& h,
                 std::vector<double>& c) {
    std::array<double, kMostGates> from_x{}, from_h{}, sum{};
    for (int64_t gate = 0; gate < net_.gates; ++gate) {
      const auto g = static_cast<size_t>(gate);
      from_x[g] = bias(part, gate, false, j);
      for (int64_t i = 0; i < net_.inputs(part); ++i)
        from_x[g] += weight(part, gate, false, j, i) * net_.factor(input(part, t, n, i));
      from_h[g] = bias(part, gate, true, j);
      for (int64_t i = 0; i < p_.hidden; ++i)
        from_h[g] += weight(part, gate, true, j, i) * net_.factor(h[static_cast<size_t>(i)]);
      sum[g] = from_x[g] + from_h[g];
    }
    const auto keep = [&](const std::array<double, kMostGates>& gates) {
      for (size_t g = 0; g < kMostGates; ++g)
        kept(part, t, n, j, static_cast<int64_t>(g)) = gates[g];
    };
    double& cell = c[static_cast<size_t>(j)];
    switch (p_.mode) {
      case RnnMode::kRelu:
        return std::max(sum[0], 0.0);
      case RnnMode::kTanh:
        return std::tanh(sum[0]);
      case RnnMode::kLstm: {
        const double in = Sigmoid(sum[0]), forget = Sigmoid(sum[1]), out = Sigmoid(sum[3]);
        const double fresh = std::tanh(sum[2]);
        keep({in, forget, fresh, out});
        cell = forget * cell + in * fresh;
        return out * std::tanh(cell);
      }
      case RnnMode::kGru: {
        const double reset = Sigmoid(sum[0]), update = Sigmoid(sum[1]);
        const double fresh = std::tanh(from_x[2] + reset * from_h[2]);
        keep({reset, update, fresh, from_h[2]});
        return (1 - update) * fresh + update * h[static_cast<size_t>(j)];
      }
      case RnnMode::kGruResetBefore:
        break;  // cuDNN has none
    }
    return 0;
  }

  const RnnForwardArguments a_;
};

class BackwardPass : public Pass {
 public:
  BackwardPass(const Network& network, const std::vector<int32_t>& lengths,
               const RnnBackwardArguments& arguments)
      : Pass(network, lengths, arguments.x, arguments.weights,
             static_cast<double*>(arguments.reserve)),
        a_(arguments),
        dweights_(static_cast<size_t>(network.weights)) {}

  void Run() {
    const int64_t rows = p_.steps * p_.batch, width = p_.directions * p_.hidden;
    for (int64_t i = 0; i < rows * width; ++i) dy_.push_back(net_.load(a_.dy, i));
    for (int64_t layer = p_.layers - 1; layer >= 0; --layer) {
      dx_.assign(static_cast<size_t>(rows * (layer == 0 ? p_.input : width)), 0);
      for (int64_t d = 0; d < p_.directions; ++d)
        for (int64_t n = 0; n < p_.batch; ++n) RunSequence(layer * p_.directions + d, n);
      dy_ = dx_;
    }
    for (size_t i = 0; i < dx_.size(); ++i) Store(a_.dx, p_.dtype, static_cast<int64_t>(i), dx_[i]);
    for (size_t i = 0; i < dweights_.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      Store(a_.dweights, p_.dtype, at, net_.load(a_.dweights, at) + dweights_[i]);
    }
  }

 private:
  using Gates = std::array<double, kMostGates>;

  /// A hidden state. That of the top layer is read from y.
  double hidden(int64_t part, int64_t t, int64_t n, int64_t j) {
    if (part >= net_.parts() - p_.directions) return net_.load(a_.y, net_.output(part, t, n, j));
    return kept(part, t, n, j, Network::kHidden);
  }

  void RunSequence(int64_t part, int64_t n) {
    const auto units = static_cast<size_t>(p_.hidden);
    std::vector<double> dh, dc;
    for (int64_t j = 0; j < p_.hidden; ++j) {
      dh.push_back(net_.load(a_.dhy, net_.state(part, n, j)));
      dc.push_back(net_.load(a_.dcy, net_.state(part, n, j)));
    }
    for (int64_t s = length(n) - 1; s >= 0; --s) {
      const int64_t t = net_.time(part, s, length(n));
      const int64_t before = net_.time(part, s - 1, length(n));
      std::vector<double> h, dh_before(units);
      for (int64_t j = 0; j < p_.hidden; ++j)
        h.push_back(s == 0 ? net_.load(a_.hx, net_.state(part, n, j)) : hidden(part, before, n, j));
      for (size_t j = 0; j < units; ++j) {
        const auto unit = static_cast<int64_t>(j);
        dh[j] += dy_[static_cast<size_t>(net_.output(part, t, n, unit))];
        const double c = s == 0 ? net_.load(a_.cx, net_.state(part, n, unit))
                                : kept(part, before, n, unit, Network::kCell);
        Gates to_x{}, to_h{};
        Cell(part, t, n, unit, h[j], c, dh[j], dc[j], dh_before[j], to_x, to_h);
        Products(part, t, n, unit, h, to_x, to_h, dh_before);
      }
      dh = dh_before;
    }
    for (int64_t j = 0; j < p_.hidden; ++j) {
      Store(a_.dhx, p_.dtype, net_.state(part, n, j), dh[static_cast<size_t>(j)]);
      if (a_.dcx) Store(a_.dcx, p_.dtype, net_.state(part, n, j), dc[static_cast<size_t>(j)]);
    }
  }

  /// Computes the gradients of the gates' sums, separately for the terms from x and from h. dc
  /// becomes the gradient of the previous cell.
  void Cell(int64_t part, int64_t t, int64_t n, int64_t j, double h, double c, double dh,
            double& dc, double& dh_before, Gates& to_x, Gates& to_h) {
    const double now = hidden(part, t, n, j);
    Gates g{};
    for (size_t i = 0; i < kMostGates; ++i) g[i] = kept(part, t, n, j, static_cast<int64_t>(i));
    switch (p_.mode) {
      case RnnMode::kRelu:
        to_x[0] = now > 0 ? dh : 0;
        break;
      case RnnMode::kTanh:
        to_x[0] = dh * (1 - now * now);
        break;
      case RnnMode::kLstm: {
        const double squashed = std::tanh(kept(part, t, n, j, Network::kCell));
        const double dcell = dc + dh * g[3] * (1 - squashed * squashed);
        to_x = {dcell * g[2] * g[0] * (1 - g[0]), dcell * c * g[1] * (1 - g[1]),
                dcell * g[0] * (1 - g[2] * g[2]), dh * squashed * g[3] * (1 - g[3])};
        dc = dcell * g[1];
        break;
      }
      case RnnMode::kGru: {
        const double dfresh = dh * (1 - g[1]) * (1 - g[2] * g[2]);
        to_x = {dfresh * g[3] * g[0] * (1 - g[0]), dh * (h - g[2]) * g[1] * (1 - g[1]), dfresh};
        to_h = {to_x[0], to_x[1], dfresh * g[0]};
        dh_before += dh * g[1];
        return;
      }
      case RnnMode::kGruResetBefore:
        break;
    }
    to_h = to_x;
  }

  /// Propagates them to the inputs, the previous state, and the weights.
  void Products(int64_t part, int64_t t, int64_t n, int64_t j, const std::vector<double>& h,
                const Gates& to_x, const Gates& to_h, std::vector<double>& dh_before) {
    const int64_t inputs = net_.inputs(part);
    for (int64_t gate = 0; gate < net_.gates; ++gate) {
      const double dx = to_x[static_cast<size_t>(gate)], dh = to_h[static_cast<size_t>(gate)];
      const RnnPlace &from_x = net_.place(part, gate, false),
                     &from_h = net_.place(part, gate, true);
      for (int64_t i = 0; i < inputs; ++i) {
        dx_[static_cast<size_t>((t * p_.batch + n) * inputs + i)] +=
            weight(part, gate, false, j, i) * net_.factor(dx);
        dweights_[static_cast<size_t>(from_x.matrix + j * inputs + i)] +=
            net_.factor(dx) * net_.factor(input(part, t, n, i));
      }
      for (int64_t i = 0; i < p_.hidden; ++i) {
        dh_before[static_cast<size_t>(i)] += weight(part, gate, true, j, i) * net_.factor(dh);
        dweights_[static_cast<size_t>(from_h.matrix + j * p_.hidden + i)] +=
            net_.factor(dh) * net_.factor(h[static_cast<size_t>(i)]);
      }
      if (!p_.bias) continue;
      dweights_[static_cast<size_t>(from_x.bias + j)] += dx;
      dweights_[static_cast<size_t>(from_h.bias + j)] += dh;
    }
  }

  const RnnBackwardArguments a_;
  std::vector<double> dy_, dx_;  // of the layer's output and input
  std::vector<double> dweights_;
};

class HostNetwork final : public RnnNetwork {
 public:
  explicit HostNetwork(const RnnProblem& problem) : network_(problem) {
    const RnnProblem& p = problem;
    if (std::min({p.steps, p.batch, p.input, p.hidden, p.layers}) < 1)
      throw std::runtime_error("cuDNN takes no empty sequence");
    Dnn().networks.push_back(problem);
  }
  size_t weight_bytes() const override {
    return static_cast<size_t>(network_.weights) * SizeOf(network_.p.dtype);
  }
  size_t workspace_bytes() const override { return kWorkspace; }
  size_t reserve_bytes() const override {
    return network_.p.training ? static_cast<size_t>(network_.kept_size()) * sizeof(double) : 0;
  }
  RnnPlace place(int64_t part, int64_t gate, bool recurrent) const override {
    return network_.place(part, gate, recurrent);
  }

  void Forward(const Device& device, std::span<const int32_t> lengths,
               const RnnForwardArguments& a) const override {
    cuda::emulated::Enqueue(cuda::StreamOf(device), [network = network_, a,
                                                     held = std::vector<int32_t>(lengths.begin(),
                                                                                 lengths.end())] {
      std::memset(a.workspace, 0x5a, kWorkspace);
      std::vector<double> own(a.reserve ? 0 : static_cast<size_t>(network.kept_size()));
      ForwardPass(network, held, a, a.reserve ? static_cast<double*>(a.reserve) : own.data()).Run();
    });
  }
  void Backward(const Device& device, std::span<const int32_t> lengths,
                const RnnBackwardArguments& a) const override {
    cuda::emulated::Enqueue(cuda::StreamOf(device),
                            [network = network_, a, bytes = reserve_bytes(),
                             held = std::vector<int32_t>(lengths.begin(), lengths.end())] {
                              std::memset(a.workspace, 0x5a, kWorkspace);
                              BackwardPass(network, held, a).Run();
                              std::memset(a.reserve, 0x5a, bytes);  // as cuDNN does
                            });
  }

 private:
  Network network_;
};

}  // namespace
}  // namespace emulated

std::shared_ptr<const RnnNetwork> NewRnnNetwork(const RnnProblem& problem) {
  return std::make_shared<emulated::HostNetwork>(problem);
}

}  // namespace singa::cudnn

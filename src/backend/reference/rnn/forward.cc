#include <algorithm>

#include "backend/reference/rnn/network.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/philox_fill.h"
#include "model/formula/recurrent_cells.h"
#include "model/operation/rnn/on_cpu.h"

namespace singa::reference {

namespace {

using formula::CellForward;
using formula::GruResetForward;
using rnn::DataOrNull;
using rnn::Float32Copies;
using rnn::PreviousState;
using rnn::RunInFloat32;

// Workspace, in elements: zeros for missing initial states, sums of the biases, the state that
// training would save (in inference), and copies of 16-bit arguments.
int64_t ZeroSize(const RnnFields& f) { return f.batch * f.hidden; }
int64_t BiasSize(const RnnFields& f) { return std::max(f.gate_columns(), f.hidden); }

int64_t OwnSize(const RnnFields& f) {
  return ZeroSize(f) + f.layers * f.directions * BiasSize(f) + (f.training ? 0 : f.saved_size());
}

size_t RnnForwardWorkspace(const RnnForwardSpec& spec) {
  const int64_t elements =
      OwnSize(spec) + Float32Copies(spec, {spec.rows() * spec.input, 4 * spec.states(),
                                           spec.weights_size(), spec.rows() * spec.width()});
  return static_cast<size_t>(elements) * SizeOf(spec.saved_dtype());
}

template <class T>
class Forward {
 public:
  Forward(const RnnForwardSpec& spec, const Execution& execution)
      : f_(spec),
        execution_(execution),
        steps_(spec.op(), spec, execution.inputs[4]),
        hx_(DataOrNull<T>(execution.inputs[1])),
        cx_(DataOrNull<T>(execution.inputs[2])),
        weights_(execution.in<T>(3)),
        zero_(static_cast<T*>(execution.workspace)),
        bias_(zero_ + ZeroSize(spec)),
        saved_(spec.training ? execution.out<T>(3)
                             : bias_ + spec.layers * spec.directions * BiasSize(spec)) {
    std::fill_n(zero_, ZeroSize(spec), T(0));
    for (int64_t part = 0; part < spec.layers * spec.directions; ++part) AddBiases(part);
  }

  void Run() {
    for (int64_t layer = 0; layer < f_.layers; ++layer) {
      const T* input = layer == 0 ? execution_.in<T>(0) : saved_ + f_.saved_input(layer);
      for (int64_t d = 0; d < f_.directions; ++d) Project(layer * f_.directions + d, input);
      ForEachGroup(f_, [&](int64_t d, int64_t first, int64_t last) {
        WalkSteps(layer * f_.directions + d, first, last);
      });
      WriteOutput(layer);
    }
  }

 private:
  // Sums the constant terms of each gate.
  void AddBiases(int64_t part) {
    T* bias = bias_ + part * BiasSize(f_);
    std::fill_n(bias, BiasSize(f_), T(0));
    if (!f_.bias) return;
    const T* b_ih = weights_ + f_.b_ih(part);
    const T* b_hh = weights_ + f_.b_hh(part);
    for (int64_t j = 0; j < f_.gate_rows(); ++j) bias[j] = b_ih[j] + b_hh[j];
    if (f_.mode != RnnMode::kGru) return;  // else both biases are added to the same sum
    std::copy_n(b_ih + 2 * f_.hidden, f_.hidden, bias + 2 * f_.hidden);
    std::copy_n(b_hh + 2 * f_.hidden, f_.hidden, bias + 3 * f_.hidden);
  }

  // The results of the gates' matrix products; rows are ProductColumns() apart.
  T* Products(int64_t part) const {
    return saved_ + (f_.gate_columns() > 0 ? f_.saved_gates(part) : f_.saved_hidden(part));
  }
  int64_t ProductColumns() const { return std::max(f_.gate_columns(), f_.hidden); }

  // Computes W_ih·x of all steps at once.
  void Project(int64_t part, const T* input) {
    const int64_t width = f_.layer_input(part / f_.directions);
    GemmByRows<T>(false, true, f_.rows(), f_.gate_rows(), width, input, width,
                  weights_ + f_.w_ih(part), width, 0, Products(part), ProductColumns());
  }

  // Runs sequences [first, last) through all steps.
  void WalkSteps(int64_t part, int64_t first, int64_t last) {
    const int64_t direction = part % f_.directions, hidden = f_.hidden;
    const T* w_hh = weights_ + f_.w_hh(part);
    const T* bias = bias_ + part * BiasSize(f_);
    const T* h0 = hx_ ? hx_ + part * f_.batch * hidden : zero_;
    const T* c0 = cx_ ? cx_ + part * f_.batch * hidden : zero_;
    T* hs = saved_ + f_.saved_hidden(part);
    T* cs = saved_ + f_.saved_cells(part);
    for (int64_t s = 0; s < f_.steps; ++s) {
      const int64_t time = steps_.time(direction, s);
      const T* h_prev = PreviousState(f_, steps_, direction, s, h0, hs);
      const T* c_prev = PreviousState(f_, steps_, direction, s, c0, cs);
      T* products = Products(part) + (time * f_.batch + first) * ProductColumns();
      AddRecurrent(h_prev + first * hidden, w_hh, last - first, products);
      if (f_.resets_before()) {
        for (int64_t n = first; n < last; ++n) {
          T* gates = products + (n - first) * ProductColumns();
          if (steps_.counts(time, n)) {
            GruResetForward(hidden, hidden, gates, bias, h_prev + n * hidden);
          } else {
            std::fill_n(gates + 3 * hidden, hidden, T(0));  // backward multiplies it by 0
          }
        }
        AddReset(w_hh, last - first, products);
      }
      for (int64_t n = first; n < last; ++n) {
        const int64_t row = time * f_.batch + n;
        T* h = hs + row * hidden;
        T* c = f_.has_cells() ? cs + row * hidden : nullptr;
        if (steps_.counts(time, n)) {
          CellForward(f_.mode, hidden, hidden, Products(part) + row * ProductColumns(), bias,
                      h_prev + n * hidden, c_prev + n * hidden, h, c);
        } else {
          std::copy_n(h_prev + n * hidden, hidden, h);
          if (c) std::copy_n(c_prev + n * hidden, hidden, c);
        }
      }
    }
    const int64_t end = steps_.time(direction, f_.steps - 1);
    const auto write_last = [&](int output, const T* states) {
      std::copy_n(states + (end * f_.batch + first) * hidden, (last - first) * hidden,
                  execution_.out<T>(output) + (part * f_.batch + first) * hidden);
    };
    write_last(1, hs);
    if (f_.has_cells()) write_last(2, cs);
  }

  // The candidates' products += W_hn·(r·h).
  void AddReset(const T* w_hh, int64_t rows, T* products) {
    const int64_t hidden = f_.hidden, columns = ProductColumns();
    Gemm(false, true, rows, hidden, hidden, T(1), products + 3 * hidden, columns,
         w_hh + 2 * hidden * hidden, hidden, T(1), products + 2 * hidden, columns);
  }

  // products += W_hh·h. GRU keeps W_hn·h separate, because the reset gate multiplies it.
  void AddRecurrent(const T* h, const T* w_hh, int64_t rows, T* products) {
    const int64_t hidden = f_.hidden, columns = ProductColumns();
    const int64_t added = f_.is_gru() ? 2 * hidden : f_.gate_rows();
    Gemm(false, true, rows, added, hidden, T(1), h, hidden, w_hh, hidden, T(1), products, columns);
    if (f_.mode == RnnMode::kGru)
      Gemm(false, true, rows, hidden, hidden, T(1), h, hidden, w_hh + 2 * hidden * hidden, hidden,
           T(0), products + 3 * hidden, columns);
  }

  // Concatenates the hidden states of both directions, with zeros beyond a sequence's end. The
  // result is y, or the next layer's input after dropout.
  void WriteOutput(int64_t layer) {
    const bool top = layer + 1 == f_.layers;
    const bool drop = !top && f_.dropout > 0;
    T* out = top ? execution_.out<T>(0) : saved_ + f_.saved_input(layer + 1);
    T* mask = drop ? saved_ + f_.saved_mask(layer + 1) : nullptr;
    const int64_t width = f_.width();
    const auto scale = static_cast<T>(1 / (1 - f_.dropout));
    const auto threshold = static_cast<uint64_t>(f_.dropout * 0x1p32);
    const uint64_t position = execution_.scalars.offset + layer * f_.rows() * width;
    ParallelFor(f_.rows(), kParallelGrain / width, [&](int64_t begin, int64_t end) {
      RandomWords words(execution_.scalars.seed, position + begin * width);
      for (int64_t row = begin; row < end; ++row) {
        T* to = out + row * width;
        for (int64_t d = 0; d < f_.directions; ++d) {
          const T* h = saved_ + f_.saved_hidden(layer * f_.directions + d) + row * f_.hidden;
          if (steps_.counts(row / f_.batch, row % f_.batch)) {
            std::copy_n(h, f_.hidden, to + d * f_.hidden);
          } else {
            std::fill_n(to + d * f_.hidden, f_.hidden, T(0));
          }
        }
        if (!drop) continue;
        for (int64_t j = 0; j < width; ++j) {
          const T factor = words.Next() >= threshold ? scale : T(0);
          mask[row * width + j] = factor;
          to[j] *= factor;
        }
      }
    });
  }

  const RnnForwardSpec& f_;
  const Execution& execution_;
  rnn::Steps steps_;
  const T* hx_;
  const T* cx_;
  const T* weights_;
  T* zero_;
  T* bias_;
  T* saved_;
};

void RunRnnForward(const RnnForwardSpec& spec, const Execution& execution) {
  if (spec.batch == 0) return;
  if (spec.is_half()) {
    RunInFloat32(spec, execution, static_cast<float*>(execution.workspace) + OwnSize(spec),
                 RunRnnForward);
  } else if (spec.dtype == kFloat64) {
    Forward<double>(spec, execution).Run();
  } else {
    Forward<float>(spec, execution).Run();
  }
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<RnnForwardSpec, RunRnnForward, RnnForwardWorkspace>();
}

}  // namespace singa::reference

#include <algorithm>

#include "backend/reference/reduce/fold.h"
#include "backend/reference/rnn/network.h"
#include "core/device/parallel.h"
#include "core/tensor/copy.h"
#include "model/dispatch/kernel.h"
#include "model/formula/recurrent_cells.h"
#include "model/operation/rnn/on_cpu.h"

namespace singa::reference {

namespace {

using formula::CellBackward;
using formula::GruResetBackward;
using rnn::DataOrNull;
using rnn::Float32Copies;
using rnn::PreviousState;
using rnn::RunInFloat32;

// Workspace, in elements: zeros for missing initial states, the gradients of one layer's matrix
// products, the gradient of a layer's output (if there are several layers), and copies of 16-bit
// arguments.
int64_t ZeroSize(const RnnFields& f) { return f.batch * f.hidden; }
int64_t ProductColumns(const RnnFields& f) { return std::max(f.gate_columns(), f.hidden); }
int64_t ProductSize(const RnnFields& f) { return f.rows() * ProductColumns(f); }

int64_t OwnSize(const RnnFields& f) {
  return ZeroSize(f) + f.directions * ProductSize(f) + (f.layers > 1 ? f.rows() * f.width() : 0);
}

size_t RnnBackwardWorkspace(const RnnBackwardSpec& spec) {
  const int64_t elements =
      OwnSize(spec) + Float32Copies(spec, {2 * spec.rows() * spec.input, 6 * spec.states(),
                                           2 * spec.weights_size(), spec.rows() * spec.width()});
  return static_cast<size_t>(elements) * SizeOf(spec.saved_dtype());
}

template <class T>
class Backward {
 public:
  Backward(const RnnBackwardSpec& spec, const Execution& execution)
      : f_(spec),
        execution_(execution),
        steps_(spec.op(), spec, execution.inputs[7]),
        hx_(DataOrNull<T>(execution.inputs[4])),
        cx_(DataOrNull<T>(execution.inputs[5])),
        weights_(execution.in<T>(6)),
        saved_(execution.in<T>(8)),
        zero_(static_cast<T*>(execution.workspace)),
        dproducts_(zero_ + ZeroSize(spec)),
        doutput_(dproducts_ + spec.directions * ProductSize(spec)),
        dw_(execution.out<T>(3)) {
    std::fill_n(zero_, ZeroSize(spec), T(0));
    rnn::StartStateGradients(execution);
  }

  void Run() {
    for (int64_t layer = f_.layers - 1; layer >= 0; --layer) {
      const T* dy = layer + 1 == f_.layers ? DataOrNull<T>(execution_.inputs[0]) : doutput_;
      ForEachGroup(f_, [&](int64_t d, int64_t first, int64_t last) {
        WalkSteps(layer * f_.directions + d, first, last, dy);
      });
      WriteInputGradient(layer);
      const T* input = layer == 0 ? execution_.in<T>(3) : saved_ + f_.saved_input(layer);
      for (int64_t d = 0; d < f_.directions; ++d) {
        const int64_t part = layer * f_.directions + d, width = f_.layer_input(layer);
        GemmByRows<T>(true, false, f_.gate_rows(), width, f_.rows(), Products(part),
                      ProductColumns(f_), input, width, 0, dw_ + f_.w_ih(part), width);
        WriteRecurrentGradients(part);
      }
    }
  }

 private:
  T* Products(int64_t part) const { return dproducts_ + part % f_.directions * ProductSize(f_); }
  const T* InitialHidden(int64_t part) const {
    return hx_ ? hx_ + part * f_.batch * f_.hidden : zero_;
  }

  // Runs sequences [first, last) backwards through all steps. Computes the gradients of the matrix
  // products and of the initial states.
  void WalkSteps(int64_t part, int64_t first, int64_t last, const T* dy) {
    const int64_t direction = part % f_.directions, hidden = f_.hidden;
    const int64_t columns = ProductColumns(f_);
    const T* h0 = InitialHidden(part);
    const T* c0 = cx_ ? cx_ + part * f_.batch * hidden : zero_;
    const T* gates = saved_ + f_.saved_gates(part);
    const T* hs = saved_ + f_.saved_hidden(part);
    const T* cs = saved_ + f_.saved_cells(part);
    T* dh = execution_.out<T>(1) + part * f_.batch * hidden;
    T* dc = f_.has_cells() ? execution_.out<T>(2) + part * f_.batch * hidden : nullptr;
    for (int64_t s = f_.steps - 1; s >= 0; --s) {
      const int64_t time = steps_.time(direction, s);
      const T* h_prev = PreviousState(f_, steps_, direction, s, h0, hs);
      const T* c_prev = PreviousState(f_, steps_, direction, s, c0, cs);
      T* dproducts = Products(part) + time * f_.batch * columns;
      for (int64_t n = first; n < last; ++n) {
        const int64_t row = time * f_.batch + n, state = n * hidden;
        if (!steps_.counts(time, n)) {
          std::fill_n(dproducts + n * columns, columns, T(0));
          continue;
        }
        if (dy != nullptr) {
          const T* from = dy + row * f_.width() + direction * hidden;
          for (int64_t j = 0; j < hidden; ++j) dh[state + j] += from[j];
        }
        CellBackward(f_.mode, hidden, hidden, gates + row * f_.gate_columns(), h_prev + state,
                     c_prev + state, hs + row * hidden, cs + row * hidden, dh + state,
                     dc ? dc + state : nullptr, dproducts + n * columns);
      }
      if (f_.resets_before()) ResetBackward(part, time, first, last, h_prev, gates, dproducts, dh);
      AddRecurrent(dproducts + first * columns, weights_ + f_.w_hh(part), last - first,
                   dh + first * hidden);
    }
  }

  // Of a GRU that resets before the product: the gradients of r·h, then those of r and h.
  void ResetBackward(int64_t part, int64_t time, int64_t first, int64_t last, const T* h_prev,
                     const T* gates, T* dproducts, T* dh) {
    const int64_t hidden = f_.hidden, columns = ProductColumns(f_);
    T* rows = dproducts + first * columns;
    Gemm(false, false, last - first, hidden, hidden, T(1), rows + 2 * hidden, columns,
         weights_ + f_.w_hh(part) + 2 * hidden * hidden, hidden, T(0), rows + 3 * hidden, columns);
    for (int64_t n = first; n < last; ++n)
      if (steps_.counts(time, n))
        GruResetBackward(hidden, hidden, gates + (time * f_.batch + n) * f_.gate_columns(),
                         h_prev + n * hidden, dproducts + n * columns, dh + n * hidden);
  }

  // dh += dproducts·W_hh
  void AddRecurrent(const T* dproducts, const T* w_hh, int64_t rows, T* dh) {
    ForEachRecurrentBlock([&](int64_t column, int64_t gate_row, int64_t count) {
      Gemm(false, false, rows, f_.hidden, count, T(1), dproducts + column, ProductColumns(f_),
           w_hh + gate_row * f_.hidden, f_.hidden, T(1), dh, f_.hidden);
    });
  }

  // Visits blocks of rows of W_hh that multiply h, with the matching columns of the products: one
  // block, except that GRU keeps W_hn·h in a fourth group of columns, or has r·h there.
  template <class Visit>
  void ForEachRecurrentBlock(const Visit& visit) const {
    if (f_.mode == RnnMode::kGru) {
      visit(0, 0, 2 * f_.hidden);
      visit(3 * f_.hidden, 2 * f_.hidden, f_.hidden);
    } else if (f_.resets_before()) {
      visit(0, 0, 2 * f_.hidden);
    } else {
      visit(0, 0, f_.gate_rows());
    }
  }

  // Writes dx, or the gradient of the lower layer's output.
  void WriteInputGradient(int64_t layer) {
    T* dx = layer == 0 ? execution_.out<T>(0) : doutput_;
    const int64_t width = f_.layer_input(layer);
    for (int64_t d = 0; d < f_.directions; ++d) {
      const int64_t part = layer * f_.directions + d;
      GemmByRows<T>(false, false, f_.rows(), width, f_.gate_rows(), Products(part),
                    ProductColumns(f_), weights_ + f_.w_ih(part), width, d == 0 ? 0 : 1, dx, width);
    }
    if (layer == 0 || f_.dropout == 0) return;
    const T* mask = saved_ + f_.saved_mask(layer);
    ParallelFor(f_.rows() * width, kParallelGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dx[i] *= mask[i];
    });
  }

  // Writes dW_hh and the gradients of the biases.
  void WriteRecurrentGradients(int64_t part) {
    const int64_t hidden = f_.hidden, columns = ProductColumns(f_), batch = f_.batch;
    const bool forwards = part % f_.directions == 0;
    const T* hs = saved_ + f_.saved_hidden(part);
    const T* dproducts = Products(part);
    const int64_t rest = (f_.steps - 1) * batch;
    ForEachRecurrentBlock([&](int64_t column, int64_t gate_row, int64_t count) {
      T* dw = dw_ + f_.w_hh(part) + gate_row * hidden;
      const auto add = [&](const T* dp, const T* h, int64_t rows, T beta) {
        GemmByRows<T>(true, false, count, hidden, rows, dp + column, columns, h, hidden, beta, dw,
                      hidden);
      };
      // The first step read the initial state, every other step the state of the step before it.
      add(forwards ? dproducts : dproducts + rest * columns, InitialHidden(part), batch, 0);
      if (rest > 0)
        add(forwards ? dproducts + batch * columns : dproducts, forwards ? hs : hs + batch * hidden,
            rest, 1);
      if (f_.bias) SumRows(dproducts + column, count, dw_ + f_.b_hh(part) + gate_row);
    });
    if (f_.resets_before()) {
      const int64_t gate_row = 2 * hidden;
      GemmByRows<T>(true, false, hidden, hidden, f_.rows(), dproducts + gate_row, columns,
                    saved_ + f_.saved_gates(part) + 3 * hidden, f_.gate_columns(), 0,
                    dw_ + f_.w_hh(part) + gate_row * hidden, hidden);
      if (f_.bias) SumRows(dproducts + gate_row, hidden, dw_ + f_.b_hh(part) + gate_row);
    }
    if (f_.bias) SumRows(dproducts, f_.gate_rows(), dw_ + f_.b_ih(part));
  }

  // Sums all rows of some columns of the products' gradients.
  void SumRows(const T* dproducts, int64_t columns, T* sums) {
    constexpr int64_t kChunk = 256;
    ParallelFor(columns, kParallelGrain / f_.rows(), [&](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += kChunk) {
        const int64_t n = std::min(kChunk, end - first);
        double acc[kChunk] = {};
        FoldRows<SumFold<T>>(dproducts + first, f_.rows(), ProductColumns(f_), n, 1, acc);
        for (int64_t j = 0; j < n; ++j) sums[first + j] = static_cast<T>(acc[j]);
      }
    });
  }

  const RnnBackwardSpec& f_;
  const Execution& execution_;
  rnn::Steps steps_;
  const T* hx_;
  const T* cx_;
  const T* weights_;
  const T* saved_;
  T* zero_;
  T* dproducts_;
  T* doutput_;
  T* dw_;
};

void RunRnnBackward(const RnnBackwardSpec& spec, const Execution& execution) {
  if (spec.batch == 0) {
    StridedFill(execution.outputs[3], 0);
  } else if (spec.is_half()) {
    RunInFloat32(spec, execution, static_cast<float*>(execution.workspace) + OwnSize(spec),
                 RunRnnBackward);
  } else if (spec.dtype == kFloat64) {
    Backward<double>(spec, execution).Run();
  } else {
    Backward<float>(spec, execution).Run();
  }
}

std::string Refuses(const RnnBackwardSpec& spec) {
  return spec.saved == SavedForm::kCommon ? "" : "another implementation did forward";
}

PlanOrReason Make(const RnnBackwardSpec& spec) {
  return std::make_shared<FunctionPlan<RnnBackwardSpec>>(kReference, spec, RunRnnBackward,
                                                         RnnBackwardWorkspace(spec));
}

}  // namespace

SINGA_KERNELS(reference) {
  AddOpTypeOf<RnnBackwardSpec>();
  Register<RnnBackwardSpec>(DeviceKind::kCpu, kReference, {.refuses = Refuses, .make = Make});
}

}  // namespace singa::reference

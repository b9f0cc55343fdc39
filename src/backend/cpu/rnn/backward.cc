// Backward of recurrent networks. In a step, each thread multiplies the gates' gradients of the
// step behind it by W_hh, for some units, and computes the gradients of these units' gates; then
// the threads meet. The gates' gradients of all steps are kept, so that the gradients of the inputs
// and of the weights are one product each.

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/cpu/rnn/network.h"
#include "backend/cpu/rnn/rnn.h"
#include "backend/cpu/rnn/weight_gradient.h"
#include "core/device/parallel.h"
#include "core/tensor/copy.h"
#include "model/dispatch/kernel.h"
#include "model/formula/recurrent_cells.h"
#include "model/operation/rnn/on_cpu.h"

namespace singa::cpu::rnn {
namespace {

using singa::rnn::DataOrNull;
using singa::rnn::PreviousState;

/// Plain columns in panels.
Panels Columns(int64_t columns, int64_t lanes) { return Panels(columns, {0, 1}, lanes); }

/// Places in the workspace, in floats.
struct Workspace {
  Workspace(const RnnBackwardSpec& f, int64_t lanes) {
    const int64_t hidden_width = Columns(f.hidden, lanes).width();
    int64_t widest = Columns(f.input, lanes).width();
    if (f.layers > 1) widest = std::max(widest, Columns(f.width(), lanes).width());
    zero = floats.Take(f.batch * f.hidden);
    columns = std::max(f.gate_columns(), f.hidden);
    dgates = floats.Take(f.directions * f.rows() * columns);
    doutput = floats.Take(f.layers > 1 ? f.rows() * f.width() : 0);
    w_hh = floats.Take(f.directions * f.gate_rows() * hidden_width);
    w_ih = floats.Take(f.gate_rows() * widest);
    inputs = floats.Take(f.rows() * std::max(widest, hidden_width));
    copies = floats.Take(singa::rnn::Float32Copies(
        f, {2 * f.rows() * f.input, 6 * f.states(), 2 * f.weights_size(), f.rows() * f.width()}));
  }

  Parts floats;
  int64_t columns;  ///< between rows of the gates' gradients
  int64_t zero, dgates, doutput, w_hh, w_ih, inputs, copies;
};

class Backward {
 public:
  Backward(const RnnBackwardSpec& spec, int64_t lanes, const Workspace& places,
           const Execution& execution)
      : f_(spec),
        units_(Columns(spec.hidden, lanes)),
        places_(places),
        execution_(execution),
        steps_(spec.op(), spec, execution.inputs[7]),
        hx_(DataOrNull<float>(execution.inputs[4])),
        cx_(DataOrNull<float>(execution.inputs[5])),
        weights_(execution.in<float>(6)),
        saved_(execution.in<float>(8)),
        dw_(execution.out<float>(3)),
        own_(static_cast<float*>(execution.workspace)),
        columns_(places.columns) {
    std::fill_n(own_ + places.zero, spec.batch * spec.hidden, 0.0f);
    singa::rnn::StartStateGradients(execution);
  }

  void Run() {
    const int64_t phases = f_.resets_before() ? 2 : 1;
    const Division division = Divide(f_, units_.count(), f_.batch * f_.gate_rows() * f_.hidden);
    for (int64_t layer = f_.layers - 1; layer >= 0; --layer) {
      const float* dy =
          layer + 1 == f_.layers ? DataOrNull<float>(execution_.inputs[0]) : DOutput();
      for (int64_t d = 0; d < f_.directions; ++d)
        PackRows({weights_ + f_.w_hh(layer * f_.directions + d), f_.gate_rows(), nullptr},
                 f_.gate_rows(), f_.hidden, units_, PackedRecurrent(d));
      RunInStep(division, (f_.steps + 1) * phases, [&](int64_t group, int64_t part, int64_t step) {
        const PanelRange range = PanelsOf(units_.count(), division, part);
        const Block block = BlockOf(f_, division, group);
        if (range.first == range.last || block.rows() == 0) return;
        if (step % phases == 0) {
          RunStep(layer, block, step / phases, range, dy);
        } else if (step / phases < f_.steps) {
          ResetBackward(layer, block, step / phases, range);
        }
      });
      WriteInputGradient(layer);
      const float* input = layer == 0 ? execution_.in<float>(3) : saved_ + f_.saved_input(layer);
      WriteInputWeights(layer, input);
      for (int64_t d = 0; d < f_.directions; ++d) WriteRecurrentWeights(layer * f_.directions + d);
    }
  }

 private:
  float* DOutput() const { return own_ + places_.doutput; }
  float* DGates(int64_t direction) const {
    return own_ + places_.dgates + direction * f_.rows() * columns_;
  }
  float* PackedRecurrent(int64_t direction) const {
    return own_ + places_.w_hh + direction * f_.gate_rows() * units_.width();
  }
  const float* InitialHidden(int64_t part) const {
    return hx_ ? hx_ + part * f_.batch * f_.hidden : own_ + places_.zero;
  }

  // to (+)= dgates[columns from `column`] · W_hh[rows from `gate_row`], `count` of them, for the
  // units of a range.
  void MultiplyRecurrent(const Block& block, const PanelRange& range, const float* dgates,
                         int64_t column, int64_t gate_row, int64_t count, float* to,
                         int64_t row_step, bool add) {
    for (int64_t i = range.first; i < range.last; ++i) {
      const Panel& panel = units_[i];
      const float* packed = PackedRecurrent(block.direction) + panel.place * f_.gate_rows() +
                            gate_row * panel.vectors() * units_.lanes();
      MultiplyPanel(units_.lanes(), panel.vectors(), block.rows(), count,
                    {dgates + column, columns_, 1}, packed,
                    panel.To(to, row_step, 0, units_.lanes(), add));
    }
  }

  // Visits blocks of rows of W_hh that multiply h, with the matching columns of the gates'
  // gradients: one block, except that GRU keeps W_hn·h in a fourth group of columns, or has r·h
  // there.
  template <class Visit>
  void ForEachRecurrentBlock(const Visit& visit) const {
    if (f_.is_gru()) {
      visit(0, 0, 2 * f_.hidden);
      if (!f_.resets_before()) visit(3 * f_.hidden, 2 * f_.hidden, f_.hidden);
    } else {
      visit(0, 0, f_.gate_rows());
    }
  }

  int64_t FirstUnit(const PanelRange& range) const { return units_[range.first].first_unit; }
  int64_t CountUnits(const PanelRange& range) const {
    const Panel& last = units_[range.last - 1];
    return last.first_unit + last.units - FirstUnit(range);
  }

  // Step `back` counts from the end; the one behind the first step ends with the initial states.
  void RunStep(int64_t layer, const Block& block, int64_t back, const PanelRange& range,
               const float* dy) {
    const int64_t direction = block.direction, hidden = f_.hidden;
    const int64_t part = layer * f_.directions + direction, state = part * f_.batch * hidden;
    float* dh = execution_.out<float>(1) + state;
    const auto dgates_at = [&](int64_t s) {
      return DGates(direction) + (steps_.time(direction, s) * f_.batch + block.first) * columns_;
    };
    if (back > 0)
      ForEachRecurrentBlock([&](int64_t column, int64_t gate_row, int64_t count) {
        MultiplyRecurrent(block, range, dgates_at(f_.steps - back), column, gate_row, count,
                          dh + block.first * hidden, hidden, true);
      });
    if (back == f_.steps) return;
    const int64_t s = f_.steps - 1 - back, time = steps_.time(direction, s);
    const int64_t unit = FirstUnit(range), count = CountUnits(range);
    const float* hs = saved_ + f_.saved_hidden(part);
    const float* cs = saved_ + f_.saved_cells(part);
    const float* gates = saved_ + f_.saved_gates(part);
    const float* h_prev = PreviousState<float>(f_, steps_, direction, s, InitialHidden(part), hs);
    const float* c_prev =
        PreviousState<float>(f_, steps_, direction, s, cx_ ? cx_ + state : own_ + places_.zero, cs);
    float* dc = f_.has_cells() ? execution_.out<float>(2) + state : nullptr;
    for (int64_t n = block.first; n < block.last; ++n) {
      const int64_t row = time * f_.batch + n, place = n * hidden + unit;
      float* own = dgates_at(s) + (n - block.first) * columns_ + unit;
      if (!steps_.counts(time, n)) {
        for (int64_t column = 0; column < columns_; column += hidden)
          std::fill_n(own + column, count, 0.0f);
        continue;
      }
      if (dy != nullptr) {
        const float* from = dy + row * f_.width() + direction * hidden + unit;
        for (int64_t j = 0; j < count; ++j) dh[place + j] += from[j];
      }
      formula::CellBackward(f_.mode, count, hidden, gates + row * f_.gate_columns() + unit,
                            h_prev + place, c_prev + place, hs + row * hidden + unit,
                            cs + row * hidden + unit, dh + place, dc ? dc + place : nullptr, own);
    }
  }

  // Of a GRU that resets before the product: the gradients of r·h, then those of r and h.
  void ResetBackward(int64_t layer, const Block& block, int64_t back, const PanelRange& range) {
    const int64_t direction = block.direction, hidden = f_.hidden;
    const int64_t part = layer * f_.directions + direction;
    const int64_t s = f_.steps - 1 - back, time = steps_.time(direction, s);
    const int64_t unit = FirstUnit(range), count = CountUnits(range);
    float* rows = DGates(direction) + (time * f_.batch + block.first) * columns_;
    MultiplyRecurrent(block, range, rows, 2 * hidden, 2 * hidden, hidden, rows + 3 * hidden,
                      columns_, false);
    const float* gates = saved_ + f_.saved_gates(part);
    const float* h_prev = PreviousState<float>(f_, steps_, direction, s, InitialHidden(part),
                                               saved_ + f_.saved_hidden(part));
    float* dh = execution_.out<float>(1) + part * f_.batch * hidden;
    for (int64_t n = block.first; n < block.last; ++n)
      if (steps_.counts(time, n))
        formula::GruResetBackward(
            count, hidden, gates + (time * f_.batch + n) * f_.gate_columns() + unit,
            h_prev + n * hidden + unit, rows + (n - block.first) * columns_ + unit,
            dh + n * hidden + unit);
  }

  // Writes dx, or the gradient of the lower layer's output.
  void WriteInputGradient(int64_t layer) {
    float* dx = layer == 0 ? execution_.out<float>(0) : DOutput();
    const int64_t width = f_.layer_input(layer);
    const Panels panels = Columns(width, units_.lanes());
    for (int64_t d = 0; d < f_.directions; ++d) {
      const float* w_ih = weights_ + f_.w_ih(layer * f_.directions + d);
      PackRows({w_ih, f_.gate_rows(), nullptr}, f_.gate_rows(), width, panels, own_ + places_.w_ih);
      Multiply(f_.rows(), f_.gate_rows(), {DGates(d), columns_, 1}, panels, own_ + places_.w_ih, dx,
               width, 0, d > 0);
    }
    if (layer == 0 || f_.dropout == 0) return;
    const float* mask = saved_ + f_.saved_mask(layer);
    ParallelFor(f_.rows() * width, kParallelGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) dx[i] *= mask[i];
    });
  }

  void WriteInputWeights(int64_t layer, const float* input) {
    const int64_t width = f_.layer_input(layer);
    const Panels panels = Columns(width, units_.lanes());
    float* packed = own_ + places_.inputs;
    PackRows({input, f_.rows(), nullptr}, f_.rows(), width, panels, packed);
    for (int64_t d = 0; d < f_.directions; ++d) {
      const int64_t part = layer * f_.directions + d;
      SumProducts(DGates(d), columns_, f_.gate_rows(), f_.rows(), panels, packed,
                  dw_ + f_.w_ih(part), width);
      if (f_.bias) SumRows(DGates(d), columns_, f_.gate_rows(), f_.rows(), dw_ + f_.b_ih(part));
    }
  }

  // Writes dW_hh and the gradient of its bias.
  void WriteRecurrentWeights(int64_t part) {
    const int64_t hidden = f_.hidden, rest = (f_.steps - 1) * f_.batch;
    const float* dgates = DGates(part % f_.directions);
    const float* hs = saved_ + f_.saved_hidden(part);
    float* packed = own_ + places_.inputs;
    const auto write = [&](int64_t column, int64_t gate_row, int64_t count) {
      SumProducts(dgates + column, columns_, count, f_.rows(), units_, packed,
                  dw_ + f_.w_hh(part) + gate_row * hidden, hidden);
      if (f_.bias)
        SumRows(dgates + column, columns_, count, f_.rows(), dw_ + f_.b_hh(part) + gate_row);
    };
    // The first step read the initial state, every other step the state of the step before it.
    const float* initial = InitialHidden(part);
    PackRows(part % f_.directions == 0 ? TwoParts{initial, f_.batch, hs}
                                       : TwoParts{hs + f_.batch * hidden, rest, initial},
             f_.rows(), hidden, units_, packed);
    ForEachRecurrentBlock(write);
    if (!f_.resets_before()) return;
    const float* reset = saved_ + f_.saved_gates(part) + 3 * hidden;  // r·h
    PackRows({reset, f_.rows(), nullptr}, f_.rows(), f_.gate_columns(), units_, packed);
    write(2 * hidden, 2 * hidden, hidden);
  }

  const RnnBackwardSpec& f_;
  Panels units_;
  const Workspace& places_;
  const Execution& execution_;
  singa::rnn::Steps steps_;
  const float* hx_;
  const float* cx_;
  const float* weights_;
  const float* saved_;
  float* dw_;
  float* own_;
  int64_t columns_;
};

class BackwardPlan final : public Plan {
 public:
  BackwardPlan(const RnnBackwardSpec& spec, int64_t lanes)
      : Plan("cpu"), spec_(spec), lanes_(lanes), places_(spec, lanes) {}

  std::string Describe() const override { return "cpu panels of units"; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(places_.floats.size()) * sizeof(float);
  }
  size_t bytes() const override { return sizeof(*this); }

  void Run(const Execution& execution) const override {
    const auto run = [&](const RnnBackwardSpec& spec, const Execution& execution) {
      Backward(spec, lanes_, places_, execution).Run();
    };
    if (spec_.batch == 0) {
      StridedFill(execution.outputs[3], 0);
    } else if (spec_.is_half()) {
      float* own = static_cast<float*>(execution.workspace);
      singa::rnn::RunInFloat32(spec_, execution, own + places_.copies, run);
    } else {
      run(spec_, execution);
    }
  }

 private:
  RnnBackwardSpec spec_;
  int64_t lanes_;
  Workspace places_;
};

std::string Refuses(const RnnBackwardSpec& spec) {
  if (spec.saved != SavedForm::kCommon) return "another implementation did forward";
  return RefusesType(spec.dtype);
}

PlanOrReason Make(const RnnBackwardSpec& spec) { return MakePlan(spec, Lanes()); }

}  // namespace

PlanPtr MakePlan(const RnnBackwardSpec& spec, int64_t lanes) {
  return std::make_shared<BackwardPlan>(spec, lanes);
}

SINGA_KERNELS(cpu) {
  Register<RnnBackwardSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::cpu::rnn

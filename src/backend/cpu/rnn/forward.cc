// Forward of recurrent networks. The products with the inputs of all steps of a layer are one
// product. In a step, each thread multiplies the panels of some units, which its cache keeps, and
// computes their cells; then the threads meet.

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/cpu/rnn/network.h"
#include "backend/cpu/rnn/rnn.h"
#include "core/device/parallel.h"
#include "model/dispatch/kernel.h"
#include "model/formula/philox_fill.h"
#include "model/formula/recurrent_cells.h"
#include "model/operation/rnn/on_cpu.h"

namespace singa::cpu::rnn {
namespace {

using singa::rnn::DataOrNull;
using singa::rnn::PreviousState;

/// Places in the workspace, in floats. Where nothing is saved, all layers use the same memory for
/// the tensors of RnnFields.
struct Workspace {
  Workspace(const RnnForwardSpec& f, const PackedWeights& weights, bool packs) {
    zero = floats.Take(f.batch * f.hidden);
    bias_step = std::max(f.gate_columns(), f.hidden);
    bias = floats.Take(f.directions * bias_step);
    packed = floats.Take(packs ? weights.size() : 0);
    if (!f.training) {
      gates = floats.Take(f.directions * f.rows() * f.gate_columns());
      cells = floats.Take(f.has_cells() ? f.directions * f.rows() * f.hidden : 0);
      hidden = floats.Take(f.directions * f.rows() * f.hidden);
      for (int64_t& place : outputs) place = floats.Take(f.layers > 1 ? f.rows() * f.width() : 0);
    }
    copies = floats.Take(singa::rnn::Float32Copies(
        f, {f.rows() * f.input, 4 * f.states(), f.weights_size(), f.rows() * f.width()}));
  }

  Parts floats;
  int64_t zero, bias, bias_step, packed, gates = 0, cells = 0, hidden = 0, outputs[2] = {}, copies;
};

class Forward {
 public:
  /// `weights` in panels; `plain` biases are among them.
  Forward(const RnnForwardSpec& spec, const PackedWeights& packing, const Workspace& places,
          const float* weights, const Execution& execution)
      : f_(spec),
        packing_(packing),
        places_(places),
        weights_(weights),
        execution_(execution),
        steps_(spec.op(), spec, execution.inputs[4]),
        hx_(DataOrNull<float>(execution.inputs[1])),
        cx_(DataOrNull<float>(execution.inputs[2])),
        own_(static_cast<float*>(execution.workspace)),
        columns_(std::max(spec.gate_columns(), spec.hidden)) {
    std::fill_n(own_ + places_.zero, spec.batch * spec.hidden, 0.0f);
  }

  void Run() {
    const int64_t work = f_.batch * f_.gate_rows() * f_.hidden;
    const Division division = Divide(f_, packing_.panels(0).count(), work);
    for (int64_t layer = 0; layer < f_.layers; ++layer) {
      const float* input = layer == 0 ? execution_.in<float>(0) : OutputOf(layer - 1);
      for (int64_t d = 0; d < f_.directions; ++d) {
        AddBiases(layer * f_.directions + d);
        Project(layer * f_.directions + d, input);
      }
      const int64_t phases = packing_.phases();
      RunInStep(division, f_.steps * phases, [&](int64_t group, int64_t part, int64_t step) {
        const Block block = BlockOf(f_, division, group);
        const PanelRange range = PanelsOf(packing_.panels(step % phases).count(), division, part);
        RunStep(layer, block, step / phases, step % phases, range);
      });
      for (int64_t d = 0; d < f_.directions; ++d) WriteLast(layer * f_.directions + d);
      if (f_.dropout > 0 && layer + 1 < f_.layers) Drop(layer);
    }
  }

 private:
  float* Saved() const { return execution_.out<float>(3); }
  // The tensors of RnnFields, of a layer and direction.
  float* Gates(int64_t part) const {
    if (f_.gate_columns() == 0) return Hidden(part);
    return f_.training ? Saved() + f_.saved_gates(part)
                       : own_ + places_.gates + part % f_.directions * f_.rows() * columns_;
  }
  float* Cells(int64_t part) const {
    return f_.training ? Saved() + f_.saved_cells(part)
                       : own_ + places_.cells + part % f_.directions * f_.rows() * f_.hidden;
  }
  float* Hidden(int64_t part) const {
    return f_.training ? Saved() + f_.saved_hidden(part)
                       : own_ + places_.hidden + part % f_.directions * f_.rows() * f_.hidden;
  }
  // y, or the next layer's input.
  float* OutputOf(int64_t layer) const {
    if (layer + 1 == f_.layers) return execution_.out<float>(0);
    return f_.training ? Saved() + f_.saved_input(layer + 1) : own_ + places_.outputs[layer % 2];
  }
  float* Bias(int64_t part) const {
    return own_ + places_.bias + part % f_.directions * places_.bias_step;
  }

  // Sums the constant terms of each gate.
  void AddBiases(int64_t part) {
    float* bias = Bias(part);
    std::fill_n(bias, places_.bias_step, 0.0f);
    if (!f_.bias) return;
    const float* b_ih = weights_ + packing_.bias_shift() + f_.b_ih(part);
    const float* b_hh = weights_ + packing_.bias_shift() + f_.b_hh(part);
    for (int64_t j = 0; j < f_.gate_rows(); ++j) bias[j] = b_ih[j] + b_hh[j];
    if (f_.mode != RnnMode::kGru) return;  // else both biases are added to the same sum
    std::copy_n(b_ih + 2 * f_.hidden, f_.hidden, bias + 2 * f_.hidden);
    std::copy_n(b_hh + 2 * f_.hidden, f_.hidden, bias + 3 * f_.hidden);
  }

  // Gates = W_ih·x, of all steps.
  void Project(int64_t part, const float* input) {
    const int64_t width = f_.layer_input(part / f_.directions);
    for (int64_t phase = 0; phase < packing_.phases(); ++phase)
      Multiply(f_.rows(), width, {input, width, 1}, packing_.panels(phase),
               weights_ + packing_.w_ih(part, phase), Gates(part), columns_, f_.hidden, false);
  }

  void RunStep(int64_t layer, const Block& block, int64_t s, int64_t phase,
               const PanelRange& range) {
    if (range.first == range.last || block.rows() == 0) return;
    const int64_t part = layer * f_.directions + block.direction;
    const int64_t time = steps_.time(block.direction, s), hidden = f_.hidden;
    const int64_t state = part * f_.batch * hidden;
    const float* zero = own_ + places_.zero;
    const float* h_prev = PreviousState<float>(f_, steps_, block.direction, s,
                                               hx_ ? hx_ + state : zero, Hidden(part));
    const float* c_prev =
        PreviousState<float>(f_, steps_, block.direction, s, cx_ ? cx_ + state : zero, Cells(part));
    float* gates = Gates(part) + (time * f_.batch + block.first) * columns_;
    const Panels& panels = packing_.panels(phase);
    // The second phase multiplies r·h.
    const Strided left = phase == 0 ? Strided{h_prev + block.first * hidden, hidden, 1}
                                    : Strided{gates + 3 * hidden, columns_, 1};
    const float* w_hh = weights_ + packing_.w_hh(part, phase);
    for (int64_t i = range.first; i < range.last; ++i) {
      const Panel& panel = panels[i];
      Target target = panel.To(gates, columns_, hidden, panels.lanes(), true);
      if (f_.mode == RnnMode::kGru) {  // W_hn·h is separate, because the reset gate multiplies it
        target.place[2] += hidden;
        target.add[2] = false;
      }
      MultiplyPanel(panels.lanes(), panel.vectors(), block.rows(), hidden, left,
                    w_hh + panel.place * hidden, target);
    }
    const int64_t unit = panels[range.first].first_unit;
    const int64_t count = panels[range.last - 1].first_unit + panels[range.last - 1].units - unit;
    for (int64_t n = block.first; n < block.last; ++n) {
      const int64_t row = time * f_.batch + n, place = row * hidden + unit;
      float* own = gates + (n - block.first) * columns_ + unit;
      const float* h_before = h_prev + n * hidden + unit;
      const bool counts = steps_.counts(time, n);
      if (phase + 1 < packing_.phases()) {
        if (counts) {
          formula::GruResetForward(count, hidden, own, Bias(part) + unit, h_before);
        } else {
          std::fill_n(own + 3 * hidden, count, 0.0f);  // backward multiplies it by 0
        }
        continue;
      }
      float* h = Hidden(part) + place;
      float* c = f_.has_cells() ? Cells(part) + place : nullptr;
      float* out = OutputOf(layer) + row * f_.width() + block.direction * hidden + unit;
      const float* c_before = c_prev + n * hidden + unit;
      if (counts) {
        formula::CellForward(f_.mode, count, hidden, own, Bias(part) + unit, h_before, c_before, h,
                             c);
        std::copy_n(h, count, out);
      } else {
        std::copy_n(h_before, count, h);
        if (c) std::copy_n(c_before, count, c);
        std::fill_n(out, count, 0.0f);
      }
    }
  }

  void WriteLast(int64_t part) {
    const int64_t size = f_.batch * f_.hidden;
    const int64_t end = steps_.time(part % f_.directions, f_.steps - 1);
    std::copy_n(Hidden(part) + end * size, size, execution_.out<float>(1) + part * size);
    if (f_.has_cells())
      std::copy_n(Cells(part) + end * size, size, execution_.out<float>(2) + part * size);
  }

  // Dropout of the next layer's input.
  void Drop(int64_t layer) {
    float* out = OutputOf(layer);
    float* mask = Saved() + f_.saved_mask(layer + 1);
    const auto scale = static_cast<float>(1 / (1 - f_.dropout));
    const auto threshold = static_cast<uint64_t>(f_.dropout * 0x1p32);
    const int64_t size = f_.rows() * f_.width();
    const uint64_t position = execution_.scalars.offset + static_cast<uint64_t>(layer * size);
    ParallelFor(size, kParallelGrain, [&](int64_t begin, int64_t end) {
      RandomWords words(execution_.scalars.seed, position + static_cast<uint64_t>(begin));
      for (int64_t i = begin; i < end; ++i) {
        mask[i] = words.Next() >= threshold ? scale : 0.0f;
        out[i] *= mask[i];
      }
    });
  }

  const RnnForwardSpec& f_;
  const PackedWeights& packing_;
  const Workspace& places_;
  const float* weights_;
  const Execution& execution_;
  singa::rnn::Steps steps_;
  const float* hx_;
  const float* cx_;
  float* own_;
  int64_t columns_;  ///< between rows of the gates
};

/// In inference it takes the weights packed, since graphs prepare constant ones once.
class ForwardPlan final : public Plan {
 public:
  ForwardPlan(const RnnForwardSpec& spec, int64_t lanes)
      : Plan("cpu"),
        spec_(spec),
        packing_(spec, lanes),
        layout_(spec.training || spec.is_half() ? nullptr : PackedLayout(spec, lanes)),
        places_(spec, packing_, !layout_) {}

  std::string Describe() const override { return "cpu panels of units"; }
  LayoutPtr input_layout(size_t i) const override { return i == 3 ? layout_ : nullptr; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(places_.floats.size()) * sizeof(float);
  }
  size_t bytes() const override {
    return sizeof(*this) + static_cast<size_t>(packing_.panel_count()) * sizeof(Panel);
  }

  void Run(const Execution& execution) const override {
    if (spec_.batch == 0) return;
    float* own = static_cast<float*>(execution.workspace);
    const auto run = [&](const RnnForwardSpec& spec, const Execution& execution) {
      const float* weights = execution.in<float>(3);
      if (!layout_) {
        packing_.Pack(weights, own + places_.packed);
        weights = own + places_.packed;
      }
      Forward(spec, packing_, places_, weights, execution).Run();
    };
    if (spec_.is_half()) {
      singa::rnn::RunInFloat32(spec_, execution, own + places_.copies, run);
    } else {
      run(spec_, execution);
    }
  }

 private:
  RnnForwardSpec spec_;
  PackedWeights packing_;
  LayoutPtr layout_;
  Workspace places_;
};

std::string Refuses(const RnnForwardSpec& spec) { return RefusesType(spec.dtype); }

PlanOrReason Make(const RnnForwardSpec& spec) { return MakePlan(spec, Lanes()); }

}  // namespace

PlanPtr MakePlan(const RnnForwardSpec& spec, int64_t lanes) {
  return std::make_shared<ForwardPlan>(spec, lanes);
}

SINGA_KERNELS(cpu) {
  Register<RnnForwardSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::cpu::rnn

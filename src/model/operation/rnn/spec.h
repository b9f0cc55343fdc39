#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "core/tensor/alignment.h"
#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "model/operation/saved_form.h"
#include "singa/core/dtype.h"
#include "singa/core/error.h"
#include "singa/operation/rnn.h"

namespace singa {

template <>
inline constexpr int kEnumSize<RnnMode> = 5;

/// Geometry of a recurrent network, and the places of its parts in two flat tensors: the weights
/// (see RnnHandle), and the tensor that forward saves for backward.
///
/// The saved tensor, in the common form, holds one layer after the other:
///   for layers above the first, the layer's input (steps, batch, directions·hidden), and with
///   dropout the mask that it was multiplied by (0 or 1 / (1 − ratio)), of the same shape;
///   for each direction, the gates (steps, batch, gate_columns) after their activations, LSTM's
///   cells, and the hidden states, both (steps, batch, hidden). Beyond a sequence's length, states
///   repeat the last one.
///
/// 16-bit types are computed in float32 and rounded where they are stored. Implementations differ
/// in the states that they round in between: `reference` rounds none, cuDNN all hidden ones.
struct RnnFields {
  RnnMode mode;
  DType dtype;
  int64_t steps;
  int64_t batch;
  int64_t input;
  int64_t hidden;
  int64_t layers;
  int64_t directions;
  bool bias;
  double dropout;                ///< between layers; 0 outside training
  bool training;                 ///< forward: saves for backward
  int alignment = kVectorBytes;  ///< of the weights: see alignment.h

  SINGA_FIELDS(mode, dtype, steps, batch, input, hidden, layers, directions, bias, dropout,
               training, alignment);

  void CheckFields(const CallChecker& call) const;
  Shape x_shape() const { return {steps, batch, input}; }
  Shape y_shape() const { return {steps, batch, width()}; }
  Shape state_shape() const { return {layers * directions, batch, hidden}; }
  /// Of 16 bits. The common form of what is saved is float32 then.
  bool is_half() const { return dtype == kFloat16 || dtype == kBFloat16; }
  DType saved_dtype() const { return is_half() ? kFloat32 : dtype; }
  /// Rows of W_ih and W_hh: gates · hidden.
  int64_t gate_rows() const { return (mode == RnnMode::kLstm ? 4 : is_gru() ? 3 : 1) * hidden; }
  /// LSTM i, f, g, o; GRU r, z, n and (W_hn·h + b_hn), which r multiplies, or where the reset gate
  /// comes before the product r·h. The plain ones' only gate is the hidden state.
  int64_t gate_columns() const { return mode == RnnMode::kLstm || is_gru() ? 4 * hidden : 0; }
  bool is_gru() const { return mode == RnnMode::kGru || resets_before(); }
  bool resets_before() const { return mode == RnnMode::kGruResetBefore; }
  bool has_cells() const { return mode == RnnMode::kLstm; }
  int64_t rows() const { return steps * batch; }
  int64_t states() const { return layers * directions * batch * hidden; }
  /// Features of a layer's output.
  int64_t width() const { return directions * hidden; }
  int64_t layer_input(int64_t layer) const { return layer == 0 ? input : width(); }
  /// Of forward's products.
  int64_t products() const {
    int64_t columns = 0;
    for (int64_t layer = 0; layer < layers; ++layer) columns += layer_input(layer) + hidden;
    return rows() * directions * gate_rows() * columns;
  }
  /// Random numbers that forward takes.
  int64_t mask_size() const { return dropout > 0 ? (layers - 1) * rows() * width() : 0; }

  // Places in the flat weights. `part` = layer · directions + direction.
  int64_t w_ih(int64_t part) const {
    const int64_t layer = part / directions;
    const int64_t before = layer == 0 ? 0 : directions * (input + (layer - 1) * width());
    return gate_rows() * (before + part * hidden + part % directions * layer_input(layer));
  }
  int64_t w_hh(int64_t part) const {
    return w_ih(part) + gate_rows() * layer_input(part / directions);
  }
  int64_t b_ih(int64_t part) const { return w_ih(layers * directions) + 2 * part * gate_rows(); }
  int64_t b_hh(int64_t part) const { return b_ih(part) + gate_rows(); }
  int64_t weights_size() const {
    return bias ? b_ih(layers * directions) : w_ih(layers * directions);
  }

  // Places in what is saved.
  int64_t saved_layer(int64_t layer) const {
    return layer * directions * saved_direction() +
           (layer == 0 ? 0 : (layer - 1) * rows() * width() * (dropout > 0 ? 2 : 1));
  }
  int64_t saved_input(int64_t layer) const { return saved_layer(layer); }
  int64_t saved_mask(int64_t layer) const { return saved_layer(layer) + rows() * width(); }
  int64_t saved_gates(int64_t part) const {
    const int64_t layer = part / directions;
    return saved_layer(layer + 1) - (directions - part % directions) * saved_direction();
  }
  int64_t saved_cells(int64_t part) const { return saved_gates(part) + rows() * gate_columns(); }
  int64_t saved_hidden(int64_t part) const {
    return saved_cells(part) + (has_cells() ? rows() * hidden : 0);
  }
  int64_t saved_size() const { return saved_layer(layers); }

 private:
  int64_t saved_direction() const {
    return rows() * (gate_columns() + (has_cells() ? 2 : 1) * hidden);
  }
};

/// Raises std::invalid_argument for lengths outside [0, steps]. None: all sequences are whole.
inline void CheckLengths(const char* op, const RnnFields& fields,
                         std::span<const int32_t> lengths) {
  for (size_t n = 0; n < lengths.size(); ++n)
    Check(lengths[n] >= 0 && lengths[n] <= fields.steps, op, "seq_lengths[", n, "] = ", lengths[n],
          " is outside [0, ", fields.steps, "]");
}

/// Scalars: those of the dropout, whose random words are the layers' one after the other.
struct RnnForwardSpec : RnnFields {
  const char* op() const { return "RnnForward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", x_shape(), dtype);
    visit.Input("hx", state_shape(), dtype, {.optional = true});
    visit.Input("cx", state_shape(), dtype, {.given = has_cells(), .optional = true});
    visit.Input("W", {weights_size()}, dtype, {.weight = true});
    visit.Input("seq_lengths", {batch}, kInt32, {.optional = true, .any_device = true});
    visit.Output("y", y_shape(), dtype);
    visit.Output("hy", state_shape(), dtype);
    visit.Output("cy", state_shape(), dtype, {.given = has_cells()});
    visit.Output("saved", {saved_size()}, saved_dtype(), {.given = training, .saved = true});
  }
  int64_t multiply_adds() const { return products(); }  ///< for the profile
  int64_t sum_length() const { return steps * (hidden + std::max(input, width())); }
  // `saved` may be in a private form, whose place is none for the reference's.
  void MakeReference() { training = false; }
};

struct RnnBackwardSpec : RnnFields {
  SavedForm saved = SavedForm::kCommon;

  const char* op() const { return "RnnBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", y_shape(), dtype, {.optional = true});
    visit.Input("dhy", state_shape(), dtype, {.optional = true});
    visit.Input("dcy", state_shape(), dtype, {.given = has_cells(), .optional = true});
    visit.Input("x", x_shape(), dtype);
    visit.Input("hx", state_shape(), dtype, {.optional = true});
    visit.Input("cx", state_shape(), dtype, {.given = has_cells(), .optional = true});
    visit.Input("W", {weights_size()}, dtype, {.weight = true});
    visit.Input("seq_lengths", {batch}, kInt32, {.optional = true, .any_device = true});
    visit.Input("saved", {saved_size()}, saved_dtype(),
                {.private_form = saved == SavedForm::kPrivate});
    visit.Output("dx", x_shape(), dtype);
    visit.Output("dhx", state_shape(), dtype);
    visit.Output("dcx", state_shape(), dtype, {.given = has_cells()});
    visit.Output("dW", {weights_size()}, dtype);
  }
  void CheckFields(const CallChecker& call) const;
  int64_t multiply_adds() const { return 2 * products(); }  ///< for the profile
  int64_t sum_length() const { return rows() * (hidden + std::max(input, width())); }
  /// The common form can be had from the arguments, unless random numbers are in it.
  void MakeReference() {
    if (dropout == 0) saved = SavedForm::kCommon;
  }
  void ReferenceInputs(std::vector<Tensor>* inputs) const;

  SINGA_MORE_FIELDS(RnnFields, saved);
};

}  // namespace singa

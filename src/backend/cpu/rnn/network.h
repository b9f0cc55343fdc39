#pragma once

// A recurrent network on the CPU, as its kernels see it: packed weights, and the division of a step
// among threads.

#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/parts.h"
#include "backend/cpu/rnn/panels.h"
#include "backend/cpu/rnn/team.h"
#include "model/operation/rnn/spec.h"
#include "singa/core/layout.h"

namespace singa::cpu::rnn {

/// The weights of all layers for forward: both matrices of a layer and direction in panels of units
/// with all their gates, then the biases as they are. A GRU that resets before the product has two
/// phases in a step, and panels for each.
class PackedWeights {
 public:
  PackedWeights(const RnnFields& fields, int64_t lanes);

  int64_t phases() const { return static_cast<int64_t>(panels_.size()); }
  const Panels& panels(int64_t phase) const { return panels_[static_cast<size_t>(phase)]; }
  /// Panels of all phases.
  int64_t panel_count() const;
  /// Place of a phase's part of W_ih and W_hh, of part = layer · directions + direction.
  int64_t w_ih(int64_t part, int64_t phase) const {
    return Matrices(part) + before_[static_cast<size_t>(phase)] * Inputs(part);
  }
  int64_t w_hh(int64_t part, int64_t phase) const {
    return Matrices(part) + width_ * Inputs(part) +
           before_[static_cast<size_t>(phase)] * fields_.hidden;
  }
  /// What to add to a place in the plain weights to get that of a bias.
  int64_t bias_shift() const { return biases_ - fields_.b_ih(0); }
  int64_t size() const { return biases_ + fields_.weights_size() - fields_.b_ih(0); }

  void Pack(const float* weights, float* packed) const;
  void Unpack(const float* packed, float* weights) const;

 private:
  int64_t Inputs(int64_t part) const { return fields_.layer_input(part / fields_.directions); }
  int64_t Matrices(int64_t part) const;
  /// Calls visit(panels, panel, place in the plain weights, in the packed ones, depth) for each
  /// panel, on all threads.
  template <class Visit>
  void ForEachPanel(const Visit& visit) const;

  RnnFields fields_;
  std::vector<Panels> panels_;
  std::vector<int64_t> before_;  ///< widths of earlier phases
  int64_t width_ = 0;
  int64_t biases_ = 0;
};

/// The layout of flat weights as PackedWeights.
LayoutPtr PackedLayout(const RnnFields& fields, int64_t lanes);

/// How to divide a step of `multiply_adds` for all sequences of one direction, whose units have
/// `panels`.
Division Divide(const RnnFields& fields, int64_t panels, int64_t multiply_adds);

/// Sequences of a group of a Division.
struct Block {
  int64_t direction, first, last;
  int64_t rows() const { return last - first; }
};
Block BlockOf(const RnnFields& fields, const Division& division, int64_t group);

/// Panels [first, last) of a part of a Division.
struct PanelRange {
  int64_t first, last;
};
inline PanelRange PanelsOf(int64_t panels, const Division& division, int64_t part) {
  return {panels * part / division.parts, panels * (part + 1) / division.parts};
}

/// Vector width of this CPU's kernels: 8 or 16 floats.
int64_t Lanes();
/// Why our kernels do not compute this type; empty if they do.
std::string RefusesType(DType dtype);

/// Multiply-adds that justify another thread.
inline constexpr int64_t kProductGrain = int64_t{1} << 17;

/// out (rows x panels, `row_step` apart) = a · panels, on all threads; added if `add`.
void Multiply(int64_t rows, int64_t depth, const Strided& a, const Panels& panels,
              const float* packed, float* out, int64_t row_step, int64_t gate_step, bool add);

}  // namespace singa::cpu::rnn

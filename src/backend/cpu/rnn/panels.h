#pragma once

// Matrices packed into panels, the right operands of products (tile.h).
//
// The columns of such a matrix are units, or the gates of units: a panel holds all gates of some
// neighbouring units, so that the thread that computes a product has what the cells of its units
// need. A panel is [depth][vector][lane], and vector v holds gate v / units of units v % units,
// counted in vectors. Columns beyond the last unit are zero.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu/rnn/tile.h"
#include "core/tensor/round_up.h"

namespace singa::cpu::rnn {

/// Gates that lie in the same panels.
struct PanelGates {
  int64_t first, count;
};

struct Panel {
  PanelGates gates;
  int64_t first_unit, units;  ///< those that exist
  int64_t unit_vectors;
  int64_t place;  ///< in the packed matrix, in floats for each row

  int64_t vectors() const { return gates.count * unit_vectors; }
  /// The places of the results in rows of gates, which are `gate_step` apart.
  Target To(float* data, int64_t row_step, int64_t gate_step, int64_t lanes, bool add) const;
};

/// The panels of some gates of all units.
class Panels {
 public:
  Panels() = default;
  Panels(int64_t units, PanelGates gates, int64_t lanes);

  int64_t lanes() const { return lanes_; }
  int64_t count() const { return static_cast<int64_t>(panels_.size()); }
  const Panel& operator[](int64_t i) const { return panels_[static_cast<size_t>(i)]; }
  /// Floats of the packed matrix for each row.
  int64_t width() const { return width_; }

  /// Packs a matrix of `depth` rows: element (i, gate, unit) is at
  /// from[i · row_step + (gate · all units + unit) · column_step]. One of the steps is 1. Only rows
  /// [begin, end) of the panel.
  void Pack(int64_t panel, const float* from, int64_t row_step, int64_t column_step, int64_t depth,
            int64_t begin, int64_t end, float* packed) const;
  /// The reverse, of one panel.
  void Unpack(int64_t panel, const float* packed, int64_t row_step, int64_t column_step,
              int64_t depth, float* to) const;

 private:
  int64_t units_ = 0, lanes_ = 0, width_ = 0;
  std::vector<Panel> panels_;
};

}  // namespace singa::cpu::rnn

#include "backend/cpu/rnn/panels.h"

#include "core/device/parallel.h"

namespace singa::cpu::rnn {
namespace {

/// Rows [begin, end) of one vector of a panel, from `count` columns.
SINGA_MULTI_ISA void PackVector(const float* from, int64_t row_step, int64_t column_step,
                                int64_t count, int64_t begin, int64_t end, int64_t lanes,
                                int64_t step, float* to) {
  for (int64_t i = begin; i < end; ++i) {
    float* row = to + i * step;
    for (int64_t lane = 0; lane < count; ++lane)
      row[lane] = from[i * row_step + lane * column_step];
    for (int64_t lane = count; lane < lanes; ++lane) row[lane] = 0;
  }
}

}  // namespace

Target Panel::To(float* data, int64_t row_step, int64_t gate_step, int64_t lanes, bool add) const {
  Target target{data, row_step, {}, {}, {}};
  for (int64_t v = 0; v < vectors(); ++v) {
    const int64_t gate = gates.first + v / unit_vectors, unit = v % unit_vectors * lanes;
    target.place[v] = gate * gate_step + first_unit + unit;
    target.count[v] = std::min(lanes, units - unit);
    target.add[v] = add;
  }
  return target;
}

Panels::Panels(int64_t units, PanelGates gates, int64_t lanes) : units_(units), lanes_(lanes) {
  const int64_t most = std::max<int64_t>(1, kMostVectors / gates.count);
  const int64_t vectors = CeilDivide(units, lanes);
  for (int64_t first = 0; first < vectors; first += most) {
    const int64_t here = std::min(most, vectors - first), unit = first * lanes;
    panels_.push_back({gates, unit, std::min(units - unit, here * lanes), here, width_});
    width_ += here * gates.count * lanes;
  }
}

void Panels::Pack(int64_t panel, const float* from, int64_t row_step, int64_t column_step,
                  int64_t depth, int64_t begin, int64_t end, float* packed) const {
  const Panel& p = (*this)[panel];
  float* to = packed + p.place * depth;
  for (int64_t v = 0; v < p.vectors(); ++v) {
    const int64_t gate = p.gates.first + v / p.unit_vectors, unit = v % p.unit_vectors * lanes_;
    PackVector(from + (gate * units_ + p.first_unit + unit) * column_step, row_step, column_step,
               std::min(lanes_, p.units - unit), begin, end, lanes_, p.vectors() * lanes_,
               to + v * lanes_);
  }
}

void Panels::Unpack(int64_t panel, const float* packed, int64_t row_step, int64_t column_step,
                    int64_t depth, float* to) const {
  const Panel& p = (*this)[panel];
  const float* from = packed + p.place * depth;
  for (int64_t v = 0; v < p.vectors(); ++v) {
    const int64_t gate = p.gates.first + v / p.unit_vectors, unit = v % p.unit_vectors * lanes_;
    float* columns = to + (gate * units_ + p.first_unit + unit) * column_step;
    for (int64_t i = 0; i < depth; ++i)
      for (int64_t lane = 0; lane < std::min(lanes_, p.units - unit); ++lane)
        columns[i * row_step + lane * column_step] = from[(i * p.vectors() + v) * lanes_ + lane];
  }
}

}  // namespace singa::cpu::rnn

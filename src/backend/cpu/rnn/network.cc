#include "backend/cpu/rnn/network.h"

#include <algorithm>

#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "singa/core/threads.h"

namespace singa::cpu::rnn {
namespace {

std::vector<PanelGates> PhasesOf(const RnnFields& fields) {
  if (fields.resets_before()) return {{0, 2}, {2, 1}};
  return {{0, fields.gate_rows() / fields.hidden}};
}

}  // namespace

PackedWeights::PackedWeights(const RnnFields& fields, int64_t lanes) : fields_(fields) {
  for (const PanelGates& gates : PhasesOf(fields)) {
    panels_.emplace_back(fields.hidden, gates, lanes);
    before_.push_back(width_);
    width_ += panels_.back().width();
  }
  biases_ = Matrices(fields.layers * fields.directions);
}

int64_t PackedWeights::panel_count() const {
  int64_t count = 0;
  for (const Panels& panels : panels_) count += panels.count();
  return count;
}

int64_t PackedWeights::Matrices(int64_t part) const {
  // As in RnnFields::w_ih, with wider rows.
  const int64_t layer = part / fields_.directions;
  const int64_t before =
      layer == 0 ? 0 : fields_.directions * (fields_.input + (layer - 1) * fields_.width());
  return width_ *
         (before + part * fields_.hidden + part % fields_.directions * fields_.layer_input(layer));
}

template <class Visit>
void PackedWeights::ForEachPanel(const Visit& visit) const {
  const int64_t parts = fields_.layers * fields_.directions, each = panel_count();
  const int64_t grain = std::max<int64_t>(1, kParallelGrain * each / (width_ * fields_.hidden));
  ParallelFor(parts * each, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i / each;
      int64_t panel = i % each, phase = 0;
      for (; panel >= panels(phase).count(); ++phase) panel -= panels(phase).count();
      visit(panels(phase), panel, fields_.w_ih(part), w_ih(part, phase), Inputs(part));
      visit(panels(phase), panel, fields_.w_hh(part), w_hh(part, phase), fields_.hidden);
    }
  });
}

void PackedWeights::Pack(const float* weights, float* packed) const {
  ForEachPanel([&](const Panels& panels, int64_t panel, int64_t from, int64_t to, int64_t depth) {
    panels.Pack(panel, weights + from, 1, depth, depth, 0, depth, packed + to);
  });
  std::copy(weights + fields_.b_ih(0), weights + fields_.weights_size(), packed + biases_);
}

void PackedWeights::Unpack(const float* packed, float* weights) const {
  ForEachPanel([&](const Panels& panels, int64_t panel, int64_t to, int64_t from, int64_t depth) {
    panels.Unpack(panel, packed + from, 1, depth, depth, weights + to);
  });
  std::copy(packed + biases_, packed + size(), weights + fields_.b_ih(0));
}

namespace {

class WeightsLayout final : public OpaqueLayout {
 public:
  WeightsLayout(const RnnFields& fields, int64_t lanes)
      : OpaqueLayout({fields.weights_size()}, kFloat32),
        key_{static_cast<int64_t>(fields.mode),
             fields.input,
             fields.hidden,
             fields.layers,
             fields.directions,
             fields.bias,
             lanes},
        weights_(fields, lanes) {}

  const char* backend() const override { return "cpu"; }
  size_t bytes() const override { return static_cast<size_t>(weights_.size()) * sizeof(float); }
  size_t hash() const override {
    size_t hash = 0;
    for (const int64_t number : key_) hash = hash * 1000003 + static_cast<size_t>(number);
    return hash;
  }
  bool Equals(const OpaqueLayout& other) const override {
    const auto* same = dynamic_cast<const WeightsLayout*>(&other);
    return same && same->key_ == key_;
  }
  std::string ToString() const override { return "rnn" + std::to_string(key_.back()) + "u"; }
  void Pack(const void* plain, void* opaque) const override {
    weights_.Pack(static_cast<const float*>(plain), static_cast<float*>(opaque));
  }
  void Unpack(const void* opaque, void* plain) const override {
    weights_.Unpack(static_cast<const float*>(opaque), static_cast<float*>(plain));
  }

 private:
  std::vector<int64_t> key_;
  PackedWeights weights_;
};

}  // namespace

LayoutPtr PackedLayout(const RnnFields& fields, int64_t lanes) {
  return std::make_shared<WeightsLayout>(fields, lanes);
}

Division Divide(const RnnFields& fields, int64_t panels, int64_t multiply_adds) {
  constexpr int64_t kStepGrain = int64_t{1} << 16;  // threads meet after each step
  constexpr int64_t kFewRows = 8;                   // fewer are slower to multiply
  const int64_t threads = NumThreads();
  const int64_t worth = std::clamp<int64_t>(multiply_adds / kStepGrain, 1,
                                            std::max<int64_t>(1, threads / fields.directions));
  const int64_t parts = std::min(worth, panels);
  const int64_t blocks =
      std::clamp<int64_t>(worth / parts, 1, std::max<int64_t>(1, fields.batch / kFewRows));
  return {fields.directions * blocks, parts};
}

Block BlockOf(const RnnFields& fields, const Division& division, int64_t group) {
  const int64_t blocks = division.groups / fields.directions, block = group % blocks;
  return {group / blocks, fields.batch * block / blocks, fields.batch * (block + 1) / blocks};
}

int64_t Lanes() { return AllowedInstructionSet() >= InstructionSet::kAvx512 ? 16 : 8; }

std::string RefusesType(DType dtype) {
  return dtype == kFloat64 ? "float64 is not vectorised" : "";
}

void Multiply(int64_t rows, int64_t depth, const Strided& a, const Panels& panels,
              const float* packed, float* out, int64_t row_step, int64_t gate_step, bool add) {
  constexpr int64_t kRows = 48;  // a multiple of the rows of most tiles
  const int64_t chunks = CeilDivide(rows, kRows);
  const int64_t work = std::min(rows, kRows) * depth * panels.width() / panels.count();
  ParallelFor(panels.count() * chunks, kProductGrain / std::max<int64_t>(1, work) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const Panel& panel = panels[i / chunks];
                  const int64_t first = i % chunks * kRows, count = std::min(kRows, rows - first);
                  MultiplyPanel(
                      panels.lanes(), panel.vectors(), count, depth,
                      {a.data + first * a.row_step, a.row_step, a.column_step},
                      packed + panel.place * depth,
                      panel.To(out + first * row_step, row_step, gate_step, panels.lanes(), add));
                }
              });
}

}  // namespace singa::cpu::rnn

#include "backend/cpu/linalg/few_rows.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/vector.h"
#include "core/device/cache_size.h"
#include "core/device/inline.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"

namespace singa::cpu {
namespace {

/// Adds to `sums`, [panel][row][column of the panel], the products of `rows` rows of x, [row][d],
/// and of kDepth rows of w, in their order. Rows of w stay in registers and x in the first-level
/// cache, so w is read from memory once, as a few long streams. The sums are another stream.
template <int64_t kLanes, int kDepth, int kVectors>
SINGA_MULTI_ISA void AddProducts(const float* x, int64_t rows, const float* w, int64_t w_step,
                                 int64_t panels, float* sums) {
  for (int64_t panel = 0; panel < panels; ++panel, w += kVectors * kLanes) {
    Vec<kLanes> right[kDepth][kVectors];
#pragma GCC unroll 16
    for (int d = 0; d < kDepth; ++d)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) Load(right[d][v], w + d * w_step + v * kLanes);
    for (int64_t r = 0; r < rows; ++r, sums += kVectors * kLanes) {
      Vec<kLanes> sum[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) Load(sum[v], sums + v * kLanes);
#pragma GCC unroll 16
      for (int d = 0; d < kDepth; ++d) {
        const float left = x[r * kDepth + d];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[v] += left * right[d][v];
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) Store(sums + v * kLanes, sum[v]);
    }
  }
}

/// y = x + bias (null: none), then ReLU if `relu`.
SINGA_INLINE void Finish(const float* x, const float* bias, bool relu, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = bias ? x[i] + bias[i] : x[i];
    y[i] = relu && value <= 0.0f ? 0.0f : value;
  }
}

/// AddProducts for `depth` rows of w and for one, in panels of `columns`.
struct Loops {
  using Add = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*);
  Add add, add_row;
  int64_t depth, columns;
  int64_t sums;  ///< elements of a tile, which stay in a cache
};

template <int64_t kLanes, int kDepth, int kVectors>
constexpr Loops kLoops(int64_t sums) {
  return {AddProducts<kLanes, kDepth, kVectors>, AddProducts<kLanes, 1, kVectors>, kDepth,
          kVectors * kLanes, sums};
}

/// With few rows memory is the limit, and more streams are faster. With more rows multiplying is:
/// two vectors share each load of x, and long rows of w their streams' beginnings.
Loops LoopsFor(int64_t rows) {
  constexpr int64_t kFirstLevel = 1 << 13, kSecondLevel = 1 << 16;
  if (VectorLanes() == 16)
    return rows <= 8 ? kLoops<16, 16, 1>(kFirstLevel) : kLoops<16, 8, 2>(kSecondLevel);
  return rows <= 8 ? kLoops<8, 8, 1>(kFirstLevel) : kLoops<8, 4, 2>(kSecondLevel);
}

class FewRowsPlan final : public Plan {
 public:
  explicit FewRowsPlan(const MatMulSpec& spec)
      : Plan("few rows"), spec_(spec), loops_(LoopsFor(spec.m)) {
    const int64_t most = std::max<int64_t>(loops_.sums / spec.m, 2 * loops_.columns);
    const int64_t share = CeilDivide(spec.n, spec.threads);
    width_ = RoundUp(CeilDivide(share, CeilDivide(share, most)), loops_.columns);
  }
  std::string Describe() const override { return "few rows"; }

  void Run(const Execution& execution) const override {
    const MatMulSpec& s = spec_;
    const float *x = execution.in<float>(0), *w = execution.in<float>(1);
    const float* bias = s.c_rows > 0 ? execution.in<float>(2) : nullptr;
    auto* y = execution.out<float>(0);
    ParallelFor(CeilDivide(s.n, width_), kParallelGrain / (s.k * width_) + 1,
                [&](int64_t begin, int64_t end) {
                  Buffers buffers(*this);
                  for (int64_t tile = begin; tile < end; ++tile)
                    ComputeTile(x, w, bias, tile * width_, buffers, y);
                });
  }

 private:
  struct Buffers {
    explicit Buffers(const FewRowsPlan& plan)
        : sums(plan.spec_.m * plan.width_),
          x(plan.spec_.m * plan.loops_.depth),
          w(plan.loops_.depth * plan.loops_.columns) {}
    std::vector<float> sums, x, w;
  };

  /// Columns [first, first + width) of y.
  void ComputeTile(const float* x, const float* w, const float* bias, int64_t first,
                   Buffers& buffers, float* y) const {
    const MatMulSpec& s = spec_;
    const int64_t columns = std::min(width_, s.n - first);
    std::fill(buffers.sums.begin(), buffers.sums.end(), 0.0f);
    for (int64_t at = 0; at < s.k;) {
      const bool whole = at + loops_.depth <= s.k;
      const int64_t depth = whole ? loops_.depth : 1;
      for (int64_t r = 0; r < s.m; ++r)
        std::copy_n(x + r * s.k + at, depth, buffers.x.data() + r * depth);
      AddRows(whole ? loops_.add : loops_.add_row, depth, w + at * s.n + first, columns, buffers);
      at += depth;
    }
    const int64_t panel = loops_.columns;
    for (int64_t c = 0; c < columns; c += panel)
      for (int64_t r = 0; r < s.m; ++r)
        Finish(buffers.sums.data() + c * s.m + r * panel, bias ? bias + first + c : nullptr, s.relu,
               std::min(panel, columns - c), y + r * s.n + first + c);
  }

  /// The products of `depth` rows of w. The last columns are copied to a panel of their own.
  void AddRows(Loops::Add add, int64_t depth, const float* w, int64_t columns,
               Buffers& buffers) const {
    const int64_t panel = loops_.columns, whole = columns / panel, rest = columns % panel;
    add(buffers.x.data(), spec_.m, w, spec_.n, whole, buffers.sums.data());
    if (rest == 0) return;
    for (int64_t d = 0; d < depth; ++d)
      std::copy_n(w + d * spec_.n + whole * panel, rest, buffers.w.data() + d * panel);
    add(buffers.x.data(), spec_.m, buffers.w.data(), panel, 1,
        buffers.sums.data() + whole * panel * spec_.m);
  }

  MatMulSpec spec_;
  Loops loops_;
  int64_t width_;  // of a tile
};

constexpr int64_t kMostRows = 64;

std::string Refuses(const MatMulSpec& s) {
  if (s.dtype != kFloat32) return "few rows are multiplied in float32";
  if (VectorLanes() < 8) return "this CPU's vectors are too short for it to pay";
  if (s.m > kMostRows) return "there are many rows";
  if (s.m < 2 || s.k == 0 || s.batch_count() != 1 || s.alpha != 1 || s.trans_a || s.trans_b)
    return "it is no product of some rows and a matrix";
  if (s.c_rows > 0 && !(s.c_rows == 1 && s.c_cols == s.n && s.beta == 1))
    return "what is added is no row";
  return "";
}

constexpr const char* kSlower = "a library reads the matrix as it lies, or few times";

PlanPtr MakePlan(const MatMulSpec& spec) { return std::make_shared<FewRowsPlan>(spec); }

PlanOrReason Make(const MatMulSpec& spec) {
  if (!FewRowsPay(spec)) return PlanOrReason::None(kSlower);
  return MakePlan(spec);
}

std::vector<Candidate> Candidates(const MatMulSpec& spec) {
  return {{"few rows", [spec] { return MakePlan(spec); }, 0, FewRowsPay(spec) ? "" : kSlower}};
}

}  // namespace

bool FewRowsPay(const MatMulSpec& spec) {
  const int64_t row = spec.n * static_cast<int64_t>(sizeof(float));
  const bool large = spec.k * row >= kStreamedBytes;
  // Elements of a column share a few sets of the caches, so oneDNN copies the matrix.
  const bool conflicts = row % 4096 == 0 || row == 2048;
  return conflicts ? spec.m <= spec.k / 16 : large && spec.m <= 8;
}

SINGA_KERNELS(cpu) {
  Register<MatMulSpec>(DeviceKind::kCpu, "few rows",
                       {.refuses = Refuses, .make = Make, .candidates = Candidates, .priority = 1});
}

}  // namespace singa::cpu

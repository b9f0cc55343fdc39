// Attention by tiles of 32 queries and 32 keys in shared memory, with a running maximum and sum for
// each query (Dao et al. 2022). The heads' features come in pieces, so any number of them fits: a
// block sums 64 features of the results, and computes the scores that it needs again. Sums have one
// order, and no block adds to another's results.

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/kernels/scalar_argument.h"
#include "model/formula/attention.h"
#include "model/operation/attention/arguments.h"
#include "model/operation/attention/spec.h"

namespace singa::cuda {
namespace {

constexpr int kTile = kWarpThreads;  // queries, keys, and features of a piece of q and k
constexpr int kStep = kTile + 1;     // padded, so that a column lies in different banks
constexpr int kColumns = 64;         // features of the results
constexpr int kColumnStep = kColumns + 1;
constexpr int kSide = 16;  // threads along each side of a tile
constexpr int kThreads = kSide * kSide;
constexpr int kEach = kTile / kSide;  // rows of a tile for each thread, and columns of scores
constexpr int kEachColumn = kColumns / kSide;  // columns of results
constexpr int kWarps = kThreads / kWarpThreads;

/// What follows from the scalars.
struct Numbers {
  double scale;
  int64_t first_query;
  formula::AttentionDropout dropout;
};

struct MaskArgument {
  const void* data = nullptr;
  DType dtype = kFloat32;
  int64_t batch = 1;  ///< masks, which repeat along the batch
  int64_t stride[4] = {};

  MaskArgument() = default;
  explicit MaskArgument(const Tensor& mask) {
    if (mask.empty()) return;
    data = mask.raw_data();
    dtype = mask.data_type();
    batch = mask.shape(0);
    for (int i = 0; i < 4; ++i) stride[i] = mask.strides()[i];
  }
  template <class C>
  __device__ C At(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t at = b % batch * stride[0] + h * stride[1] + i * stride[2] + j * stride[3];
    if (dtype != kBool) return LoadAs<C>(data, dtype, at);
    return static_cast<const bool*>(data)[at] ? C(0) : -std::numeric_limits<C>::infinity();
  }
};

/// The arguments of all kernels.
template <class T>
struct Attention {
  using C = ComputeType<T>;
  AttentionRows<const T> q, k, v;
  MaskArgument mask;
  int64_t heads, kv_heads, queries, keys, dim, value_dim;
  bool causal, has_dropout;
  ScalarArgument<Numbers> numbers;

  Attention(const AttentionGeometry& g, const Execution& execution, size_t first_input,
            const ScalarArgument<Numbers>& scalars)
      : q(execution.inputs[first_input]),
        k(execution.inputs[first_input + 1]),
        v(execution.inputs[first_input + 2]),
        mask(execution.inputs[first_input + 3]),
        heads(g.heads),
        kv_heads(g.kv_heads),
        queries(g.queries),
        keys(g.keys),
        dim(g.dim),
        value_dim(g.value_dim),
        causal(g.causal),
        has_dropout(g.has_dropout),
        numbers(scalars) {}

  __device__ int64_t KeysOf(const Numbers& n, int64_t i) const {
    return causal ? formula::CausalKeys(n.first_query, i, keys) : keys;
  }
  /// From the sum q · k; -inf where the query does not use the key.
  __device__ C Score(const Numbers& n, int64_t b, int64_t h, int64_t i, int64_t j, C sum) const {
    if (i >= queries || j >= KeysOf(n, i)) return -std::numeric_limits<C>::infinity();
    const C score = static_cast<C>(n.scale) * sum;
    return mask.data ? score + mask.template At<C>(b, h, i, j) : score;
  }
  /// Dropout's factor of a weight.
  __device__ C Factor(const formula::AttentionDropout& dropout, int64_t b, int64_t h, int64_t i,
                      int64_t j) const {
    if (!has_dropout) return C(1);
    const int64_t row = (b * heads + h) * queries + i;
    RandomWords words(dropout.seed, dropout.Row(row) + static_cast<uint64_t>(j));
    return words.Next() < dropout.threshold ? C(0) : static_cast<C>(dropout.factor);
  }
};

/// This thread's elements of a tile: rows and columns first + e · kSide.
struct Place {
  int row = static_cast<int>(threadIdx.x) / kSide, column = static_cast<int>(threadIdx.x) % kSide;
};

/// tile[r][c] = element (row0 + r, column0 + c) of a head's rows, zero outside (rows, columns).
template <int kWidth, class C, class T, class Shared>
__device__ void LoadTile(const AttentionRows<const T>& x, int64_t b, int64_t h, int64_t row0,
                         int64_t rows, int64_t column0, int64_t columns, Shared& tile) {
  for (int e = static_cast<int>(threadIdx.x); e < kTile * kWidth; e += kThreads) {
    const int r = e / kWidth, c = e % kWidth;
    const bool there = row0 + r < rows && column0 + c < columns;
    tile[r * (kWidth + 1) + c] = there ? Cast<C>(x.At(b, h, row0 + r)[column0 + c]) : C(0);
  }
}

/// sums[i][j] = a(row i) · b(row j) over `depth` features. Ends with a barrier.
template <class C, class T, class Shared>
__device__ void MultiplyRows(const AttentionRows<const T>& a, int64_t a_head, int64_t a0,
                             int64_t a_rows, const AttentionRows<const T>& b, int64_t b_head,
                             int64_t b0, int64_t b_rows, int64_t batch, int64_t depth, Shared& left,
                             Shared& right, C (&sums)[kEach][kEach]) {
  const Place place;
  for (int i = 0; i < kEach; ++i)
    for (int j = 0; j < kEach; ++j) sums[i][j] = 0;
  for (int64_t d0 = 0; d0 < depth; d0 += kTile) {
    LoadTile<kTile, C>(a, batch, a_head, a0, a_rows, d0, depth, left);
    LoadTile<kTile, C>(b, batch, b_head, b0, b_rows, d0, depth, right);
    __syncthreads();
    for (int d = 0; d < kTile; ++d)
#pragma unroll
      for (int i = 0; i < kEach; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j)
          sums[i][j] = std::fma(left[(place.row + i * kSide) * kStep + d],
                                right[(place.column + j * kSide) * kStep + d], sums[i][j]);
    __syncthreads();
  }
}

/// sums[i][e] += Σ over d of the element (row i, d) of `weights`, transposed (d, row i), times
/// element (d, column e) of `tile`.
template <bool kTransposed, class C, class Weights, class Shared>
__device__ void AddProducts(const Weights& weights, const Shared& tile,
                            C (&sums)[kEach][kEachColumn]) {
  const Place place;
  for (int d = 0; d < kTile; ++d)
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int row = place.row + i * kSide;
      const C weight = weights[kTransposed ? d * kStep + row : row * kStep + d];
#pragma unroll
      for (int e = 0; e < kEachColumn; ++e)
        sums[i][e] = std::fma(weight, tile[d * kColumnStep + place.column + e * kSide], sums[i][e]);
    }
}

/// Stores factor · sums, the tile at (row0, column0) of a head's rows.
template <class C, class T>
__device__ void StoreTile(const C (&sums)[kEach][kEachColumn], C factor,
                          const AttentionRows<T>& out, int64_t b, int64_t h, int64_t row0,
                          int64_t rows, int64_t column0, int64_t columns) {
  const Place place;
  for (int i = 0; i < kEach; ++i)
    for (int e = 0; e < kEachColumn; ++e) {
      const int64_t row = row0 + place.row + i * kSide;
      const int64_t column = column0 + place.column + e * kSide;
      if (row < rows && column < columns) out.At(b, h, row)[column] = Cast<T>(sums[i][e] * factor);
    }
}

struct Larger {  // ignores NaN, which the sum keeps
  template <class C>
  __device__ C operator()(C a, C b) const {
    return b > a ? b : a;
  }
};

/// The tile of a head, from the number of a block.
struct Block {
  int64_t batch, head, first;
  __device__ Block(int64_t index, int64_t heads, int64_t rows) {
    const int64_t tiles = (rows + kTile - 1) / kTile;
    first = index % tiles * kTile;
    head = index / tiles % heads;
    batch = index / tiles / heads;
  }
};
dim3 GridOf(int64_t batch_heads, int64_t rows, int64_t columns) {
  const auto count = [](int64_t n, int64_t of) { return static_cast<unsigned>((n + of - 1) / of); };
  return dim3(static_cast<unsigned>(batch_heads) * count(rows, kTile),
              std::max(count(columns, kColumns), 1u));
}

__global__ void __launch_bounds__(1)
    StoreDraw(ScalarArgument<formula::AttentionDrawn> drawn, int64_t* out) {
  const formula::AttentionDrawn value = drawn.Get();
  out[0] = static_cast<int64_t>(value.seed);
  out[1] = static_cast<int64_t>(value.offset);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    Forward(Attention<T> a, AttentionRows<T> y, ComputeType<T>* logsumexp) {
  using C = ComputeType<T>;
  constexpr C kInf = std::numeric_limits<C>::infinity();
  SINGA_SHARED(C, kTile * kStep, left);
  SINGA_SHARED(C, kTile * kStep, right);
  SINGA_SHARED(C, kTile * kStep, weights);
  SINGA_SHARED(C, kTile * kColumnStep, values);
  SINGA_SHARED(C, kTile, most);
  SINGA_SHARED(C, kTile, sum);
  SINGA_SHARED(C, kTile, factor);
  const Numbers n = a.numbers.Get();
  const Block block(blockIdx.x, a.heads, a.queries);
  const int64_t b = block.batch, h = block.head, i0 = block.first;
  const int64_t kv_head = h / (a.heads / a.kv_heads), column0 = int64_t{blockIdx.y} * kColumns;
  const int64_t last = (i0 + kTile < a.queries ? i0 + kTile : a.queries) - 1;
  const int64_t end = a.KeysOf(n, last);  // of the query that uses most keys
  const Place place;
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  C results[kEach][kEachColumn] = {};
  if (threadIdx.x < kTile) {
    most[threadIdx.x] = -kInf;
    sum[threadIdx.x] = 0;
  }
  for (int64_t j0 = 0; j0 < end; j0 += kTile) {
    C scores[kEach][kEach];
    MultiplyRows<C>(a.q, h, i0, a.queries, a.k, kv_head, j0, a.keys, b, a.dim, left, right, scores);
    for (int i = 0; i < kEach; ++i)
      for (int j = 0; j < kEach; ++j) {
        const int row = place.row + i * kSide, column = place.column + j * kSide;
        weights[row * kStep + column] = a.Score(n, b, h, i0 + row, j0 + column, scores[i][j]);
      }
    LoadTile<kColumns, C>(a.v, b, kv_head, j0, a.keys, column0, a.value_dim, values);
    __syncthreads();
    for (int row = warp; row < kTile; row += kWarps) {
      const C score = weights[row * kStep + lane], before = most[row];
      const C now = JoinWarp(Larger()(before, score), Larger());
      const C shift = now == -kInf ? C(0) : now;  // no key yet: all weights are exp(-inf)
      const C weight = std::exp(score - shift), scaled = std::exp(before - shift);
      const C total = JoinWarp(weight, Plus());
      weights[row * kStep + lane] = weight * (i0 + row < a.queries && j0 + lane < a.keys
                                                  ? a.Factor(n.dropout, b, h, i0 + row, j0 + lane)
                                                  : C(0));
      __syncwarp();  // all lanes have read the row's statistics
      if (lane == 0) {
        most[row] = now;
        sum[row] = sum[row] * scaled + total;
        factor[row] = scaled;
      }
    }
    __syncthreads();
    for (int i = 0; i < kEach; ++i)
      for (int e = 0; e < kEachColumn; ++e) results[i][e] *= factor[place.row + i * kSide];
    AddProducts<false>(weights, values, results);
    __syncthreads();
  }
  __syncthreads();  // where there are no keys, the statistics have just been set
  for (int i = 0; i < kEach; ++i) {
    const C total = sum[place.row + i * kSide];
    const C inverse = total == C(0) ? C(0) : C(1) / total;
    for (int e = 0; e < kEachColumn; ++e) results[i][e] *= inverse;
  }
  StoreTile(results, C(1), y, b, h, i0, a.queries, column0, a.value_dim);
  const int64_t i = i0 + threadIdx.x;
  if (threadIdx.x < kTile && i < a.queries && blockIdx.y == 0) {
    const C total = sum[threadIdx.x], shift = most[threadIdx.x];
    logsumexp[(b * a.heads + h) * a.queries + i] = total == C(0)    ? -kInf
                                                   : shift == -kInf ? total
                                                                    : shift + std::log(total);
  }
}

/// The other arguments of backward.
template <class T>
struct Gradients {
  using C = ComputeType<T>;
  AttentionRows<const T> dy;
  const C* logsumexp;
  const C* along;        ///< Σ dy · y of each query
  const uint64_t* draw;  ///< null without dropout

  __device__ formula::AttentionDropout Dropout(const Numbers& n) const {
    formula::AttentionDropout dropout = n.dropout;
    if (draw) dropout.MoveTo({draw[0], draw[1]});
    return dropout;
  }
};

/// Σ dy · y: a warp for each query.
template <class T>
__global__ void __launch_bounds__(kThreads)
    Along(AttentionRows<const T> dy, AttentionRows<const T> y, int64_t heads, int64_t queries,
          int64_t value_dim, int64_t rows, ComputeType<T>* out) {
  using C = ComputeType<T>;
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpThreads;
  if (row >= rows) return;
  const int64_t i = row % queries, h = row / queries % heads, b = row / queries / heads;
  C sum = 0;
  for (int64_t e = threadIdx.x % kWarpThreads; e < value_dim; e += kWarpThreads)
    sum += Cast<C>(dy.At(b, h, i)[e]) * Cast<C>(y.At(b, h, i)[e]);
  sum = JoinWarp(sum, Plus());
  if (threadIdx.x % kWarpThreads == 0) out[row] = sum;
}

/// Of a tile of queries and keys: this thread's weights of v, and the gradients of its scores. Ends
/// with a barrier.
template <class T, class Shared>
__device__ void WeightsAndGradients(const Attention<T>& a, const Gradients<T>& g, const Numbers& n,
                                    const formula::AttentionDropout& dropout, int64_t b, int64_t h,
                                    int64_t kv_head, int64_t i0, int64_t j0, Shared& left,
                                    Shared& right, ComputeType<T> (&weights)[kEach][kEach],
                                    ComputeType<T> (&gradients)[kEach][kEach]) {
  using C = ComputeType<T>;
  constexpr C kInf = std::numeric_limits<C>::infinity();
  MultiplyRows<C>(a.q, h, i0, a.queries, a.k, kv_head, j0, a.keys, b, a.dim, left, right, weights);
  MultiplyRows<C>(g.dy, h, i0, a.queries, a.v, kv_head, j0, a.keys, b, a.value_dim, left, right,
                  gradients);
  const Place place;
  for (int r = 0; r < kEach; ++r)
    for (int c = 0; c < kEach; ++c) {
      const int64_t i = i0 + place.row + r * kSide, j = j0 + place.column + c * kSide;
      if (i >= a.queries || j >= a.keys) {
        weights[r][c] = gradients[r][c] = 0;
        continue;
      }
      const int64_t row = (b * a.heads + h) * a.queries + i;
      const C log_sum = g.logsumexp[row];
      const C weight =
          std::exp(a.Score(n, b, h, i, j, weights[r][c]) - (log_sum == -kInf ? C(0) : log_sum));
      const C factor = a.Factor(dropout, b, h, i, j);
      gradients[r][c] = weight * (factor * gradients[r][c] - g.along[row]);
      weights[r][c] = weight * factor;
    }
}

/// dk and dv of a tile of keys, from all queries of all heads that use it. Null: not wanted.
template <class T>
__global__ void __launch_bounds__(kThreads)
    KeyGradients(Attention<T> a, Gradients<T> g, AttentionRows<T> dk, AttentionRows<T> dv) {
  using C = ComputeType<T>;
  SINGA_SHARED(C, kTile * kStep, left);
  SINGA_SHARED(C, kTile * kStep, right);
  SINGA_SHARED(C, kTile * kColumnStep, rows);
  const Numbers n = a.numbers.Get();
  const formula::AttentionDropout dropout = g.Dropout(n);
  const Block block(blockIdx.x, a.kv_heads, a.keys);
  const int64_t b = block.batch, kv_head = block.head, j0 = block.first;
  const int64_t group = a.heads / a.kv_heads, column0 = int64_t{blockIdx.y} * kColumns;
  const Place place;
  C dk_sums[kEach][kEachColumn] = {}, dv_sums[kEach][kEachColumn] = {};
  for (int64_t h = kv_head * group; h < (kv_head + 1) * group; ++h)
    for (int64_t i0 = 0; i0 < a.queries; i0 += kTile) {
      const int64_t last = (i0 + kTile < a.queries ? i0 + kTile : a.queries) - 1;
      if (a.KeysOf(n, last) <= j0) continue;  // no query of the tile uses these keys
      C weights[kEach][kEach], gradients[kEach][kEach];
      WeightsAndGradients(a, g, n, dropout, b, h, kv_head, i0, j0, left, right, weights, gradients);
      for (int r = 0; r < kEach; ++r)
        for (int c = 0; c < kEach; ++c) {
          const int at = (place.row + r * kSide) * kStep + place.column + c * kSide;
          left[at] = weights[r][c];
          right[at] = gradients[r][c];
        }
      LoadTile<kColumns, C>(g.dy, b, h, i0, a.queries, column0, a.value_dim, rows);
      __syncthreads();
      AddProducts<true>(left, rows, dv_sums);
      __syncthreads();
      LoadTile<kColumns, C>(a.q, b, h, i0, a.queries, column0, a.dim, rows);
      __syncthreads();
      AddProducts<true>(right, rows, dk_sums);
      __syncthreads();
    }
  if (dk.data)
    StoreTile(dk_sums, static_cast<C>(n.scale), dk, b, kv_head, j0, a.keys, column0, a.dim);
  if (dv.data) StoreTile(dv_sums, C(1), dv, b, kv_head, j0, a.keys, column0, a.value_dim);
}

/// dq of a tile of queries.
template <class T>
__global__ void __launch_bounds__(kThreads)
    QueryGradients(Attention<T> a, Gradients<T> g, AttentionRows<T> dq) {
  using C = ComputeType<T>;
  SINGA_SHARED(C, kTile * kStep, left);
  SINGA_SHARED(C, kTile * kStep, right);
  SINGA_SHARED(C, kTile * kColumnStep, keys);
  const Numbers n = a.numbers.Get();
  const formula::AttentionDropout dropout = g.Dropout(n);
  const Block block(blockIdx.x, a.heads, a.queries);
  const int64_t b = block.batch, h = block.head, i0 = block.first;
  const int64_t kv_head = h / (a.heads / a.kv_heads), column0 = int64_t{blockIdx.y} * kColumns;
  const int64_t last = (i0 + kTile < a.queries ? i0 + kTile : a.queries) - 1;
  const int64_t end = a.KeysOf(n, last);
  const Place place;
  C sums[kEach][kEachColumn] = {};
  for (int64_t j0 = 0; j0 < end; j0 += kTile) {
    C weights[kEach][kEach], gradients[kEach][kEach];
    WeightsAndGradients(a, g, n, dropout, b, h, kv_head, i0, j0, left, right, weights, gradients);
    for (int r = 0; r < kEach; ++r)
      for (int c = 0; c < kEach; ++c)
        left[(place.row + r * kSide) * kStep + place.column + c * kSide] = gradients[r][c];
    LoadTile<kColumns, C>(a.k, b, kv_head, j0, a.keys, column0, a.dim, keys);
    __syncthreads();
    AddProducts<false>(left, keys, sums);
    __syncthreads();
  }
  StoreTile(sums, static_cast<C>(n.scale), dq, b, h, i0, a.queries, column0, a.dim);
}

/// A gradient of the mask: (masks, H or 1, N or 1, M or 1).
template <class C>
struct MaskResult {
  C* data;
  int64_t batch, heads, queries, keys;
};

/// A tile of the gradient of the mask, summed over the axes along which the mask broadcasts.
template <class T>
__global__ void __launch_bounds__(kThreads)
    MaskGradients(Attention<T> a, Gradients<T> g, int64_t batch, MaskResult<ComputeType<T>> out) {
  using C = ComputeType<T>;
  SINGA_SHARED(C, kTile * kStep, left);
  SINGA_SHARED(C, kTile * kStep, right);
  const Numbers n = a.numbers.Get();
  const formula::AttentionDropout dropout = g.Dropout(n);
  const Block block(blockIdx.x, out.heads, out.queries);
  const int64_t row0 = block.first, column0 = int64_t{blockIdx.y} * kTile;
  const Place place;
  C sums[kEach][kEach] = {};
  // Where the mask has one element along an axis, all of the axis; else the block's part of it.
  const auto begin = [](int64_t extent, int64_t own) { return extent == 1 ? 0 : own; };
  const auto end = [](int64_t extent, int64_t own, int64_t all) {
    return extent == 1 ? all : own + 1;
  };
  for (int64_t b = block.batch; b < batch; b += out.batch)
    for (int64_t h = begin(out.heads, block.head); h < end(out.heads, block.head, a.heads); ++h)
      for (int64_t i0 = begin(out.queries, row0); i0 < end(out.queries, row0, a.queries);
           i0 += kTile)
        for (int64_t j0 = begin(out.keys, column0); j0 < end(out.keys, column0, a.keys);
             j0 += kTile) {
          const int64_t last = (i0 + kTile < a.queries ? i0 + kTile : a.queries) - 1;
          if (a.KeysOf(n, last) <= j0) continue;  // no query of the tile uses these keys
          C weights[kEach][kEach], gradients[kEach][kEach];
          WeightsAndGradients(a, g, n, dropout, b, h, h / (a.heads / a.kv_heads), i0, j0, left,
                              right, weights, gradients);
          for (int r = 0; r < kEach; ++r)
            for (int c = 0; c < kEach; ++c) sums[r][c] += gradients[r][c];
        }
  for (int r = 0; r < kEach; ++r)
    for (int c = 0; c < kEach; ++c)
      left[(place.row + r * kSide) * kStep + place.column + c * kSide] = sums[r][c];
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x);
  if (out.queries == 1 && lane < kTile) {
    C sum = 0;
    for (int r = 0; r < kTile; ++r) sum += left[r * kStep + lane];
    left[lane] = sum;
  }
  __syncthreads();
  if (out.keys == 1 && lane < kTile) {
    C sum = 0;
    for (int c = 0; c < kTile; ++c) sum += left[lane * kStep + c];
    left[lane * kStep] = sum;
  }
  __syncthreads();
  C* to = out.data + (block.batch * out.heads + block.head) * out.queries * out.keys;
  for (int e = lane; e < kTile * kTile; e += kThreads) {
    const int64_t i = row0 + e / kTile, j = column0 + e % kTile;
    if (i < out.queries && j < out.keys) to[i * out.keys + j] = left[e / kTile * kStep + e % kTile];
  }
}

ScalarArgument<Numbers> NumbersOf(const AttentionGeometry& g, const Execution& execution) {
  return ScalarArgumentOf(execution, [keys = g.keys](const Scalars& s) {
    return Numbers{s.v[0], static_cast<int64_t>(s.v[2]),
                   formula::AttentionDropout({s.seed, s.offset}, keys, s.v[1])};
  });
}

void RunForward(const AttentionForwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  if (spec.has_dropout)
    LaunchIndependent(StoreDraw, 1, 1, stream,
                      ScalarArgumentOf(execution,
                                       [](const Scalars& s) {
                                         return formula::AttentionDrawn{s.seed, s.offset};
                                       }),
                      execution.out<int64_t>(2));
  if (spec.logsumexp_shape().Count() == 0) return;
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    Launch(Forward<T>, GridOf(spec.batch * spec.heads, spec.queries, spec.value_dim), kThreads,
           stream, Attention<T>(spec, execution, 0, NumbersOf(spec, execution)),
           AttentionRows<T>(execution.outputs[0]), execution.out<ComputeType<T>>(1));
  });
}

template <class T>
AttentionRows<T> RowsOrNull(const Tensor& t, const Tensor& like) {
  AttentionRows<T> rows(t.empty() ? like : t);
  if (t.empty()) rows.data = nullptr;
  return rows;
}

void RunBackward(const AttentionBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t rows = spec.logsumexp_shape().Count();
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const auto& outputs = execution.outputs;
    const Attention<T> a(spec, execution, 1, NumbersOf(spec, execution));
    auto* along = static_cast<C*>(execution.workspace);
    const Gradients<T> g{AttentionRows<const T>(execution.inputs[0]), execution.in<C>(6), along,
                         spec.has_dropout ? execution.in<uint64_t>(7) : nullptr};
    Launch(Along<T>, static_cast<unsigned>((rows + kWarps - 1) / kWarps), kThreads, stream, g.dy,
           AttentionRows<const T>(execution.inputs[5]), spec.heads, spec.queries, spec.value_dim,
           rows, along);
    if (spec.need_k || spec.need_v)
      Launch(KeyGradients<T>,
             GridOf(spec.batch * spec.kv_heads, spec.keys,
                    std::max(spec.need_k ? spec.dim : 0, spec.need_v ? spec.value_dim : 0)),
             kThreads, stream, a, g, RowsOrNull<T>(outputs[1], execution.inputs[2]),
             RowsOrNull<T>(outputs[2], execution.inputs[3]));
    if (spec.need_q)
      Launch(QueryGradients<T>, GridOf(spec.batch * spec.heads, spec.queries, spec.dim), kThreads,
             stream, a, g, AttentionRows<T>(outputs[0]));
    if (const Shape& mask = spec.dmask; spec.need_mask() && mask.Count() > 0)
      Launch(MaskGradients<T>,
             dim3(GridOf(mask[0] * mask[1], mask[2], 0).x,
                  static_cast<unsigned>((mask[3] + kTile - 1) / kTile)),
             kThreads, stream, a, g, spec.batch,
             MaskResult<C>{execution.out<C>(3), mask[0], mask[1], mask[2], mask[3]});
  });
}

size_t BackwardWorkspace(const AttentionBackwardSpec& spec) {
  const auto rows = static_cast<size_t>(spec.logsumexp_shape().Count());
  return rows * (spec.dtype == kFloat64 ? sizeof(double) : sizeof(float));
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<AttentionForwardSpec, RunForward>();
  RegisterKernels<AttentionBackwardSpec, RunBackward, BackwardWorkspace>();
}

}  // namespace singa::cuda

#include "backend/cpu/parts_product/product.h"

#include <algorithm>

#include "core/device/cache_size.h"
#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "core/tensor/round_up.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace singa::cpu::parts_product {

using batch_blocked::kSide;
using batch_blocked::kSums;
using batch_blocked::MultiplyParts;
using batch_blocked::Session;

namespace {

constexpr int64_t kSumsBytes = kPanelSums * static_cast<int64_t>(sizeof(float));

/// Multiply-adds that are worth a second thread.
constexpr int64_t kWorthThreads = int64_t{1} << 20;
/// Panels of a block along one side; more if there are few along the other one. The sums and the
/// packed panels of a block stay in the second-level cache.
constexpr int64_t kSidePanels = 8, kMostPanels = 16;
/// Bytes of the largest packed factor that is kept for all blocks.
constexpr int64_t kShared = int64_t{16} << 20;
/// Sums are cut into pieces where there are few results and many terms.
constexpr int64_t kPieceChunks = 8, kMostPieces = 16, kPairsOfPieces = 256;

int64_t StepsOf(int64_t terms, int64_t chunk) {
  return CeilDivide(std::min(kChunk, terms - chunk * kChunk), batch_blocked::kDepth);
}

void StoreRows(const float* sums, const TilePlaces& p, const Finish& f) {
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < p.columns; ++c) {
      float value = f.alpha * sums[r * kSide + c];
      if (p.first[r]) value += f.beta * p.first[r][c * p.first_step];
      if (p.second[r]) value += p.second[r][c];
      p.to[r][c] = f.relu && value <= 0.0f ? 0.0f : value;
    }
}

#if defined(__x86_64__)

__attribute__((target("avx512f"))) void StoreVectors(const float* sums, const TilePlaces& p,
                                                     const Finish& f) {
  const __m512 alpha = _mm512_set1_ps(f.alpha), beta = _mm512_set1_ps(f.beta);
  const auto mask = static_cast<__mmask16>((1u << p.columns) - 1);
  for (int64_t r = 0; r < p.rows; ++r) {
    __m512 value = _mm512_mul_ps(_mm512_load_ps(sums + r * kSide), alpha);
    if (p.first[r]) {
      const __m512 first =
          p.first_step == 0 ? _mm512_set1_ps(*p.first[r]) : _mm512_maskz_loadu_ps(mask, p.first[r]);
      value = _mm512_add_ps(value, _mm512_mul_ps(first, beta));
    }
    if (p.second[r]) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, p.second[r]));
    if (f.relu) {
      const __mmask16 kept = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NLE_UQ);
      value = _mm512_maskz_mov_ps(kept, value);
    }
    if (f.streams)
      _mm512_stream_ps(p.to[r], value);
    else
      _mm512_mask_storeu_ps(p.to[r], mask, value);
  }
}

#endif

/// Lets other threads see what was streamed.
void EndStores(const Finish& finish) {
#if defined(__x86_64__)
  if (finish.streams) _mm_sfence();
#else
  (void)finish;
#endif
}

}  // namespace

SINGA_MULTI_ISA void AddSums(const float* a, const float* b, float* sum) {
#pragma GCC ivdep
  for (int64_t k = 0; k < kPanelSums; ++k) sum[k] = a[k] + b[k];
}

bool CanStream(const float* to, int64_t row_step, int64_t bytes) {
  return AllowedInstructionSet() >= InstructionSet::kAvx512 && bytes >= kStreamedBytes &&
         row_step % kSide == 0 && reinterpret_cast<uintptr_t>(to) % 64 == 0;
}

void StoreTile(const float* sums, const TilePlaces& places, const Finish& finish) {
#if defined(__x86_64__)
  if (AllowedInstructionSet() >= InstructionSet::kAvx512) return StoreVectors(sums, places, finish);
#endif
  StoreRows(sums, places, finish);
}

void MatrixTarget::Store(int64_t batch, int64_t row, int64_t column, const float* sums) const {
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 2; ++j) {
      const int64_t r = row + i * kSide, c = column + j * kSide;
      TilePlaces places;
      places.rows = std::min(kSide, rows - r);
      places.columns = std::min(kSide, columns - c);
      if (places.rows <= 0 || places.columns <= 0) continue;
      places.first_step = addend_column;
      for (int64_t k = 0; k < places.rows; ++k) {
        places.to[k] = data + batch * batch_step + (r + k) * columns + c;
        places.first[k] = addend ? addend + (r + k) * addend_row + c * addend_column : nullptr;
        places.second[k] = nullptr;
      }
      StoreTile(sums + (2 * i + j) * kSums, places, finish);
    }
}

/// Packed panels of one chunk.
struct BlockedProduct::Panels {
  BFloat16* packed;
  uint32_t* largest;  ///< of each panel
  int64_t step;       ///< between panels, in packed panels
  int64_t size;       ///< elements of a packed panel

  BFloat16* at(int64_t panel) const { return packed + panel * step * size; }
  uint32_t& largest_of(int64_t panel) const { return largest[panel * step]; }
};

size_t BlockedProduct::BytesOf(int64_t panels) const {
  return static_cast<size_t>(panels * packed_bytes_ +
                             RoundUp(panels * static_cast<int64_t>(sizeof(uint32_t)), 64));
}

/// `count` packed panels in memory of BytesOf(count).
BlockedProduct::Panels BlockedProduct::PanelsIn(char* memory, int64_t count, int64_t step) const {
  return {reinterpret_cast<BFloat16*>(memory),
          reinterpret_cast<uint32_t*>(memory + count * packed_bytes_), step, packed_};
}

BlockedProduct::BlockedProduct(const PartsUnit& by, const Sizes& sizes, int threads)
    : by_(by),
      packed_(PackedSize(by.parts)),
      packed_bytes_(packed_ * static_cast<int64_t>(sizeof(BFloat16))),
      sizes_(sizes),
      threads_(sizes.batch * sizes.rows * sizes.columns * sizes.terms < kWorthThreads
                   ? 1
                   : std::max(threads, 1)),
      row_panels_(CeilDivide(sizes.rows, kPanel)),
      column_panels_(CeilDivide(sizes.columns, kPanel)),
      chunks_(std::max<int64_t>(CeilDivide(sizes.terms, kChunk), 1)) {
  const int64_t pairs = sizes.batch * row_panels_ * column_panels_;
  pieces_ =
      std::clamp<int64_t>(std::min(chunks_ / kPieceChunks, kPairsOfPieces / pairs), 1, kMostPieces);

  // A block is longer along the factor with fewer panels, which if it is small is packed once for
  // all blocks: so the other factor is packed less often.
  const bool tall = row_panels_ >= column_panels_;
  rows_ = std::min(row_panels_, tall && column_panels_ > kSidePanels ? kSidePanels : kMostPanels);
  columns_ =
      std::min(column_panels_, !tall && row_panels_ > kSidePanels ? kSidePanels : kMostPanels);
  row_blocks_ = CeilDivide(row_panels_, rows_);
  column_blocks_ = CeilDivide(column_panels_, columns_);
  const auto units = [&] { return sizes.batch * pieces_ * row_blocks_ * column_blocks_; };
  while (units() < 4 * threads_ && units() % threads_ != 0) {
    if (row_blocks_ < row_panels_ && rows_ >= columns_)
      ++row_blocks_;
    else if (column_blocks_ < column_panels_)
      ++column_blocks_;
    else if (row_blocks_ < row_panels_)
      ++row_blocks_;
    else
      break;
    rows_ = CeilDivide(row_panels_, row_blocks_);
    columns_ = CeilDivide(column_panels_, column_blocks_);
  }
  // A packed factor takes half as much memory again as the factor itself, so large ones are packed
  // for each block.
  const auto fits = [&](int64_t panels) { return panels * chunks_ * packed_bytes_ <= kShared; };
  if (sizes.batch == 1) {
    const bool right = column_panels_ <= row_panels_;
    shares_right_ = right && row_blocks_ > 1 && fits(column_panels_);
    shares_left_ = !right && column_blocks_ > 1 && fits(row_panels_);
  }
  const int64_t shared = shares_left_ ? row_panels_ : shares_right_ ? column_panels_ : 0;
  shared_bytes_ = BytesOf(shared * chunks_);
  own_bytes_ = BytesOf(shares_left_ ? 0 : rows_) + BytesOf(shares_right_ ? 0 : columns_) +
               static_cast<size_t>(rows_ * columns_ * kSumsBytes);
  partial_bytes_ = pieces_ > 1 ? static_cast<size_t>(pieces_ * pairs * kSumsBytes) : 0;
}

size_t BlockedProduct::workspace_bytes() const {
  return shared_bytes_ + static_cast<size_t>(threads_) * own_bytes_ + partial_bytes_;
}

void BlockedProduct::Run(const Factor& left, const Factor& right, const Target& target,
                         void* workspace) const {
  auto* shared = static_cast<char*>(workspace);
  char* own = shared + shared_bytes_;
  auto* partial = reinterpret_cast<float*>(own + static_cast<size_t>(threads_) * own_bytes_);
  if (shares_left_ || shares_right_) PackShared(shares_left_ ? left : right, shared);
  const int64_t units = sizes_.batch * pieces_ * row_blocks_ * column_blocks_;
  ParallelItems(units, threads_, [&](Items& items) {
    const Session session(by_.unit);
    char* memory = own + static_cast<size_t>(items.thread()) * own_bytes_;
    for (const int64_t i : items) RunUnit(i, left, right, target, shared, memory, partial);
    EndStores(target.finish);
  });
  if (pieces_ > 1) AddPieces(target, partial);
}

void BlockedProduct::PackShared(const Factor& factor, char* memory) const {
  const int64_t panels = shares_left_ ? row_panels_ : column_panels_;
  const Side side = shares_left_ ? Side::kLeft : Side::kRight;
  const Panels packed = PanelsIn(memory, panels * chunks_, 1);
  ParallelFor(
      panels * chunks_, kParallelGrain / (kPanel * kChunk), [&](int64_t begin, int64_t end) {
        const auto locate = [&](int64_t i, Runs* runs) {
          factor.Locate(0, i / chunks_ * kPanel, i % chunks_ * kChunk, runs);
        };
        Runs runs[2];
        locate(begin, &runs[begin % 2]);
        for (int64_t i = begin; i < end; ++i) {
          Runs& next = runs[(i + 1) % 2];
          locate(std::min(i + 1, end - 1), &next);
          packed.largest_of(i) = Pack(by_, side, factor.along(), runs[i % 2],
                                      StepsOf(sizes_.terms, i % chunks_), packed.at(i), next);
        }
      });
}

void BlockedProduct::RunUnit(int64_t unit, const Factor& left, const Factor& right,
                             const Target& target, const char* shared, char* own,
                             float* partial) const {
  struct Range {
    int64_t begin, end;
    Range(int64_t total, int64_t count, int64_t i)
        : begin(total * i / count), end(total * (i + 1) / count) {}
    int64_t size() const { return end - begin; }
  };
  // Blocks of one row follow each other, so that they find their rows in the caches.
  const Range columns(column_panels_, column_blocks_, unit % column_blocks_);
  unit /= column_blocks_;
  const Range rows(row_panels_, row_blocks_, unit % row_blocks_);
  unit /= row_blocks_;
  const int64_t piece = unit % pieces_, batch = unit / pieces_;
  const Range chunks(chunks_, pieces_, piece);

  // The panels of a chunk of one side, which are packed here unless all threads share them.
  const auto panels_of = [&](Side side, const Factor& factor, const Range& range, bool is_shared,
                             int64_t chunk, char* memory) {
    if (is_shared) {
      const int64_t all = side == Side::kLeft ? row_panels_ : column_panels_;
      Panels panels = PanelsIn(const_cast<char*>(shared), all * chunks_, chunks_);
      panels.packed += (range.begin * chunks_ + chunk) * packed_;
      panels.largest += range.begin * chunks_ + chunk;
      return panels;
    }
    const Panels panels = PanelsIn(memory, side == Side::kLeft ? rows_ : columns_, 1);
    const auto locate = [&](int64_t i, int64_t of, Runs* runs) {
      factor.Locate(batch, (range.begin + i) * kPanel, of * kChunk, runs);
    };
    Runs runs[2];
    locate(0, chunk, &runs[0]);
    for (int64_t i = 0; i < range.size(); ++i) {
      Runs& next = runs[(i + 1) % 2];
      if (i + 1 < range.size())
        locate(i + 1, chunk, &next);
      else
        locate(0, std::min(chunk + 1, chunks.end - 1), &next);
      panels.largest_of(i) = Pack(by_, side, factor.along(), runs[i % 2],
                                  StepsOf(sizes_.terms, chunk), panels.at(i), next);
    }
    return panels;
  };

  auto* block = reinterpret_cast<float*>(own);
  char* left_memory = own + rows_ * columns_ * kSumsBytes;
  char* right_memory = left_memory + BytesOf(shares_left_ ? 0 : rows_);
  // A panel stays in the first-level cache while it meets those of the other factor. Rows of the
  // result are stored as a whole where they are long.
  const bool by_rows = columns.size() >= std::min<int64_t>(rows.size(), kSidePanels);
  const int64_t inner = by_rows ? columns.size() : rows.size();
  for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
    const Panels a = panels_of(Side::kLeft, left, rows, shares_left_, chunk, left_memory);
    const Panels b = panels_of(Side::kRight, right, columns, shares_right_, chunk, right_memory);
    const int64_t steps = StepsOf(sizes_.terms, chunk);
    const bool first = chunk == chunks.begin, last = chunk + 1 == chunks.end;
    for (int64_t pair = 0; pair < rows.size() * columns.size(); ++pair) {
      const int64_t i = by_rows ? pair / inner : pair % inner;
      const int64_t j = by_rows ? pair % inner : pair / inner;
      const int64_t row = rows.begin + i, column = columns.begin + j;
      alignas(64) float sums[kPanelSums];
      float* kept = block + pair * kPanelSums;
      float* to = first && !last ? kept : sums;
      if (HasParts(a.largest_of(i), b.largest_of(j))) {
        MultiplyParts(by_, a.at(i), b.at(j), steps, to);
      } else {
        Runs left_runs, right_runs;
        left.Locate(batch, row * kPanel, chunk * kChunk, &left_runs);
        right.Locate(batch, column * kPanel, chunk * kChunk, &right_runs);
        MultiplyPlainly(left_runs, left.along(), right_runs, right.along(), steps, to);
      }
      // Sums of chunks are added apart: each step of a chunk would round all that came before.
      if (!first) AddSums(sums, kept, last ? sums : kept);
      if (!last) continue;
      if (pieces_ == 1) {
        target.Store(batch, row * kPanel, column * kPanel, sums);
      } else {
        const int64_t place = (piece * sizes_.batch + batch) * row_panels_ + row;
        std::copy_n(sums, kPanelSums, partial + (place * column_panels_ + column) * kPanelSums);
      }
    }
  }
}

void BlockedProduct::AddPieces(const Target& target, const float* partial) const {
  const int64_t pairs = sizes_.batch * row_panels_ * column_panels_;
  ParallelFor(pairs, kParallelGrain / kPanelSums / pieces_ + 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % column_panels_, row = i / column_panels_ % row_panels_;
      const int64_t batch = i / column_panels_ / row_panels_;
      alignas(64) float sums[kPanelSums] = {};
      for (int64_t piece = 0; piece < pieces_; ++piece) {
        const float* from = partial + (piece * pairs + i) * kPanelSums;
        AddSums(sums, from, sums);
      }
      target.Store(batch, row * kPanel, column * kPanel, sums);
    }
    EndStores(target.finish);
  });
}

}  // namespace singa::cpu::parts_product

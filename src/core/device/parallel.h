#pragma once

// Threads and instruction sets for loops on the CPU.
//
// A result must not depend on the number of threads. ParallelFor is for loops with independent
// iterations. Sums use ParallelReduce, which splits its range by length alone.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <type_traits>

// Compiles a function for several instruction sets; the dynamic loader selects one. Use it on the
// function or function template with the serial loop, not on one with an OpenMP region, whose body
// would be compiled for the baseline. Disabled under sanitizers, which cannot instrument the
// selection, and in debug builds, because it triples compile time.
#if defined(NDEBUG) && defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    __GNUC__ >= 12 && defined(__linux__) && !defined(__SANITIZE_ADDRESS__) &&             \
    !defined(__SANITIZE_THREAD__)
#define SINGA_HAS_MULTI_ISA
#define SINGA_MULTI_ISA \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SINGA_MULTI_ISA
#endif

namespace singa {

/// Number of elements of cheap work (an addition, a copy) below which a second thread does not pay
/// off.
inline constexpr int64_t kParallelGrain = 32768;

namespace detail {

/// Calls run(context, i) once for each i in [0, count), on up to NumThreads() threads. Serial if
/// count is 1 or the caller is already in a parallel region. Rethrows the first exception.
void RunPieces(int64_t count, void (*run)(const void* context, int64_t i), const void* context);
/// Number of pieces of [0, n), at most one per thread, that have at least `grain` iterations each.
int64_t CountPieces(int64_t n, int64_t grain);

}  // namespace detail

/// Calls body(begin, end) for disjoint ranges that cover [0, n). `grain` is the smallest number of
/// iterations that is worth a thread: kParallelGrain divided by the elements of one iteration.
template <class Body>
void ParallelFor(int64_t n, int64_t grain, const Body& body) {
  if (n <= 0) return;
  const int64_t pieces = detail::CountPieces(n, grain);
  if (pieces == 1) {
    body(int64_t{0}, n);
    return;
  }
  // Long ranges are split at multiples of 64, so that threads do not share cache lines.
  const int64_t unit = n >= pieces * 1024 ? 64 : 1;
  const int64_t step = ((n + pieces - 1) / pieces + unit - 1) / unit * unit;
  struct Context {
    const Body& body;
    int64_t n, step;
  } context{body, n, step};
  detail::RunPieces((n + step - 1) / step,
                    [](const void* opaque, int64_t i) {
                      const auto& c = *static_cast<const Context*>(opaque);
                      c.body(i * c.step, std::min(c.n, (i + 1) * c.step));
                    },
                    &context);
}

/// Calls body(thread) for each thread in [0, threads), for work with memory per thread.
template <class Body>
void ForEachThread(int threads, const Body& body) {
  detail::RunPieces(
      threads, [](const void* opaque, int64_t i) { (*static_cast<const Body*>(opaque))(i); },
      &body);
}

/// Reduces [0, n): `piece(begin, end)` returns the value of a range, and `combine(a, b)` joins
/// those of two neighbouring ranges. The ranges depend on n and `grain` alone and are joined
/// pairwise, so the result has the same bits for any number of threads. Returns `identity` for n =
/// 0.
template <class Value, class Piece, class Combine>
Value ParallelReduce(int64_t n, int64_t grain, Value identity, const Piece& piece,
                     const Combine& combine) {
  constexpr int64_t kMostPieces = 128;
  if (n <= 0) return identity;
  const int64_t wanted =
      std::clamp<int64_t>((n + grain - 1) / std::max<int64_t>(grain, 1), 1, kMostPieces);
  const int64_t step = (n + wanted - 1) / wanted;
  const int64_t pieces = (n + step - 1) / step;
  if (pieces == 1) return piece(int64_t{0}, n);
  std::array<Value, kMostPieces> partial;
  struct Context {
    const Piece& piece;
    Value* partial;
    int64_t n, step;
  } context{piece, partial.data(), n, step};
  detail::RunPieces(
      pieces,
      [](const void* opaque, int64_t i) {
        const auto& c = *static_cast<const Context*>(opaque);
        c.partial[i] = c.piece(i * c.step, std::min(c.n, (i + 1) * c.step));
      },
      &context);
  for (int64_t gap = 1; gap < pieces; gap *= 2)
    for (int64_t i = 0; i + gap < pieces; i += 2 * gap)
      partial[i] = combine(partial[i], partial[i + gap]);
  return partial[0];
}

}  // namespace singa

#pragma once

// Threads and instruction sets for loops on the CPU.
//
// A result must not depend on the number of threads, nor on which of them computes it. ParallelFor
// is for loops with independent iterations. Sums use ParallelReduce, which splits its range by
// length alone.
//
// Each thread has a share of a loop, in pieces that it takes in order. One that has none left takes
// pieces of others, from the far end of their shares. So a thread that another program keeps from
// running holds up at most the piece that it has begun, and where all run, each has the same share
// in every loop, whose memory its caches hold.

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

/// The most pieces into which a thread's share of a loop is cut.
inline constexpr int64_t kPiecesOfShare = 8;

/// In which order a thread takes the pieces of its share.
enum class Order { kForward, kBackward };

class Shares;

/// The items that one thread of a loop takes: `for (int64_t i : items)`.
class Items {
 public:
  /// Number of the thread, below the number of threads that the loop was given.
  int64_t thread() const { return thread_; }

  struct End {};
  struct Iterator {
    Items* items;
    int64_t at;
    int64_t operator*() const { return at; }
    void operator++() { at = items->Take(); }
    bool operator!=(End) const { return at >= 0; }
  };
  Iterator begin() { return {this, Take()}; }
  End end() const { return {}; }

 private:
  friend class Shares;
  /// All of [0, n), for one thread.
  explicit Items(int64_t n) : end_(n) {}
  Items(Shares* shares, int64_t thread) : shares_(shares), thread_(thread) {}

  /// The next item; -1 if there is none left.
  int64_t Take() {
    if (shares_) return TakeShared();
    return next_ < end_ ? next_++ : -1;
  }
  int64_t TakeShared();

  Shares* shares_ = nullptr;
  int64_t thread_ = 0, next_ = 0, end_ = 0;
};

namespace detail {

/// Calls run(context, items) on each of up to min(n, threads, NumThreads()) threads, whose items
/// are together [0, n), n < 2^32. One call for all items if that is one thread, or if the caller is
/// already in a parallel region. Rethrows the first exception; items may be left out then.
void RunItems(int64_t n, int64_t threads, Order order, void (*run)(const void*, Items&),
              const void* context);
/// Number of threads for [0, n), so that each has at least `grain` iterations.
int64_t CountThreads(int64_t n, int64_t grain);
}  // namespace detail

/// Calls body(items) on up to `threads` threads, for work with memory per thread. `items` gives
/// each of [0, n) to one of them.
template <class Body>
void ParallelItems(int64_t n, int64_t threads, const Body& body, Order order = Order::kForward) {
  detail::RunItems(
      n, threads, order,
      [](const void* opaque, Items& items) { (*static_cast<const Body*>(opaque))(items); }, &body);
}

/// Calls body(begin, end) for disjoint ranges that cover [0, n). `grain` is the smallest number of
/// iterations that is worth a thread: kParallelGrain divided by the elements of one iteration.
template <class Body>
void ParallelFor(int64_t n, int64_t grain, const Body& body, Order order = Order::kForward) {
  if (n <= 0) return;
  const int64_t threads = detail::CountThreads(n, grain);
  if (threads == 1) {
    body(int64_t{0}, n);
    return;
  }
  const int64_t worth = n / std::max<int64_t>(grain, 1) / threads;
  const int64_t pieces = threads * std::clamp<int64_t>(worth, 1, kPiecesOfShare);
  // Long ranges are split at multiples of 64, so that threads do not share cache lines.
  const int64_t unit = n >= pieces * 1024 ? 64 : 1, units = (n + unit - 1) / unit;
  ParallelItems(
      pieces, threads,
      [&](Items& items) {
        for (const int64_t i : items)
          body(units * i / pieces * unit, std::min(n, units * (i + 1) / pieces * unit));
      },
      order);
}

/// Calls body(thread) for each thread in [0, threads).
template <class Body>
void ForEachThread(int threads, const Body& body) {
  ParallelItems(threads, threads, [&](Items& items) {
    for (const int64_t thread : items) body(thread);
  });
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
  ParallelItems(pieces, pieces, [&](Items& items) {
    for (const int64_t i : items) partial[i] = piece(i * step, std::min(n, (i + 1) * step));
  });
  for (int64_t gap = 1; gap < pieces; gap *= 2)
    for (int64_t i = 0; i + gap < pieces; i += 2 * gap)
      partial[i] = combine(partial[i], partial[i + gap]);
  return partial[0];
}

}  // namespace singa

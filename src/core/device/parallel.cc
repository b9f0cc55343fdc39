#include "core/device/parallel.h"

#include <omp.h>

#include <exception>

#include "singa/core/threads.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace singa::detail {
namespace {

// The thread sanitizer does not see libgomp's synchronisation. These calls tell it that the fork
// happens before all pieces, and all pieces before the join. RunPieces is not instrumented, because
// the way in which OpenMP passes variables to its threads would be reported, too.
#ifdef __SANITIZE_THREAD__
#define SINGA_NOT_BY_TSAN __attribute__((no_sanitize("thread")))
void Release(const void* sync) { __tsan_release(const_cast<void*>(sync)); }
void Acquire(const void* sync) { __tsan_acquire(const_cast<void*>(sync)); }
#else
#define SINGA_NOT_BY_TSAN
void Release(const void*) {}
void Acquire(const void*) {}
#endif

}  // namespace

int64_t CountPieces(int64_t n, int64_t grain) {
  const int64_t worth = n / std::max<int64_t>(grain, 1);
  if (worth <= 1 || omp_in_parallel()) return 1;
  return std::min<int64_t>(worth, NumThreads());
}

SINGA_NOT_BY_TSAN
void RunPieces(int64_t count, void (*run)(const void* context, int64_t i), const void* context) {
  const int threads = static_cast<int>(std::min<int64_t>(count, NumThreads()));
  if (threads <= 1 || omp_in_parallel()) {
    for (int64_t i = 0; i < count; ++i) run(context, i);
    return;
  }
  std::exception_ptr error;  // exceptions must not leave an OpenMP region
  const char fork = 0, join = 0;
  Release(&fork);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; ++i) {
    Acquire(&fork);
    try {
      run(context, i);
    } catch (...) {
#pragma omp critical(singa_run_pieces)
      if (!error) error = std::current_exception();
    }
    Release(&join);
  }
  Acquire(&join);
  if (error) std::rethrow_exception(error);
}

}  // namespace singa::detail

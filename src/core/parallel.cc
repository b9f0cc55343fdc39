#include "core/parallel.h"

#include <omp.h>

#include <exception>

#include "singa/core/threads.h"

namespace singa::detail {

int64_t CountPieces(int64_t n, int64_t grain) {
  const int64_t worth = n / std::max<int64_t>(grain, 1);
  if (worth <= 1 || omp_in_parallel()) return 1;
  return std::min<int64_t>(worth, NumThreads());
}

void RunPieces(int64_t count, void (*run)(const void* context, int64_t i), const void* context) {
  const int threads = static_cast<int>(std::min<int64_t>(count, NumThreads()));
  if (threads <= 1 || omp_in_parallel()) {
    for (int64_t i = 0; i < count; ++i) run(context, i);
    return;
  }
  std::exception_ptr error;  // none may leave an OpenMP region
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; ++i) {
    try {
      run(context, i);
    } catch (...) {
#pragma omp critical(singa_run_pieces)
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace singa::detail

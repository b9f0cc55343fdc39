#if defined(__x86_64__)
#define SINGA_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#else
#define SINGA_TARGET  // instantiated, but never called
#endif

#include "backend/cpu/winograd/tiles_inl.h"

namespace singa::cpu::winograd {

SINGA_INSTANTIATE(16);

}  // namespace singa::cpu::winograd

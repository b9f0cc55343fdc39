#if defined(__x86_64__)
#define SINGA_TARGET __attribute__((target("avx2,fma")))
#else
#define SINGA_TARGET  // NEON on aarch64; elsewhere never called
#endif

#include "backend/cpu/winograd/tiles_inl.h"

namespace singa::cpu::winograd {

SINGA_INSTANTIATE(8);

}  // namespace singa::cpu::winograd

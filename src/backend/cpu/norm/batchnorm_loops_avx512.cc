#include "core/device/parallel.h"

#ifdef SINGA_HAS_MULTI_ISA

#define SINGA_TARGET __attribute__((target("arch=x86-64-v4")))

#include "backend/cpu/norm/batchnorm_loops_inl.h"

namespace singa::cpu {

template <class T>
const BatchNormLoops<T>& BatchNormLoopsAvx512() {
  if constexpr (std::is_same_v<T, BFloat16>)
    return kLoops<T, 8, 16, 32>;  // 32: two pixels of a block
  else
    return kLoops<T, 8, 16>;
}
template const BatchNormLoops<float>& BatchNormLoopsAvx512();
template const BatchNormLoops<BFloat16>& BatchNormLoopsAvx512();

}  // namespace singa::cpu

#endif

#include "core/device/parallel.h"

#ifdef SINGA_HAS_MULTI_ISA

#define SINGA_TARGET __attribute__((target("arch=x86-64-v3")))

#include "backend/cpu/norm/batchnorm_loops_inl.h"

namespace singa::cpu {

template <class T>
const BatchNormLoops<T>& BatchNormLoopsAvx2() {
  return kLoops<T, 8>;
}
template const BatchNormLoops<float>& BatchNormLoopsAvx2();
template const BatchNormLoops<BFloat16>& BatchNormLoopsAvx2();

}  // namespace singa::cpu

#endif

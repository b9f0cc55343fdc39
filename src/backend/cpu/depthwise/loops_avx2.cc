#include "backend/cpu/depthwise/loops.h"
#include "backend/cpu/vectors_avx2.h"

#if defined(__x86_64__)

#include "backend/cpu/depthwise/loops_inl.h"

namespace singa::cpu::depthwise {

template <class T>
Loops<T> LoopsAvx2(int64_t kernel, int64_t stride, int64_t group) {
  return Find<T>(kernel, stride, group > 1);
}
template Loops<float> LoopsAvx2(int64_t, int64_t, int64_t);
template Loops<BFloat16> LoopsAvx2(int64_t, int64_t, int64_t);

}  // namespace singa::cpu::depthwise

#endif

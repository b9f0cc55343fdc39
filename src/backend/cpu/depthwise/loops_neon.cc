#include "backend/cpu/depthwise/loops.h"
#include "backend/cpu/vectors_neon.h"

#if defined(__aarch64__)

#include "backend/cpu/depthwise/loops_inl.h"

namespace singa::cpu::depthwise {

template <class T>
Loops<T> LoopsNeon(int64_t kernel, int64_t stride, int64_t group) {
  return Find<T>(kernel, stride, group > 1);
}
template Loops<float> LoopsNeon(int64_t, int64_t, int64_t);
template Loops<BFloat16> LoopsNeon(int64_t, int64_t, int64_t);

}  // namespace singa::cpu::depthwise

#endif

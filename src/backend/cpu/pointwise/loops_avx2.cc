#include "backend/cpu/pointwise/loops.h"
#include "backend/cpu/vectors_avx2.h"

#if defined(__x86_64__)

namespace singa::cpu::pointwise {
namespace {
constexpr int kRegisters = 15;  // besides one for a constant
}
}  // namespace singa::cpu::pointwise

#include "backend/cpu/pointwise/loops_inl.h"

namespace singa::cpu::pointwise {
Loops LoopsAvx2() { return kLoops; }
}  // namespace singa::cpu::pointwise

#endif

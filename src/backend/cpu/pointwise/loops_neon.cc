#include "backend/cpu/pointwise/loops.h"
#include "backend/cpu/vectors_neon.h"

#if defined(__aarch64__)

namespace singa::cpu::pointwise {
namespace {
constexpr int kRegisters = 15;  // besides one for a constant
}
}  // namespace singa::cpu::pointwise

#include "backend/cpu/pointwise/loops_inl.h"

namespace singa::cpu::pointwise {
Loops LoopsNeon() { return kLoops; }
}  // namespace singa::cpu::pointwise

#endif

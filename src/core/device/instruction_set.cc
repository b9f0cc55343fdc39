#include "core/device/instruction_set.h"

#include <algorithm>
#include <atomic>

namespace singa {
namespace {

InstructionSet Detect() {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    return InstructionSet::kBaseline;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
    return InstructionSet::kAvx2;
  if (!__builtin_cpu_supports("avx512bf16")) return InstructionSet::kAvx512;
  // GCC 12 has no name for AMX, so read CPUID leaf 7: EDX bits 22 (AMX-BF16) and 24 (AMX-TILE).
  unsigned eax = 7, ebx = 0, ecx = 0, edx = 0;
  __asm__("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
  const bool amx = (edx >> 22 & 1) && (edx >> 24 & 1);
  return amx ? InstructionSet::kAmx : InstructionSet::kAvx512Bf16;
#else
  return InstructionSet::kBaseline;
#endif
}

std::atomic<InstructionSet> g_limit{InstructionSet::kAmx};

}  // namespace

InstructionSet AllowedInstructionSet() {
  static const InstructionSet detected = Detect();
  return std::min(detected, g_limit.load(std::memory_order_relaxed));
}

void LimitInstructionSet(InstructionSet most) {
  g_limit.store(std::min(g_limit.load(), most), std::memory_order_relaxed);
}

std::string RefusesStorage(DType dtype) {
  if (dtype == kFloat32 || dtype == kBFloat16) return "";
  return std::string(DTypeName(dtype)) + " is not supported";
}

}  // namespace singa

// The loops for any processor, and the choice between them and those of its instruction set.

#include "backend/cpu/pooling/max_loops.h"

#include <algorithm>

#include "backend/cpu/vectors_any.h"
#include "core/device/instruction_set.h"

#define SINGA_TARGET

namespace singa::cpu {
namespace {

using Vectors = AnyVectors<4>;

/// Vectors of 4 positions.
struct Positions {
  using Type __attribute__((vector_size(16))) = int32_t;
  using Choice = Type;  // all bits of the chosen lanes

  static Type All(int32_t position) { return Type{position, position, position, position}; }
  static Type Add(Type a, Type b) { return a + b; }
  static Type Load(const int32_t* from) { return *reinterpret_cast<const Unaligned*>(from); }
  static Type Load(const int32_t* from, Vectors::Mask count) {
    int32_t lanes[Vectors::kLanes] = {};
    std::copy_n(from, count, lanes);
    return Load(lanes);
  }
  static void Store(int32_t* to, Type v, bool) { *reinterpret_cast<Unaligned*>(to) = v; }
  static void Store(int32_t* to, Type v, Vectors::Mask count) {
    int32_t lanes[Vectors::kLanes];
    Store(lanes, v, false);
    std::copy_n(lanes, count, to);
  }

  /// Whether the value is NaN, or not below the best one.
  static Choice IsBetter(Vectors::Type value, Vectors::Type best) {
    return (value >= best) | (value != value);
  }
  template <class V>
  static V Choose(Choice first, V a, V b) {
    return first ? a : b;
  }
  static Choice Equal(Type a, Type b) { return a == b; }
  static Vectors::Type AddWhere(Choice adds, Vectors::Type sum, Vectors::Type v) {
    return adds ? sum + v : sum;
  }

 private:
  using Unaligned __attribute__((aligned(alignof(int32_t)), may_alias)) = Type;
};

}  // namespace
}  // namespace singa::cpu

#include "backend/cpu/pooling/max_loops_inl.h"

namespace singa::cpu {

template <class T>
MaxLoops<T> MaxLoopsOfCpu() {
#if defined(__x86_64__)
  const InstructionSet set = AllowedInstructionSet();
  if (set >= InstructionSet::kAvx512) return MaxLoopsAvx512<T>();
  if (set >= InstructionSet::kAvx2) return MaxLoopsAvx2<T>();
#endif
  return kMaxLoops<T>;
}
template MaxLoops<float> MaxLoopsOfCpu();
template MaxLoops<BFloat16> MaxLoopsOfCpu();

}  // namespace singa::cpu

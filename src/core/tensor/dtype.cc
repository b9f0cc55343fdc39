#include "singa/core/dtype.h"

#include "singa/core/error.h"

namespace singa {
namespace {

enum class Kind { kBool, kInteger, kFloat };

struct Info {
  const char* name;
  size_t size;
  Kind kind;
};

constexpr Info kInfo[kNumDataType] = {
    {"float32", 4, Kind::kFloat},  {"float16", 2, Kind::kFloat}, {"int32", 4, Kind::kInteger},
    {"int8", 1, Kind::kInteger},   {"float64", 8, Kind::kFloat}, {"uint8", 1, Kind::kInteger},
    {"bfloat16", 2, Kind::kFloat}, {"int64", 8, Kind::kInteger}, {"bool", 1, Kind::kBool},
};

const Info& InfoOf(DType dtype) {
  Check<TypeError>(dtype >= 0 && dtype < kNumDataType, "dtype", "there is no element type number ",
                   static_cast<int>(dtype));
  return kInfo[dtype];
}

}  // namespace

size_t SizeOf(DType dtype) { return InfoOf(dtype).size; }
const char* DTypeName(DType dtype) { return InfoOf(dtype).name; }
bool IsFloat(DType dtype) { return InfoOf(dtype).kind == Kind::kFloat; }
bool IsInteger(DType dtype) { return InfoOf(dtype).kind == Kind::kInteger; }

DType Promote(DType a, DType b) {
  if (a == b) return a;
  const Info &x = InfoOf(a), &y = InfoOf(b);
  if (x.kind != y.kind) return x.kind > y.kind ? a : b;
  if (x.size != y.size) return x.size > y.size ? a : b;
  // Two types of equal size: float16 and bfloat16 give float32, int8 and uint8 give int32.
  return x.kind == Kind::kFloat ? kFloat32 : kInt;
}

DType PromoteNumber(DType a, DType number) {
  return InfoOf(number).kind > InfoOf(a).kind ? number : a;
}

}  // namespace singa

#pragma once

// Checks of arguments that most operation families share. Messages name the operation, the argument
// and the shapes.

#include <cmath>
#include <ostream>
#include <vector>

#include "model/dispatch/tensor_check.h"
#include "singa/core/error.h"
#include "singa/core/tensor.h"

namespace singa {

/// Numbers for a message, "(2, 3)". There may be more than a Shape can have.
struct List {
  const std::vector<int64_t>& values;
};
inline std::ostream& operator<<(std::ostream& out, const List& list) {
  constexpr size_t kMost = 16;
  const size_t n = list.values.size();
  out << "(";
  for (size_t i = 0; i < n && i < kMost; ++i) out << (i > 0 ? ", " : "") << list.values[i];
  if (n > kMost) return out << ", ...), " << n << " in all,";
  return out << (n == 1 ? ",)" : ")");
}

/// `t` holds floats; raises TypeError, with facts of kind "not_float".
inline void CheckFloat(const char* op, const char* name, const Tensor& t) {
  CheckGiven(op, name, t);
  if (IsFloat(t.data_type())) return;
  throw ErrorWithFacts<TypeError>(detail::Message(op, name, " must be of a float type, got ", t),
                                  {"not_float", op, name});
}

/// `indices` holds numbers, on the device of `data`.
inline void CheckIndices(const char* op, const Tensor& indices, const Tensor& data) {
  CheckGiven(op, "indices", indices);
  Check<TypeError>(indices.data_type() != kBool, op, "indices must hold numbers, got ", indices);
  CheckSameDevice(op, "indices", indices, "the data", data);
}

/// No two elements of `t` share memory, as in a broadcast view. For tensors that are written.
inline void CheckDistinct(const char* op, const char* name, const Tensor& t) {
  for (int i = 0; i < t.rank(); ++i)
    Check(t.strides()[i] != 0 || t.shape()[i] <= 1, op, name,
          " is a broadcast view, whose elements share memory: ", t);
}

/// Type and device of `t` are those of `other`.
inline void CheckMatches(const char* op, const char* name, const Tensor& t, const char* other_name,
                         const Tensor& other) {
  CheckGiven(op, name, t);
  Check<TypeError>(t.data_type() == other.data_type(), op, name, " must have the type of ",
                   other_name, ", ", DTypeName(other.data_type()), ", got ", t);
  CheckSameDevice(op, name, t, other_name, other);
}
/// Shape, type and device of `t` are those of `other`.
inline void CheckLike(const char* op, const char* name, const Tensor& t, const char* other_name,
                      const Tensor& other) {
  CheckGiven(op, name, t);
  Check(t.shape() == other.shape(), op, name, " must have the shape of ", other_name, " ",
        other.shape(), ", got ", t);
  CheckMatches(op, name, t, other_name, other);
}

inline void CheckEpsilon(const char* op, double epsilon) {
  Check(epsilon >= 0 && std::isfinite(epsilon), op, "epsilon must be finite and not negative, got ",
        epsilon);
}

}  // namespace singa

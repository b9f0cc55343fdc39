#pragma once

// What the headers of Specs have in common (op_type.h says what a Spec is).

#include "model/dispatch/fields.h"
#include "singa/core/dtype.h"

namespace singa {

class ArgumentVisitor;  // arguments.h
class CallChecker;      // call_check.h

/// Number of values of an enumeration that is a field of a Spec: they are 0 ... kEnumSize - 1. An
/// enumeration without kCount specialises it where it is declared, or its Spec.
template <class E>
inline constexpr int kEnumSize = static_cast<int>(E::kCount);
template <>
inline constexpr int kEnumSize<DataType> = kNumDataType;

}  // namespace singa

#pragma once

// What the headers of Specs have in common (op_type.h says what a Spec is).

#include "model/dispatch/fields.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/threads.h"

namespace singa {

class ArgumentVisitor;  // arguments.h
class CallChecker;      // call_check.h
namespace spot {
class Sampler;  // spot/sampler.h
}

/// Number of values of an enumeration that is a field of a Spec: they are 0 ... kEnumSize - 1. An
/// enumeration without kCount specialises it where it is declared, or its Spec.
template <class E>
inline constexpr int kEnumSize = static_cast<int>(E::kCount);
template <>
inline constexpr int kEnumSize<DataType> = kNumDataType;

/// A Spec whose fields `threads` and `plain`, where it has them, have the values of the settings in
/// force.
template <class Spec>
Spec CurrentSpec() {
  Spec spec;
  if constexpr (requires { spec.threads; }) spec.threads = NumThreads();
  if constexpr (requires { spec.plain; }) spec.plain = GetLayoutMode() == LayoutMode::kPlain;
  return spec;
}

}  // namespace singa

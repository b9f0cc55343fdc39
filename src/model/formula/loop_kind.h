#pragma once

namespace singa::formula {

/// How loops over an elementwise function are compiled.
enum class LoopKind {
  kCalls,         ///< with calls of the C library
  kPlain,         ///< without calls, so that they vectorise; sqrt, fabs and floor are instructions
  kVector,        ///< likewise for float32, by VectorMath (vector_unary.h); else as kCalls
  kVectorNumbers  ///< likewise, of a function of the numbers a and b, too
};

}  // namespace singa::formula

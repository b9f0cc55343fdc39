#pragma once

#include "model/operation/spec.h"
#include "singa/core/tensor.h"

namespace singa {

/// What a forward kept for its backward.
enum class SavedForm : int {
  kNone = 0,     ///< nothing: the backward finds it again from x
  kCommon = 1,   ///< the form that the operation's specification describes
  kPrivate = 2,  ///< bytes that only the implementation which wrote them reads
};
template <>
inline constexpr int kEnumSize<SavedForm> = 3;

/// Private forms are flat tensors of uint8; no common form is. Where such bytes depend on more than
/// the call's parameters, their layout says on what.
inline SavedForm FormOf(const Tensor& saved) {
  if (saved.empty()) return SavedForm::kNone;
  return saved.data_type() == kUInt8 && saved.rank() == 1 ? SavedForm::kPrivate
                                                          : SavedForm::kCommon;
}

}  // namespace singa

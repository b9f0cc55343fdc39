#pragma once

#include "model/dispatch/spec.h"
#include "model/dispatch/tensor_check.h"
#include "singa/core/tensor.h"

namespace singa {

/// The form of the tensor that a forward keeps for its backward.
enum class SavedForm : int {
  kNone = 0,     ///< no tensor: the backward computes it again from x
  kCommon = 1,   ///< the form that the forward's Spec describes
  kPrivate = 2,  ///< bytes that only the implementation that wrote them can read
};
template <>
inline constexpr int kEnumSize<SavedForm> = 3;

/// Private forms are flat tensors of uint8; no common form is. Where the bytes depend on more than
/// the call's parameters, the tensor's layout describes it.
inline SavedForm FormOf(const Tensor& saved) {
  if (saved.empty()) return SavedForm::kNone;
  return IsPrivate(saved) ? SavedForm::kPrivate : SavedForm::kCommon;
}

}  // namespace singa

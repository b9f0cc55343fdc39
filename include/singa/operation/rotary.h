#pragma once

#include "singa/core/tensor.h"

namespace singa {

// Rotary position embedding (Su et al. 2021): each pair of features of a position is turned by an
// angle,
//
//   (a, b) → (a · cos − b · sin, a · sin + b · cos).
//
// x         (B, H, N, D) of a float type, of any strides. Only one whose last axis is not
//           contiguous is copied.
// cos, sin  the cosines and sines of the angles of the first R features in pairs: (N, R / 2) or (B,
//           N, R / 2), of a float type, R <= D. The features behind them stay as they are. Tables
//           of 16 bits are read as float32.
// interleaved  pairs are the features (2i, 2i + 1), as in the paper; otherwise (i, i + R / 2), as
//           in GPT-NeoX and Llama.
//
// Raises TypeError for other types, and std::invalid_argument for wrong shapes and for tensors on
// different devices.

/// y, in the shape and type of x.
SINGA_API Tensor Rotary(const Tensor& x, const Tensor& cos, const Tensor& sin,
                        bool interleaved = false);
/// dx: dy turned back. There are no gradients of cos and sin.
SINGA_API Tensor RotaryBackward(const Tensor& dy, const Tensor& cos, const Tensor& sin,
                                bool interleaved = false);

}  // namespace singa

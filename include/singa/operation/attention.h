#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/tensor.h"

namespace singa {

// Scaled dot-product attention (Vaswani et al. 2017), without the matrix of scores in memory: only
// tiles of it exist at a time (Rabe and Staats 2021, Dao et al. 2022).
//
//   y(b, h) = dropout(softmax(scale · q(b, h) · k(b, h')ᵀ + mask(b, h))) · v(b, h')
//
// q (B, H, N, D), k (B, H', M, D), v (B, H', M, E), of one float type. H' divides H: head h of q
// uses head h' = h / (H / H') of k and v (grouped queries, Ainslie et al. 2023). Tensors may have
// any strides; only those whose last axis is not contiguous are copied.
//
// mask    empty, or a tensor that broadcasts to (B, H, N, M), of any strides: bool, where true
// means
//         that the query uses the key, or a float type, whose values are added to the scores. -inf
//         excludes a key. Its first axis may also be a divisor of B: sequence b has mask b modulo
//         that number, as windows of images do.
// causal  query i uses the keys up to first_query + i only. With first_query = 0 the diagonal
//         begins in the upper left corner, as PyTorch's is_causal has it; with M − N it ends in the
//         lower right one. With a cache of keys, first_query is the number of queries before these.
//         It may be negative. Without `causal` it is ignored.
// dropout probability in [0, 1) with which each weight becomes zero; the others are divided by
//         1 − dropout.
//
// A query that uses no key gives zeros. A key that is excluded has weight 0 but is read, so it must
// be finite, and so must its value.

/// {y, logsumexp, draw}: y (B, H, N, E); the logarithms of the sums of exponentials of the scores,
/// (B, H, N), float32, or float64 where q is, and -inf for a query that uses no key; and the part
/// of the random sequence that dropout has used, int64 (2), empty without dropout. Only backward
/// reads the last two.
///
/// Raises TypeError for other types, and std::invalid_argument for wrong shapes, for tensors on
/// different devices, and for numbers out of range.
SINGA_API std::vector<Tensor> AttentionForward(const Tensor& q, const Tensor& k, const Tensor& v,
                                               const Tensor& mask, double scale,
                                               bool causal = false, int64_t first_query = 0,
                                               double dropout = 0);

/// {dq, dk, dv, dmask}, empty where not needed. The arguments are those of AttentionForward, and
/// its results. dmask has shape and type of the mask, summed over the axes along which it
/// broadcasts; memory for it grows with the mask, not with the scores. Raises TypeError for that of
/// a mask that is bool, and std::invalid_argument where there is none.
SINGA_API std::vector<Tensor> AttentionBackward(
    const Tensor& dy, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
    const Tensor& y, const Tensor& logsumexp, const Tensor& draw, double scale, bool causal = false,
    int64_t first_query = 0, double dropout = 0, bool need_q = true, bool need_k = true,
    bool need_v = true, bool need_mask = false);

}  // namespace singa

#pragma once

// One step of one sequence of a recurrent layer, after the matrix products: activations, states,
// and their derivatives. The formulas are those in PyTorch's documentation of RNN, LSTM and GRU.
// Functions compute `count` neighbouring units. Each gate's values lie `step` elements behind those
// of the gate before it.

#include <cstdint>

#include "core/device/parallel.h"
#include "model/formula/vector_math.h"
#include "singa/operation/rnn.h"

namespace singa::formula {

/// `gates` holds the matrix products without biases, and receives the activated gates (listed in
/// RnnFields). For relu and tanh it is `h` itself; no other arrays overlap. A GRU that resets
/// before the product has r, z and r·h already, by GruResetForward.
template <class T>
SINGA_MULTI_ISA void CellForward(RnnMode mode, int64_t count, int64_t step, T* gates, const T* bias,
                                 const T* h_prev, const T* c_prev, T* h, T* c) {
  T *g0 = gates, *g1 = g0 + step, *g2 = g1 + step, *g3 = g2 + step;
  const T *b0 = bias, *b1 = b0 + step, *b2 = b1 + step, *b3 = b2 + step;
  switch (mode) {
    case RnnMode::kRelu:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        const T a = g0[j] + b0[j];
        h[j] = a <= 0 ? T(0) : a;  // keeps NaN
      }
      return;
    case RnnMode::kTanh:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) h[j] = Tanh(g0[j] + b0[j]);
      return;
    case RnnMode::kLstm:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        const T i = Sigmoid(g0[j] + b0[j]), f = Sigmoid(g1[j] + b1[j]);
        const T g = Tanh(g2[j] + b2[j]), o = Sigmoid(g3[j] + b3[j]);
        c[j] = f * c_prev[j] + i * g;
        h[j] = o * Tanh(c[j]);
        g0[j] = i;
        g1[j] = f;
        g2[j] = g;
        g3[j] = o;
      }
      return;
    case RnnMode::kGru:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        const T r = Sigmoid(g0[j] + b0[j]), z = Sigmoid(g1[j] + b1[j]), hn = g3[j] + b3[j];
        const T n = Tanh(g2[j] + b2[j] + r * hn);
        h[j] = (1 - z) * n + z * h_prev[j];
        g0[j] = r;
        g1[j] = z;
        g2[j] = n;
        g3[j] = hn;
      }
      return;
    case RnnMode::kGruResetBefore:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        const T z = g1[j], n = Tanh(g2[j] + b2[j]);
        h[j] = (1 - z) * n + z * h_prev[j];
        g2[j] = n;
      }
      return;
  }
}

/// r, z and r·h, of a GRU that resets before the product.
template <class T>
SINGA_MULTI_ISA void GruResetForward(int64_t count, int64_t step, T* gates, const T* bias,
                                     const T* h_prev) {
  T *g0 = gates, *g1 = g0 + step, *g3 = gates + 3 * step;
#pragma GCC ivdep
  for (int64_t j = 0; j < count; ++j) {
    const T r = Sigmoid(g0[j] + bias[j]);
    g1[j] = Sigmoid(g1[j] + bias[step + j]);
    g0[j] = r;
    g3[j] = r * h_prev[j];
  }
}

/// The gradients of r's product and of h_prev, from the gradient of r·h in the fourth part of
/// `dgates`.
template <class T>
SINGA_MULTI_ISA void GruResetBackward(int64_t count, int64_t step, const T* gates, const T* h_prev,
                                      T* dgates, T* dh) {
  const T* d3 = dgates + 3 * step;
#pragma GCC ivdep
  for (int64_t j = 0; j < count; ++j) {
    const T r = gates[j];
    dgates[j] = d3[j] * h_prev[j] * r * (1 - r);
    dh[j] += d3[j] * r;
  }
}

/// `dh` is the gradient of h; it becomes the part of h_prev's gradient that bypasses the matrix
/// products. `dc` is the gradient of c and becomes that of c_prev. `dgates` receives the gradients
/// of the matrix products; for GRU those of r, z, n and W_hn·h, or those of z and n alone where it
/// resets before the product (GruResetBackward). No arrays overlap.
template <class T>
SINGA_MULTI_ISA void CellBackward(RnnMode mode, int64_t count, int64_t step, const T* gates,
                                  const T* h_prev, const T* c_prev, const T* h, const T* c, T* dh,
                                  T* dc, T* dgates) {
  const T *g0 = gates, *g1 = g0 + step, *g2 = g1 + step, *g3 = g2 + step;
  T *d0 = dgates, *d1 = d0 + step, *d2 = d1 + step, *d3 = d2 + step;
  switch (mode) {
    case RnnMode::kRelu:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        d0[j] = h[j] > 0 ? dh[j] : T(0);
        dh[j] = 0;
      }
      return;
    case RnnMode::kTanh:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        d0[j] = dh[j] * (1 - h[j] * h[j]);
        dh[j] = 0;
      }
      return;
    case RnnMode::kLstm:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        const T i = g0[j], f = g1[j], g = g2[j], o = g3[j];
        const T tanh_c = Tanh(c[j]);
        const T dcell = dc[j] + dh[j] * o * (1 - tanh_c * tanh_c);
        d0[j] = dcell * g * i * (1 - i);
        d1[j] = dcell * c_prev[j] * f * (1 - f);
        d2[j] = dcell * i * (1 - g * g);
        d3[j] = dh[j] * tanh_c * o * (1 - o);
        dc[j] = dcell * f;
        dh[j] = 0;
      }
      return;
    case RnnMode::kGru:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        const T r = g0[j], z = g1[j], n = g2[j], hn = g3[j];
        const T dn = dh[j] * (1 - z) * (1 - n * n);
        d0[j] = dn * hn * r * (1 - r);
        d1[j] = dh[j] * (h_prev[j] - n) * z * (1 - z);
        d2[j] = dn;
        d3[j] = dn * r;
        dh[j] *= z;
      }
      return;
    case RnnMode::kGruResetBefore:
#pragma GCC ivdep
      for (int64_t j = 0; j < count; ++j) {
        const T z = g1[j], n = g2[j];
        d2[j] = dh[j] * (1 - z) * (1 - n * n);
        d1[j] = dh[j] * (h_prev[j] - n) * z * (1 - z);
        dh[j] *= z;
      }
      return;
  }
}

}  // namespace singa::formula

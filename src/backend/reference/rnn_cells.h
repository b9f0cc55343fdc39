#pragma once

// One step of one sequence of a recurrent layer, after the matrix products: activations, states and
// their derivatives. Formulas as in PyTorch's documentation of RNN, LSTM and GRU.

#include <cmath>
#include <cstdint>

#include "backend/reference/parallel.h"
#include "singa/operation/rnn.h"

namespace singa::reference {

template <class T>
inline T Sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

/// `gates` holds the matrix products without biases and gets the activated gates (RnnFields says
/// which); for relu and tanh it is `h` itself.
template <class T>
void CellForward(RnnMode mode, int64_t hidden, T* gates, const T* bias, const T* h_prev,
                 const T* c_prev, T* h, T* c) {
  const auto gate = [=](int k, int64_t j) { return gates[k * hidden + j] + bias[k * hidden + j]; };
  switch (mode) {
    case RnnMode::kRelu:
      for (int64_t j = 0; j < hidden; ++j) {
        const T a = gate(0, j);
        h[j] = a <= 0 ? 0 : a;  // NaN stays
      }
      return;
    case RnnMode::kTanh:
      for (int64_t j = 0; j < hidden; ++j) h[j] = std::tanh(gate(0, j));
      return;
    case RnnMode::kLstm:
      for (int64_t j = 0; j < hidden; ++j) {
        const T i = Sigmoid(gate(0, j)), f = Sigmoid(gate(1, j)), g = std::tanh(gate(2, j)),
                o = Sigmoid(gate(3, j));
        c[j] = f * c_prev[j] + i * g;
        h[j] = o * std::tanh(c[j]);
        gates[j] = i;
        gates[hidden + j] = f;
        gates[2 * hidden + j] = g;
        gates[3 * hidden + j] = o;
      }
      return;
    case RnnMode::kGru:
      for (int64_t j = 0; j < hidden; ++j) {
        const T r = Sigmoid(gate(0, j)), z = Sigmoid(gate(1, j)), hn = gate(3, j);
        const T n = std::tanh(gate(2, j) + r * hn);
        h[j] = (1 - z) * n + z * h_prev[j];
        gates[j] = r;
        gates[hidden + j] = z;
        gates[2 * hidden + j] = n;
        gates[3 * hidden + j] = hn;
      }
      return;
  }
}

/// `dh` is the gradient of h; it becomes the part of h_prev's gradient that does not go through a
/// matrix product. `dc` is the gradient of c and becomes c_prev's. `dgates` gets the gradients of
/// the matrix products; GRU: r, z, n and (W_hn·h).
template <class T>
SINGA_MULTI_ISA void CellBackward(RnnMode mode, int64_t hidden, const T* gates, const T* h_prev,
                                  const T* c_prev, const T* h, const T* c, T* dh, T* dc,
                                  T* dgates) {
  switch (mode) {
    case RnnMode::kRelu:
      for (int64_t j = 0; j < hidden; ++j) {
        dgates[j] = h[j] > 0 ? dh[j] : 0;
        dh[j] = 0;
      }
      return;
    case RnnMode::kTanh:
      for (int64_t j = 0; j < hidden; ++j) {
        dgates[j] = dh[j] * (1 - h[j] * h[j]);
        dh[j] = 0;
      }
      return;
    case RnnMode::kLstm:
      for (int64_t j = 0; j < hidden; ++j) {
        const T i = gates[j], f = gates[hidden + j], g = gates[2 * hidden + j],
                o = gates[3 * hidden + j];
        const T tanh_c = std::tanh(c[j]);
        const T dcell = dc[j] + dh[j] * o * (1 - tanh_c * tanh_c);
        dgates[j] = dcell * g * i * (1 - i);
        dgates[hidden + j] = dcell * c_prev[j] * f * (1 - f);
        dgates[2 * hidden + j] = dcell * i * (1 - g * g);
        dgates[3 * hidden + j] = dh[j] * tanh_c * o * (1 - o);
        dc[j] = dcell * f;
        dh[j] = 0;
      }
      return;
    case RnnMode::kGru:
      for (int64_t j = 0; j < hidden; ++j) {
        const T r = gates[j], z = gates[hidden + j], n = gates[2 * hidden + j],
                hn = gates[3 * hidden + j];
        const T dn = dh[j] * (1 - z) * (1 - n * n);
        dgates[j] = dn * hn * r * (1 - r);
        dgates[hidden + j] = dh[j] * (h_prev[j] - n) * z * (1 - z);
        dgates[2 * hidden + j] = dn;
        dgates[3 * hidden + j] = dn * r;
        dh[j] *= z;
      }
      return;
  }
}

}  // namespace singa::reference

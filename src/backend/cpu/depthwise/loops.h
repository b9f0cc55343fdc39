#pragma once

// Inner loops of depthwise convolutions on images whose innermost axis is channels. A vector holds
// the same pixel of several channels, so a product of vectors is the step of all of them.
//
// Rows of the image are copied into a buffer of floats first, with zeros for the padding left and
// right of them and for the channels that are missing in the last vector. So the loops that
// multiply have no borders, and read each bfloat16 once.
//
// A convolution of small groups is the sum of as many depthwise ones as a group has channels. In
// term i of the sum, each lane reads channel i of its group: a vector of the image is permuted when
// it is loaded, and multiplied with all taps of its row.

#include <cstdint>

#include "backend/cpu/ahead.h"
#include "singa/operation/activation.h"

namespace singa::cpu::depthwise {

/// Results of a row are computed in tiles of `whole` columns, the last ones in one of half as many
/// where these are enough.
struct Tiles {
  int64_t whole;

  constexpr int64_t last() const { return whole / 2; }
  /// Columns of all tiles of a row.
  constexpr int64_t Columns(int64_t columns) const {
    return (columns + last() - 1) / last() * last();
  }
};
inline constexpr Tiles kTiles = {8};
/// For groups, and vectors of 16 lanes. A term of a tile loads weights and few columns, so wider
/// tiles load less.
inline constexpr Tiles kWideTiles = {14};

/// Channels that are computed together: vectors, and the channels of the last one.
struct Panel {
  int64_t vectors, last;
};

/// Copies a row of pixels of a panel into a buffer.
template <class T>
struct CopyCall {
  Panel panel;
  const T* from;
  int64_t columns, column_step;
  float* to;            ///< [vector][column][lane]
  int64_t vector_step;  ///< of the buffer
};

/// The batch norm in front of a convolution, of a panel: [vector][lane] of its constants, and its
/// activation. Null constants: the activation alone.
struct NormCall {
  const float *mean, *factor, *bias;
  Activation activation;
};

/// Computes a row of results of a panel: bias, plus the products of all rows of taps.
///
/// In a row of taps, result o of the forward pass reads columns o · stride + tap of the buffer. The
/// gradient of the input is the sum of the products in which an element took part: result o reads
/// column (o − tap) / stride + (kernel − 1) / stride, where stride divides o − tap.
template <class T>
struct RowCall {
  Panel panel;
  Tiles tiles;
  int64_t terms;                     ///< channels of a group
  int64_t rows;                      ///< of taps
  const float* const* sources;       ///< for each row, the buffer
  const float* const* weights;       ///< for each row, [term][tap][lane]
  int64_t source_step, weight_step;  ///< between vectors
  const float* bias;                 ///< [vector][lane]
  const T* add;                      ///< added to the results; may be null or `to`
  Activation after;                  ///< of the results of a forward pass
  bool stream;                       ///< writes whole vectors past the caches; `to` is aligned
  T* to;
  int64_t columns, column_step;
  int64_t skipped;  ///< results before the first one that are computed and not stored
  Next next;        ///< is fetched meanwhile
};

/// Adds the products of a row of dy and rows of x to the gradients of the weights.
template <class T>
struct GradientCall {
  Panel panel;
  int64_t rows;  ///< of taps
  const float* const* sources;
  int64_t source_step;
  const T* dy;
  int64_t columns, column_step;
  float* sums;       ///< [vector][row of taps][tap][lane]
  int64_t sum_step;  ///< between vectors
  Next next;         ///< is fetched meanwhile
};

/// The same for groups of several channels, and several rows of dy.
template <class T>
struct GroupGradientCall {
  Panel panel;
  int64_t terms;                ///< channels of a group
  int64_t taps;                 ///< rows of them
  int64_t rows;                 ///< of dy
  const float* const* sources;  ///< [row of dy][row of taps]; null: outside of the image
  int64_t source_step;
  const T* dy;
  int64_t row_step, columns, column_step;
  float* sums;       ///< [vector][row of taps][term][tap][lane]
  int64_t sum_step;  ///< between vectors
  Next next;         ///< is fetched meanwhile
};

/// The loops for one instruction set, kernel width and stride; for groups of one channel or of
/// several ones.
template <class T>
struct Loops {
  void (*copy)(const CopyCall<T>&);
  /// Copies the results of what is in front, to the bits of batch norm's. Not for SiLU.
  void (*copy_normed)(const CopyCall<float>&, const NormCall&);
  void (*forward)(const RowCall<T>&);
  void (*input_gradient)(const RowCall<T>&);
  void (*weight_gradient)(const GradientCall<T>&);             ///< null for groups of several
  void (*group_weight_gradient)(const GroupGradientCall<T>&);  ///< null for groups of one
  void (*fence)();  ///< after streaming, before another thread reads
};

/// Widths of kernels, and strides, that have loops.
constexpr bool HasLoops(int64_t kernel, int64_t stride) {
  return (kernel == 3 || kernel == 5 || kernel == 7) && (stride == 1 || stride == 2);
}

/// Numbers of channels in a group that have loops: those that fill vectors.
constexpr bool HasLoopsOfGroup(int64_t group) {
  return group == 1 || group == 2 || group == 4 || group == 8;
}

/// For vectors of 16 channels (AVX-512) and of 8 (AVX2, NEON). T is float or BFloat16.
template <class T>
Loops<T> LoopsAvx512(int64_t kernel, int64_t stride, int64_t group);
template <class T>
Loops<T> LoopsAvx2(int64_t kernel, int64_t stride, int64_t group);
template <class T>
Loops<T> LoopsNeon(int64_t kernel, int64_t stride, int64_t group);

}  // namespace singa::cpu::depthwise

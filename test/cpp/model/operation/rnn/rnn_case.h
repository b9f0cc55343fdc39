#pragma once

// Small recurrent networks of all modes.

#include "singa/operation/rnn.h"
#include "support.h"

namespace singa::test {

/// Those that cuDNN has come first.
inline constexpr RnnMode kRnnModes[] = {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm,
                                        RnnMode::kGru, RnnMode::kGruResetBefore};
inline constexpr int kCudnnModes = 4;

struct RnnCase {
  RnnMode mode;
  int64_t steps, batch, input, hidden, layers, directions;
  bool bias, states, lengths;
};

/// A random network, with mode `round` % `modes` and at most `most` inputs and hidden values.
inline RnnCase RandomRnnCase(Random& random, int round, int64_t most,
                             int modes = static_cast<int>(std::size(kRnnModes))) {
  return {kRnnModes[round % modes], random.Int(1, 5),     random.Int(1, 4), random.Int(1, most),
          random.Int(1, most),      random.Int(1, 3),     random.Int(1, 2), random.Coin(),
          random.Int(0, 2) > 0,     random.Int(0, 2) == 0};
}

}  // namespace singa::test

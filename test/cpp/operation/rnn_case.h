#pragma once

// Small recurrent networks of all kinds.

#include "../support.h"
#include "singa/operation/rnn.h"

namespace singa::test {

inline constexpr RnnMode kRnnModes[] = {RnnMode::kRelu, RnnMode::kTanh, RnnMode::kLstm,
                                        RnnMode::kGru};

struct RnnCase {
  RnnMode mode;
  int64_t steps, batch, input, hidden, layers, directions;
  bool bias, states, lengths;
};

/// Four rounds have each mode once; `most` inputs and hidden values.
inline RnnCase RandomRnnCase(Random& random, int round, int64_t most) {
  return {kRnnModes[round % 4], random.Int(1, 5),     random.Int(1, 4), random.Int(1, most),
          random.Int(1, most),  random.Int(1, 3),     random.Int(1, 2), random.Coin(),
          random.Int(0, 2) > 0, random.Int(0, 2) == 0};
}

}  // namespace singa::test

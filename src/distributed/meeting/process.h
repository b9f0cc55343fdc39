#pragma once

#include <cstdint>

namespace singa::distributed {

/// A process, told apart from a later one with the same number.
struct Process {
  int32_t id = 0;
  uint64_t start = 0;  ///< clock ticks from boot to its start, from /proc

  static Process Of(int32_t id);
  static Process Current();
  /// False if it has ended, also while nobody has waited for it. True if /proc does not tell.
  bool Lives() const;
  /// Has it killed after `seconds`, also if this process has ended by then, unless it ends before.
  /// Linux 5.3 or newer; else it does nothing.
  void KillIn(unsigned seconds) const;
};

/// Nanoseconds of a clock that all processes of a machine share.
uint64_t SharedClock();

}  // namespace singa::distributed

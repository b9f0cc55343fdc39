#pragma once

// Threads that go through the steps of a sequence together.

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "core/device/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace singa::cpu::rnn {

/// How the work of a step is divided. Results do not depend on it.
struct Division {
  int64_t groups;  ///< groups of sequences that go through the steps independently
  int64_t parts;   ///< of a step of a group; all have to be done before its next step
};

/// Runs body(group, part, step) for all steps of all groups. Each part has a thread of its own,
/// whose cache keeps what the part reads in every step. A thread that is ahead does the parts that
/// others have not begun, so threads that are late, or that do not exist, hold nobody up. An
/// exception ends the program, since the other threads would wait for that part for ever.
template <class Body>
void RunInStep(const Division& division, int64_t steps, const Body& body) {
  struct alignas(64) Counter {
    std::atomic<int64_t> value{0};
  };
  const int64_t groups = division.groups, parts = division.parts;
  const auto begun = std::make_unique<Counter[]>(static_cast<size_t>(groups * parts));
  const auto done = std::make_unique<Counter[]>(static_cast<size_t>(groups));
  ForEachThread(static_cast<int>(groups * parts), [&](int64_t thread) noexcept {
    const int64_t group = thread / parts, own = thread % parts;
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t part = (own + i) % parts;
        int64_t expected = step;
        auto& counter = begun[group * parts + part].value;
        if (counter.load(std::memory_order_relaxed) != step ||
            !counter.compare_exchange_strong(expected, step + 1, std::memory_order_relaxed))
          continue;
        body(group, part, step);
        done[group].value.fetch_add(1, std::memory_order_release);
      }
      constexpr int kSpins = 512;  // some microseconds; then others may need the core
      for (int spin = 0; done[group].value.load(std::memory_order_acquire) < (step + 1) * parts;
           ++spin) {
        if (spin >= kSpins) {
          std::this_thread::yield();
          continue;
        }
#if defined(__x86_64__)
        _mm_pause();
#endif
      }
    }
  });
}

}  // namespace singa::cpu::rnn

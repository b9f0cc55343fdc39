#pragma once

#include <algorithm>
#include <atomic>
#include <memory>

namespace singa {

/// To be called before each region of several threads. Looks now and then whether other programs
/// take the cores of our threads, and has GNU OpenMP's threads that wait sleep soon for as long as
/// that is so. Returns whether it is.
bool WatchForOthers();

namespace detail {

/// Seconds of a clock that never goes back.
double Now();

/// Whether threads that wait should sleep soon, from what is seen of this process in turn. Times
/// are seconds.
class WaitPolicy {
 public:
  /// How long threads are watched before something is concluded.
  static constexpr double kWatch = 0.1;
  /// How often threads must have lost their core meanwhile, and for which part of the time they
  /// must have waited for one, all together. With less, threads that spin are quicker.
  static constexpr long kOften = 3;
  static constexpr double kMuch = 0.25;
  /// For how long they sleep soon before it is seen whether the others have gone. The time doubles
  /// with each time that they have not.
  static constexpr double kFirstHold = 0.2, kLongestHold = 3.2;

  explicit WaitPolicy(double now, long lost_cores) : since_(now), lost_(lost_cores) {}

  /// `lost_cores`: how often threads have lost their core so far. `without_core()`: for how long
  /// they have waited for one; it takes time, and is not asked where few have lost theirs.
  template <class Time>
  void Look(double now, long lost_cores, const Time& without_core) {
    const bool ask = soon_ || lost_cores - lost_ >= kOften;
    const double without = ask ? without_core() : -1;
    const bool others = ask && without_ >= 0 && without - without_ > kMuch * (now - since_);
    if (!soon_) hold_ = others ? std::min(2 * hold_, kLongestHold) : kFirstHold / 2;
    soon_ = !soon_ && others;
    next_ = now + (soon_ ? hold_ : kWatch);
    since_ = now;
    lost_ = lost_cores;
    without_ = without;
  }
  /// Whether threads should sleep soon.
  bool soon() const { return soon_; }
  /// When to look again.
  double next() const { return next_; }

 private:
  bool soon_ = false;
  double since_;         ///< the last look
  long lost_;            ///< what was seen then
  double without_ = -1;  ///< likewise; -1: not asked
  double next_ = since_ + kWatch, hold_ = kFirstHold / 2;
};

/// Whether a thread computes regions sooner alone than with threads whose cores other programs
/// take. Each such region waits until the system lets these threads run, which is long beside small
/// work.
class AlonePolicy {
 public:
  /// Regions of several threads that are timed before something is concluded.
  static constexpr int kTimed = 16;
  /// For how many regions a thread stays alone before it tries again. The number doubles with each
  /// time that it was right.
  static constexpr int kFirstHold = 64, kLongestHold = 4096;

  /// To be asked once for each region: whether the caller should compute it alone.
  bool Ask() {
    if (left_ == 0) return false;
    --left_;
    return true;
  }
  /// A region of several threads took `seconds`, and `own` of these passed while the caller
  /// computed `part` of it, 0 < part <= 1.
  void Add(double seconds, double own, double part) {
    together_ += seconds;
    alone_ += own / part;
    if (++timed_ < kTimed) return;
    hold_ = together_ > alone_ ? std::min(2 * hold_, kLongestHold) : kFirstHold / 2;
    left_ = together_ > alone_ ? hold_ : 0;
    together_ = alone_ = timed_ = 0;
  }

 private:
  double together_ = 0,
         alone_ = 0;  ///< seconds of the timed regions, and what they would have taken
  int timed_ = 0, left_ = 0, hold_ = kFirstHold / 2;
};

/// More threads of OpenMP than there are processors, all of which sleep.
class MoreThreads {
 public:
  MoreThreads();
  ~MoreThreads();
  MoreThreads(const MoreThreads&) = delete;
  MoreThreads& operator=(const MoreThreads&) = delete;

 private:
  std::shared_ptr<std::atomic<bool>> over_;
};

}  // namespace detail
}  // namespace singa

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/operation/interpolate/spec.h"

namespace singa {

/// The weighted sum that each position of a result is, along one axis. Positions with weight 0 are
/// left out.
class TapTable {
 public:
  struct Tap {
    int64_t at;  ///< position in the argument
    double weight;
  };

  /// Of y from x, or with `backward` of dx from dy.
  TapTable(const InterpolationFields& spec, int axis, bool backward) : begins_(1, 0) {
    const formula::InterpolatedAxis a = spec.axis(axis);
    for (int64_t i = 0; i < a.out; ++i) {
      const size_t begin = begins_.back();
      const formula::Taps taps = formula::TapsOf(spec.how, a, i);
      for (int64_t p = taps.begin; p < taps.end; ++p) {
        const int64_t at = formula::Inside(p, a.in);
        const double weight = taps.Weight(spec.how, p);
        if (taps_.size() > begin && taps_.back().at == at) {
          taps_.back().weight += weight;
        } else {
          taps_.push_back({at, weight});
        }
      }
      const auto own = taps_.begin() + static_cast<std::ptrdiff_t>(begin);
      taps_.erase(std::remove_if(own, taps_.end(), [](const Tap& tap) { return tap.weight == 0; }),
                  taps_.end());
      begins_.push_back(taps_.size());
    }
    if (spec.magnitude)
      for (Tap& tap : taps_) tap.weight = std::fabs(tap.weight);
    if (backward) Transpose(a.in);
  }

  int64_t size() const { return static_cast<int64_t>(begins_.size()) - 1; }
  std::span<const Tap> operator[](int64_t i) const {
    const size_t begin = begins_[static_cast<size_t>(i)];
    return {taps_.data() + begin, begins_[static_cast<size_t>(i) + 1] - begin};
  }

 private:
  void Transpose(int64_t length) {
    std::vector<std::vector<Tap>> users(static_cast<size_t>(length));
    for (int64_t i = 0; i < size(); ++i)
      for (const Tap& tap : (*this)[i])
        users[static_cast<size_t>(tap.at)].push_back({i, tap.weight});
    begins_.assign(1, 0);
    taps_.clear();
    for (const std::vector<Tap>& of_one : users) {
      taps_.insert(taps_.end(), of_one.begin(), of_one.end());
      begins_.push_back(taps_.size());
    }
  }

  std::vector<size_t> begins_;
  std::vector<Tap> taps_;
};

}  // namespace singa

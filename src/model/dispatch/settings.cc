#include <atomic>

#include "singa/core/environment.h"
#include "singa/core/error.h"
#include "singa/dispatch/plan_cache.h"

namespace singa {
namespace {

constexpr const char* kPreferenceNames[] = {"fastest", "limited_workspace", "no_workspace",
                                            "autotune", "reference"};
constexpr const char* kPrecisionNames[] = {"highest", "high"};

std::atomic<int>& DefaultPreference() {
  static std::atomic<int> preference =
      static_cast<int>(ParsePreference(EnvironmentValue("SINGA_PREFER")));
  return preference;
}

std::atomic<bool>& Strict() {
  static std::atomic<bool> strict = EnvironmentFlag("SINGA_STRICT");
  return strict;
}
std::atomic<Float32Precision>& Precision() {
  static std::atomic<Float32Precision> precision =
      EnvironmentValue("SINGA_FLOAT32_PRECISION") == kPrecisionNames[1] ||
              EnvironmentFlag("SINGA_TF32")
          ? Float32Precision::kHigh
          : Float32Precision::kHighest;
  return precision;
}
std::atomic<bool>& Deterministic() {
  static std::atomic<bool> deterministic = EnvironmentFlag("SINGA_DETERMINISTIC");
  return deterministic;
}

}  // namespace

void SetPreference(Preference preference) {
  PreferenceName(preference);  // raises for a number that is none
  DefaultPreference().store(static_cast<int>(preference));
}
Preference GetPreference() {
  return static_cast<Preference>(DefaultPreference().load(std::memory_order_relaxed));
}

void SetStrict(bool strict) { Strict().store(strict); }
bool IsStrict() { return Strict().load(std::memory_order_relaxed); }

void SetFloat32Precision(Float32Precision precision) {
  Float32PrecisionName(precision);  // raises for a number that is none
  Precision().store(precision);
}
Float32Precision GetFloat32Precision() { return Precision().load(std::memory_order_relaxed); }
bool RoundsFloat32Factors() {
  return GetFloat32Precision() == Float32Precision::kHigh && !IsStrict();
}
void SetTf32(bool tf32) {
  SetFloat32Precision(tf32 ? Float32Precision::kHigh : Float32Precision::kHighest);
}
bool IsTf32() { return GetFloat32Precision() == Float32Precision::kHigh; }

void SetDeterministic(bool deterministic) { Deterministic().store(deterministic); }
bool IsDeterministic() { return Deterministic().load(std::memory_order_relaxed); }

Preference ParsePreference(const std::string& name) {
  for (int i = 0; i < static_cast<int>(std::size(kPreferenceNames)); ++i)
    if (name == kPreferenceNames[i]) return static_cast<Preference>(i);
  throw std::invalid_argument(detail::Message(
      "prefer", "'", name,
      "' is none of fastest, limited_workspace, no_workspace, autotune, reference"));
}

const char* PreferenceName(Preference preference) {
  const int i = static_cast<int>(preference);
  Check(i >= 0 && i < static_cast<int>(std::size(kPreferenceNames)), "prefer",
        "there is no preference number ", i);
  return kPreferenceNames[i];
}

const char* Float32PrecisionName(Float32Precision precision) {
  const int i = static_cast<int>(precision);
  Check(i >= 0 && i < static_cast<int>(std::size(kPrecisionNames)), "float32 precision",
        "there is no precision number ", i);
  return kPrecisionNames[i];
}

}  // namespace singa

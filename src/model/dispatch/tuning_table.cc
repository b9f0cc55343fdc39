#include "model/dispatch/tuning_table.h"

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "core/statistics/profile.h"
#include "model/dispatch/kernel.h"
#include "model/dispatch/plan_cache.h"
#include "singa/core/error.h"
#include "singa/core/threads.h"
#include "singa/version.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace singa {
namespace {

struct Key {
  std::string machine, signature;
  auto operator<=>(const Key&) const = default;
};

std::mutex g_mutex;    // guards all of these
size_t g_version = 0;  // the sum of HashOf of all choices
std::map<Key, TuningChoice>& Choices() {
  static auto& choices = *new std::map<Key, TuningChoice>;
  return choices;
}
std::map<std::string, double>& Measurements() {
  static auto& measurements = *new std::map<std::string, double>;
  return measurements;
}
struct Scope {
  std::string name;
  double end = std::numeric_limits<double>::infinity();  // on ProfileClock()
};
Scope& CurrentScope() {
  static auto& scope = *new Scope;
  return scope;
}
std::string& Facts() {
  static auto& facts = *new std::string;
  return facts;
}

std::string CpuName() {
#if defined(__x86_64__) || defined(__i386__)
  unsigned int words[12] = {};
  for (unsigned int i = 0; i < 3; ++i)
    if (!__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                     &words[4 * i + 3]))
      return "CPU";
  char text[sizeof(words) + 1] = {};
  std::memcpy(text, words, sizeof(words));
  const std::string_view name = text;
  const size_t first = name.find_first_not_of(' ');
  if (first == std::string_view::npos) return "CPU";
  return std::string(name.substr(first, name.find_last_not_of(' ') - first + 1));
#else
  return "CPU";
#endif
}

/// Of what a choice decides, so not of the measured times.
size_t HashOf(const TuningChoice& choice) {
  return std::hash<std::string>()(choice.machine + '\n' + choice.signature + '\n' +
                                  choice.candidate);
}

/// Whether another candidate is chosen now.
bool Add(const TuningChoice& choice) {
  TuningChoice& entry = Choices()[{choice.machine, choice.signature}];
  const bool changes = entry.candidate != choice.candidate;
  if (changes) {
    if (!entry.candidate.empty()) g_version -= HashOf(entry);
    g_version += HashOf(choice);
  }
  entry = choice;
  return changes;
}

}  // namespace

std::optional<TuningChoice> FindChoice(const std::string& signature) {
  const std::string machine = TuningMachine();
  std::lock_guard<std::mutex> lock(g_mutex);
  const auto it = Choices().find({machine, signature});
  if (it == Choices().end()) return std::nullopt;
  return it->second;
}

bool HasChoices() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return !Choices().empty();
}

void RecordChoice(const std::string& signature, const std::string& candidate,
                  const std::string& measured) {
  const TuningChoice choice{signature, candidate, TuningMachine(), measured};
  std::lock_guard<std::mutex> lock(g_mutex);
  Add(choice);
}

std::optional<double> FindMeasurement(const std::string& key) {
  std::lock_guard<std::mutex> lock(g_mutex);
  const auto it = Measurements().find(key);
  if (it == Measurements().end()) return std::nullopt;
  return it->second;
}

void RecordMeasurement(const std::string& key, double milliseconds) {
  std::lock_guard<std::mutex> lock(g_mutex);
  Measurements()[key] = milliseconds;
}

void AddMachineFact(const std::string& fact) {
  std::lock_guard<std::mutex> lock(g_mutex);
  Facts() += ", " + fact;
}

std::vector<TuningChoice> GetTuningChoices() {
  std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<TuningChoice> choices;
  for (const auto& [key, choice] : Choices()) choices.push_back(choice);
  return choices;
}

void AddTuningChoices(const std::vector<TuningChoice>& choices) {
  for (const TuningChoice& choice : choices)
    Check(!choice.signature.empty() && !choice.candidate.empty(), "tuning",
          "a choice needs a signature and a candidate");
  {
    // Checkpoints load their choices, too. A choice that holds already drops no graph.
    std::lock_guard<std::mutex> lock(g_mutex);
    bool changes = false;
    for (const TuningChoice& choice : choices) changes |= Add(choice);
    if (!changes) return;
  }
  DropPlans();
}

void ClearTuningChoices() {
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    Choices().clear();
    g_version = 0;
  }
  DropPlans();
}

int64_t TuningVersion() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return static_cast<int64_t>(g_version);
}

void ForgetMeasurements() {
  std::lock_guard<std::mutex> lock(g_mutex);
  Measurements().clear();
}

std::string TuningMachine() {
  backend::EnsureRegistered();
  static const std::string cpu = CpuName();
  const std::string threads = std::to_string(NumThreads());
  std::lock_guard<std::mutex> lock(g_mutex);
  return cpu + Facts() + ", singa " SINGA_VERSION ", " + threads +
         (threads == "1" ? " thread" : " threads");
}

void SetTuningScope(const std::string& scope, double seconds) {
  std::lock_guard<std::mutex> lock(g_mutex);
  CurrentScope() = {scope, ProfileClock() + 1e3 * seconds};
}

std::string GetTuningScope() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return ProfileClock() < CurrentScope().end ? CurrentScope().name : "default";
}

}  // namespace singa

#pragma once

// Which of the registered kernels runs a Spec, and in which of its ways.

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/operation/choice.h"
#include "model/operation/choice_table.h"
#include "model/operation/explain.h"
#include "model/operation/kernel.h"
#include "model/operation/measure.h"
#include "singa/core/device.h"
#include "singa/core/error.h"
#include "singa/core/plan_cache.h"
#include "singa/core/stats.h"

namespace singa {

/// Operation, parameters and what else a choice depends on beside the machine; the same text in
/// every process.
template <class Spec>
std::string SignatureText(const Device& device, const Spec& spec, const Choice& choice) {
  std::vector<std::pair<std::string, std::string>> fields;
  opcheck::FieldWriter writer{&fields};
  Spec::VisitFields(spec, writer);
  std::string text = spec.op();
  for (const auto& [name, value] : fields) text += " " + name + "=" + value;
  text += " strict=" + std::to_string(IsStrict());
  text += " workspace_limit=" + std::to_string(choice.workspace_limit);
  if (device.kind() == DeviceKind::kCpu) return text + " cpu";
  text += " tf32=" + std::to_string(IsTf32());
  text += " deterministic=" + std::to_string(IsDeterministic());
  return text + " cuda " + device.hardware();
}

/// Makes the plan of one Spec, by preference:
///
/// - kFastest: what the table of choices names; else the first kernel that takes the Spec and does
///   not leave it to a faster one.
/// - kAutotune: what the table names; else what proves fastest within the workspace limit, which is
///   then in the table. Specs that cannot be measured go as with kFastest.
/// - kLimitedWorkspace, kNoWorkspace: the first way of the first kernel that keeps the limit; where
///   none does without workspace, the one that needs least.
/// - kReference: the plain kernel.
///
/// Raises Unavailable with every kernel's reason if no kernel takes the Spec. With a `note` the
/// same plan is made, and kernels that come too late are asked as well.
template <class Spec>
class Selector {
 public:
  Selector(const Device& device, const Spec& spec, const Choice& choice, Selection* note)
      : device_(device), spec_(spec), choice_(choice), note_(note) {}

  PlanPtr Select() {
    device_.MakeCurrent();
    const bool follows_table =
        choice_.preference == Preference::kFastest || choice_.preference == Preference::kAutotune;
    if (note_ || (follows_table && (HasChoices() || Tunes())))
      signature_ = SignatureText(device_, spec_, choice_);
    Ask();
    PlanPtr plan;
    if (follows_table) plan = FromTable();
    if constexpr (kMeasurable)
      if (!plan && Tunes() && offers_.size() > 0) plan = Measure();
    if (!plan) plan = First();
    if (!plan)
      throw Unavailable(detail::Message(spec_.op(), "no implementation takes this on ",
                                        device_.name(), ":", Reasons()));
    if (note_) {
      note_->signature = signature_;
      note_->why = why_;
      note_->others = std::move(refused_);
    }
    return plan;
  }

 private:
  static constexpr bool kMeasurable = requires(const Spec& spec) { spec.Measured(); };

  /// A kernel that could do it.
  struct Offer {
    const Kernel<Spec>* kernel;
    std::string declines;  ///< why it would rather not; empty if it would
  };

  bool Tunes() const {
    if constexpr (requires { Spec::kMeasuredOn; })
      if (device_.kind() != Spec::kMeasuredOn) return false;
    return kMeasurable && choice_.preference == Preference::kAutotune;
  }

  /// Asks the kernels, all of them only where that is of use.
  void Ask() {
    const bool all = note_ || !signature_.empty();
    for (const Kernel<Spec>* kernel : Registry<Spec>::Get(device_.kind()).kernels()) {
      const bool reference = IsReference(*kernel);
      if (choice_.preference == Preference::kReference && !reference) {
        Refuse(kernel->implementation(), "the plain implementation is preferred");
        continue;
      }
      if (std::string reason = kernel->Refuses(spec_); !reason.empty()) {
        Refuse(kernel->implementation(), std::move(reason));
        continue;
      }
      offers_.push_back({kernel, kernel->Declines(spec_)});
      const bool unlimited = choice_.preference != Preference::kLimitedWorkspace &&
                             choice_.preference != Preference::kNoWorkspace;
      if (!all && unlimited && offers_.back().declines.empty()) return;
    }
  }

  PlanPtr FromTable() {
    if (!HasChoices()) return nullptr;
    const auto entry = FindChoice(signature_);
    if (!entry) return nullptr;
    for (const Offer& offer : offers_) {
      // Names begin with the kernel's.
      if (!entry->candidate.starts_with(offer.kernel->implementation())) continue;
      for (const Candidate& candidate : offer.kernel->Candidates(spec_)) {
        if (candidate.name != entry->candidate) continue;
        const PlanPtr plan = Attempt(candidate);
        if (!plan) return nullptr;
        if (choice_.preference == Preference::kAutotune &&
            plan->workspace_bytes() > choice_.workspace_limit)
          return nullptr;
        Chosen(*plan, entry->candidate + " is in the table of choices" +
                          (entry->measured.empty() ? "" : "; measured: " + entry->measured));
        for (const Offer& other : offers_)
          if (&other != &offer) Refuse(other.kernel->implementation(), "the table names another");
        return plan;
      }
    }
    Refuse(entry->candidate, "is in the table of choices, but not on offer");
    return nullptr;
  }

  /// By the order of the kernels.
  PlanPtr First() {
    const size_t limit = choice_.preference == Preference::kNoWorkspace ? 0
                         : choice_.preference == Preference::kLimitedWorkspace
                             ? choice_.workspace_limit
                             : SIZE_MAX;
    PlanPtr chosen, smallest;
    for (const Offer& offer : offers_) {
      const char* name = offer.kernel->implementation();
      if (chosen) {
        Refuse(name, offer.declines.empty() ? "comes later in order" : offer.declines);
      } else if (!offer.declines.empty()) {
        Refuse(name, offer.declines);
      } else if (limit == SIZE_MAX) {
        chosen = offer.kernel->MakePlan(spec_);
      } else {
        for (const Candidate& candidate : offer.kernel->Candidates(spec_)) {
          // Making a plan may take long; not for one that could not be chosen.
          const bool hopeless = candidate.workspace > limit &&
                                (choice_.preference != Preference::kNoWorkspace ||
                                 (smallest && candidate.workspace >= smallest->workspace_bytes()));
          if (hopeless) {
            RefuseSize(candidate.name, candidate.workspace);
            continue;
          }
          const PlanPtr plan = Attempt(candidate);
          if (!plan) continue;
          if (plan->workspace_bytes() <= limit) {
            chosen = plan;
            break;
          }
          RefuseSize(candidate.name, plan->workspace_bytes());
          if (!smallest || plan->workspace_bytes() < smallest->workspace_bytes()) smallest = plan;
        }
      }
    }
    // Nothing does without: the smallest workspace is the nearest to what was asked for.
    if (!chosen && choice_.preference == Preference::kNoWorkspace) {
      if (smallest) Chosen(*smallest, "needs the least workspace");
      return smallest;
    }
    if (!chosen) return nullptr;
    Chosen(*chosen, choice_.preference == Preference::kReference
                        ? "the plain implementation is preferred"
                    : limit == SIZE_MAX ? "the first in order that takes it"
                                        : "the first in order that keeps the limit of " +
                                              std::to_string(limit) + " bytes of workspace");
    return chosen;
  }

  PlanPtr Measure() requires kMeasurable {
    const std::string scope = GetTuningScope();
    const auto device = std::const_pointer_cast<Device>(device_.shared_from_this());
    const MeasuredCall call = spec_.Measured();
    const Stopwatch stopwatch(device, call);
    std::vector<std::pair<Candidate, bool>> candidates = Candidates();
    if (scope == "default") candidates.resize(1);
    PlanPtr best;
    std::string best_name;
    double best_ms = Stopwatch::kNever;
    std::vector<std::pair<double, std::string>> times;
    for (const bool everything : {scope.empty() || scope == "default", true}) {
      for (const auto& [candidate, reference] : candidates) {
        // Nobody waits for the plain kernel where there is much to do and somebody else does it.
        if (reference && best && call.elements() > (int64_t{1} << 20)) {
          Refuse(candidate.name, "not measured: the plain kernel does not win at this size");
          continue;
        }
        if (candidate.workspace > choice_.workspace_limit) {
          RefuseSize(candidate.name, candidate.workspace);
          continue;
        }
        try {
          const PlanPtr plan = candidate.make();
          if (plan->workspace_bytes() > choice_.workspace_limit) {
            RefuseSize(candidate.name, plan->workspace_bytes());
            continue;
          }
          if (!everything && call.outputs[0].image && LayoutName(plan->output_layout(0)) != scope)
            continue;
          double ms = 0;
          if (scope != "default") {
            ms = TimeOf(stopwatch, call, candidate.name, *plan, best_ms);
            times.emplace_back(ms, candidate.name);
          }
          // What comes first stays unless another is faster by more than measurements scatter.
          if (best && ms > 0.97 * best_ms) continue;
          best = plan, best_name = candidate.name, best_ms = ms;
        } catch (const std::exception& error) {
          Refuse(candidate.name, error.what());
        }
      }
      if (best || everything) break;
    }
    SetCurrentOp(spec_.op());  // reorders have changed it
    if (!best) return nullptr;
    std::sort(times.begin(), times.end());
    std::string measured;
    for (const auto& [ms, name] : times)
      measured += (measured.empty() ? "" : ", ") + Milliseconds(ms) + " " + name;
    RecordChoice(signature_, best_name, measured);
    Chosen(*best, best_name + " is the fastest; measured: " + measured);
    return best;
  }

  /// All ways of all kernels, and whether it is the plain one's; what kFastest takes comes first.
  std::vector<std::pair<Candidate, bool>> Candidates() const {
    std::vector<std::pair<Candidate, bool>> candidates;
    for (const bool declined : {false, true})
      for (const Offer& offer : offers_)
        if (offer.declines.empty() != declined)
          for (Candidate& candidate : offer.kernel->Candidates(spec_))
            candidates.emplace_back(std::move(candidate), IsReference(*offer.kernel));
    return candidates;
  }

  /// Measured now, or before under the same conditions.
  double TimeOf(const Stopwatch& stopwatch, const MeasuredCall& call, const std::string& name,
                const Plan& plan, double best) const {
    std::string key = signature_ + " " + name;
    for (const MeasuredTensor& t : call.outputs)
      for (const LayoutPtr& reader : t.readers) key += " " + LayoutName(reader);
    if (const auto known = FindMeasurement(key)) return *known;
    const double ms = stopwatch.Time(plan, best);
    RecordMeasurement(key, ms);
    return ms;
  }

  void Chosen(const Plan& plan, std::string why) {
    why_ = std::move(why);
    if constexpr (requires { spec_.OnChosen(plan); })
      if (Tunes()) spec_.OnChosen(plan);
  }
  /// The plan; null where it turns out that there is none.
  PlanPtr Attempt(const Candidate& candidate) {
    try {
      return candidate.make();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      Refuse(candidate.name, error.what());
      return nullptr;
    }
  }
  void Refuse(std::string name, std::string reason) {
    refused_.emplace_back(std::move(name), std::move(reason));
  }
  void RefuseSize(std::string name, size_t bytes) {
    Refuse(std::move(name), "needs " + std::to_string(bytes) + " bytes of workspace");
  }
  std::string Reasons() const {
    std::string text;
    for (const auto& [name, reason] : refused_) text += "\n  " + name + ": " + reason;
    return text.empty() ? " none was written for such devices" : text;
  }
  static bool IsReference(const Kernel<Spec>& kernel) {
    return std::string_view(kernel.implementation()) == "reference";
  }
  static std::string Milliseconds(double ms) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.3g ms", ms);
    return text;
  }

  const Device& device_;
  const Spec& spec_;
  const Choice& choice_;
  Selection* note_;
  std::string signature_, why_;
  std::vector<Offer> offers_;
  std::vector<std::pair<std::string, std::string>> refused_;
};

}  // namespace singa

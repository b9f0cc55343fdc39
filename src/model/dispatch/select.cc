#include "model/dispatch/select.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "model/dispatch/kernel.h"
#include "model/dispatch/measure.h"
#include "model/dispatch/spot/refused_plans.h"
#include "model/dispatch/tuning_table.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"
#include "singa/dispatch/plan_cache.h"

namespace singa {
namespace {

/// One selection.
class Selector {
 public:
  Selector(const Device& device, const OpRef& spec, const PlanOptions& options, Selection* note)
      : device_(device), spec_(spec), options_(options), note_(note) {}

  PlanPtr Select() {
    device_.MakeCurrent();
    const bool follows_table =
        options_.preference == Preference::kFastest || options_.preference == Preference::kAutotune;
    if (note_ || (follows_table && (HasChoices() || Tunes())))
      signature_ = SignatureText(device_, spec_, options_);
    kernels_ = Kernels();
    PlanPtr plan;
    if (follows_table) plan = FromTable();
    if (!plan && Tunes()) plan = Measure();
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
  bool Tunes() const {
    const OpType& type = spec_.op_type();
    return type.measured && type.measured_on.value_or(device_.kind()) == device_.kind() &&
           options_.preference == Preference::kAutotune;
  }

  /// The kernels that the preference allows.
  std::vector<const Kernel*> Kernels() {
    std::vector<const Kernel*> kernels;
    for (const Kernel& kernel : KernelsOf(spec_.op_type().name(), device_.kind())) {
      if (options_.preference == Preference::kReference && !IsReference(kernel))
        Refuse(kernel.implementation, "the plain implementation is preferred");
      else
        kernels.push_back(&kernel);
    }
    return kernels;
  }

  PlanPtr FromTable() {
    if (!HasChoices()) return nullptr;
    const auto entry = FindChoice(signature_);
    if (!entry) return nullptr;
    for (const Kernel* kernel : kernels_) {
      // A candidate's name begins with the kernel's name.
      if (!entry->candidate.starts_with(kernel->implementation)) continue;
      for (const Candidate& candidate : kernel->Candidates(spec_)) {
        if (candidate.name != entry->candidate) continue;
        const PlanPtr plan = Attempt(candidate);
        if (!plan) return nullptr;
        if (options_.preference == Preference::kAutotune &&
            plan->workspace_bytes() > options_.workspace_limit)
          return nullptr;
        Chosen(*plan, entry->candidate + " is in the table of choices" +
                          (entry->measured.empty() ? "" : "; measured: " + entry->measured));
        for (const Kernel* other : kernels_)
          if (other != kernel) RefuseUnless(*other, "the table names another");
        return plan;
      }
    }
    Refuse(entry->candidate, "is in the table of choices, but not on offer");
    return nullptr;
  }

  /// The first in the order of the kernels.
  PlanPtr First() {
    const size_t limit = options_.preference == Preference::kNoWorkspace ? 0
                         : options_.preference == Preference::kLimitedWorkspace
                             ? options_.workspace_limit
                             : SIZE_MAX;
    PlanPtr chosen, smallest;
    for (const Kernel* kernel : kernels_) {
      if (chosen && !note_) break;
      if (chosen || limit == SIZE_MAX) {
        const PlanOrReason made = MadeBy(*kernel);
        if (!made)
          Refuse(kernel->implementation, made.reason());
        else if (chosen)
          Refuse(kernel->implementation, "comes later in order");
        else
          chosen = made.plan();
      } else {
        for (const Candidate& candidate : CandidatesOf(*kernel)) {
          if (!candidate.slower.empty()) {
            Refuse(candidate.name, candidate.slower);
            continue;
          }
          // Making a plan may take long, so none is made that could not be chosen.
          const bool hopeless = candidate.workspace > limit &&
                                (options_.preference != Preference::kNoWorkspace ||
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
    // All need workspace: the smallest one is nearest to the preference.
    if (!chosen && options_.preference == Preference::kNoWorkspace) {
      if (smallest) Chosen(*smallest, "needs the least workspace");
      return smallest;
    }
    if (!chosen) return nullptr;
    Chosen(*chosen, options_.preference == Preference::kReference
                        ? "the plain implementation is preferred"
                    : limit == SIZE_MAX ? "the first in order that takes it"
                                        : "the first in order that keeps the limit of " +
                                              std::to_string(limit) + " bytes of workspace");
    return chosen;
  }

  PlanPtr Measure() {
    const std::string scope = GetTuningScope();
    const auto device = std::const_pointer_cast<Device>(device_.shared_from_this());
    const MeasuredCall call = spec_.op_type().measured(spec_.spec);
    const Stopwatch stopwatch(device, call);
    std::vector<std::pair<Candidate, bool>> candidates = Candidates();
    if (candidates.empty()) return nullptr;
    if (scope == "default") candidates.resize(1);
    PlanPtr best;
    std::string best_name;
    double best_ms = Stopwatch::kNever;
    std::vector<std::pair<double, std::string>> times;
    for (const bool everything : {scope.empty() || scope == "default", true}) {
      for (const auto& [candidate, reference] : candidates) {
        // The reference kernel is not worth waiting for where there is much to compute.
        if (reference && best && call.elements() > (int64_t{1} << 20)) {
          Refuse(candidate.name, "not measured: the plain kernel does not win at this size");
          continue;
        }
        if (candidate.workspace > options_.workspace_limit) {
          RefuseSize(candidate.name, candidate.workspace);
          continue;
        }
        try {
          const PlanPtr plan = Attempt(candidate);
          if (!plan) continue;
          if (plan->workspace_bytes() > options_.workspace_limit) {
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
          // A later candidate has to be faster by more than measurements scatter.
          if (best && ms > 0.97 * best_ms) continue;
          best = plan, best_name = candidate.name, best_ms = ms;
        } catch (const std::exception& error) {
          Refuse(candidate.name, error.what());
        }
      }
      if (best || everything) break;
    }
    SetCurrentOp(spec_.op());  // the measured reorders have changed it
    if (!best) return nullptr;
    std::sort(times.begin(), times.end());
    std::string measured;
    for (const auto& [ms, name] : times)
      measured += (measured.empty() ? "" : ", ") + Milliseconds(ms) + " " + name;
    RecordChoice(signature_, best_name, measured);
    Chosen(*best, best_name + " is the fastest; measured: " + measured);
    return best;
  }

  std::vector<Candidate> CandidatesOf(const Kernel& kernel) {
    std::vector<Candidate> candidates = kernel.Candidates(spec_);
    if (candidates.empty()) Refuse(kernel.implementation, kernel.Make(spec_).reason());
    return candidates;
  }

  /// All candidates of all kernels, each with whether it is the reference kernel's. kFastest's
  /// comes first.
  std::vector<std::pair<Candidate, bool>> Candidates() {
    std::vector<std::pair<Candidate, bool>> candidates;
    for (const Kernel* kernel : kernels_)
      for (Candidate& candidate : CandidatesOf(*kernel))
        candidates.emplace_back(std::move(candidate), IsReference(*kernel));
    std::stable_partition(candidates.begin(), candidates.end(),
                          [](const auto& each) { return each.first.slower.empty(); });
    return candidates;
  }

  /// Milliseconds, measured now, or before under the same conditions.
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
    if (const OpType& type = spec_.op_type(); type.on_chosen && Tunes())
      type.on_chosen(spec_.spec, plan);
  }
  /// The kernel's first plan, or its first one that no spot check has found wrong.
  PlanOrReason MadeBy(const Kernel& kernel) {
    PlanOrReason made = kernel.Make(spec_);
    if (!made) return made;
    std::string reason = spot::ReasonAgainst(spec_, *made.plan());
    if (reason.empty()) return made;
    Refuse(made.plan()->Describe(), reason);
    for (const Candidate& candidate : kernel.Candidates(spec_))
      if (PlanPtr plan = Attempt(candidate)) return plan;
    return PlanOrReason::None(std::move(reason));
  }
  /// The plan; null where making it fails, and where a spot check has found it wrong.
  PlanPtr Attempt(const Candidate& candidate) {
    try {
      PlanPtr plan = candidate.make();
      std::string reason = spot::ReasonAgainst(spec_, *plan);
      if (reason.empty()) return plan;
      Refuse(plan->Describe(), std::move(reason));
      return nullptr;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      Refuse(candidate.name, error.what());
      return nullptr;
    }
  }
  /// Notes a refusal once, however often the kernel was asked.
  void Refuse(std::string name, std::string reason) {
    const std::pair<std::string, std::string> refusal(std::move(name), std::move(reason));
    if (std::find(refused_.begin(), refused_.end(), refusal) == refused_.end())
      refused_.push_back(refusal);
  }
  /// With a note: refuses a kernel for its own reason, or for this one where it has none.
  void RefuseUnless(const Kernel& kernel, const char* reason) {
    if (!note_) return;
    const PlanOrReason made = kernel.Make(spec_);
    Refuse(kernel.implementation, made ? reason : made.reason());
  }
  void RefuseSize(std::string name, size_t bytes) {
    Refuse(std::move(name), "needs " + std::to_string(bytes) + " bytes of workspace");
  }
  std::string Reasons() const {
    std::string text;
    for (const auto& [name, reason] : refused_) text += "\n  " + name + ": " + reason;
    return text.empty() ? " none was written for such devices" : text;
  }
  static bool IsReference(const Kernel& kernel) {
    return std::string_view(kernel.implementation) == kReference;
  }
  static std::string Milliseconds(double ms) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.3g ms", ms);
    return text;
  }

  const Device& device_;
  const OpRef& spec_;
  const PlanOptions& options_;
  Selection* note_;
  std::string signature_, why_;
  std::vector<const Kernel*> kernels_;
  std::vector<std::pair<std::string, std::string>> refused_;
};

}  // namespace

std::string SignatureText(const Device& device, const OpRef& spec, const PlanOptions& options) {
  std::string text = spot::CallText(spec);
  text += " strict=" + std::to_string(IsStrict());
  text += " workspace_limit=" + std::to_string(options.workspace_limit);
  const bool high = GetFloat32Precision() == Float32Precision::kHigh;
  if (device.kind() == DeviceKind::kCpu) return text + (high ? " float32=high" : "") + " cpu";
  text += " tf32=" + std::to_string(high);
  text += " deterministic=" + std::to_string(IsDeterministic());
  return text + " cuda " + device.hardware();
}

PlanPtr SelectPlan(const Device& device, const OpRef& spec, const PlanOptions& options,
                   Selection* note) {
  return Selector(device, spec, options, note).Select();
}

}  // namespace singa

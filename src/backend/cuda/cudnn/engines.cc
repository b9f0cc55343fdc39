#include "backend/cuda/cudnn/engines.h"

#include "backend/cuda/cudnn/defects.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::cudnn {

std::vector<Engine> Permitted(std::vector<Engine> engines, DType dtype) {
  const bool tf32 = RoundsFloat32Factors();
  std::erase_if(engines, [&](const Engine& engine) {
    // For float32, tensor cores compute in TF32.
    if (dtype == kFloat32 && engine.tensor_cores && !tf32) return true;
    if (engine.rounds_inputs) return true;
    if (IsStrict() && (engine.transforms || engine.rounds_sums)) return true;
    return IsDeterministic() && !engine.deterministic;
  });
  return engines;
}

std::vector<Engine> PermittedEngines(const DnnProblem& problem) {
  const DType dtype = std::visit([](const auto& p) { return p.dtype; }, problem);
  std::vector<Engine> engines = Permitted(Dnn().Engines(problem), dtype);
  for (Engine& engine : engines)
    if (const char* defect = DefectOf(problem, engine.name)) engine.defect = defect;
  return engines;
}

std::vector<Candidate> CandidatesOf(const std::vector<Engine>& engines, size_t most,
                                    const std::function<PlanPtr(const Engine&)>& make) {
  std::vector<Candidate> candidates;
  for (const Engine& engine : engines) {
    if (candidates.size() == most) break;
    // The name begins with the implementation's. It contains cuDNN's version, because the numbers
    // of engines and knobs depend on it.
    candidates.push_back({.name = std::string(kCudnn) + " " + Dnn().Version() + " " + engine.name,
                          .make = [make, engine] { return make(engine); },
                          .workspace = engine.workspace,
                          .defect = engine.defect});
  }
  return candidates;
}

PlanOrReason FirstPlan(const std::vector<Engine>& engines,
                       const std::function<PlanPtr(const Engine&)>& make) {
  if (engines.empty()) return PlanOrReason::None(kNoEngine);
  std::string reasons;
  for (const Engine& engine : engines) {
    if (!engine.defect.empty()) {
      reasons += "\n  " + engine.name + " " + engine.defect;
      continue;
    }
    try {
      return make(engine);
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      reasons += "\n  " + engine.name + ": " + error.what();
    }
  }
  return PlanOrReason::None("none of cuDNN's engines can be used:" + reasons);
}

}  // namespace singa::cudnn

#include "model/dispatch/explain.h"

#include <atomic>
#include <map>
#include <mutex>

#include "singa/core/stats.h"

namespace singa {
namespace {

std::atomic<bool> g_explaining{false};
std::mutex g_mutex;
std::map<PlanPtr, Selection> g_selections;  // guarded by g_mutex

}  // namespace

void SetExplaining(bool enable) {
  g_explaining.store(enable);
  SetProfiling(enable);
}

bool IsExplaining() { return g_explaining.load(std::memory_order_relaxed); }

bool NeedsExplanation(const PlanPtr& plan) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_selections.count(plan) == 0;
}

void Explain(const PlanPtr& plan, Selection selection) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_selections.emplace(plan, std::move(selection));
}

std::vector<ExplainedOp> TakeExplanations() {
  std::vector<ExplainedOp> operations;
  for (ProfileRecord& record : TakeProfile()) {
    if (!record.plan && record.op != "Reorder") continue;  // a collective
    ExplainedOp& op = operations.emplace_back();
    op.op = std::move(record.op);
    op.layer = std::move(record.layer);
    op.description = std::move(record.implementation);
    op.inputs = std::move(record.inputs);
    op.outputs = std::move(record.outputs);
    op.takes = std::move(record.takes);
    op.workspace = record.workspace;
    op.milliseconds = record.milliseconds;
    if (!record.plan) {  // a reorder
      op.inputs = {std::move(record.shapes)};
      continue;
    }
    op.implementation = record.plan->implementation();
    for (size_t i = 0; i < op.outputs.size(); ++i)
      op.may_take.push_back(record.plan->inplace_input(i));
    std::lock_guard<std::mutex> lock(g_mutex);
    const auto it = g_selections.find(record.plan);
    if (it == g_selections.end()) continue;
    op.signature = it->second.signature;
    op.why = it->second.why;
    op.input_names = it->second.input_names;
    op.output_names = it->second.output_names;
    for (const auto& [name, reason] : it->second.others) {
      op.others.push_back(name);
      op.reasons.push_back(reason);
    }
  }
  std::lock_guard<std::mutex> lock(g_mutex);
  if (!IsExplaining()) g_selections.clear();  // they hold their plans
  return operations;
}

}  // namespace singa

#include "core/device/poison.h"

#include <algorithm>
#include <cstring>

#include "core/tensor/shares_memory.h"
#include "singa/core/device.h"
#include "singa/core/environment.h"

namespace singa {

bool IsPoisoning() {
  static const bool poisoning = EnvironmentFlag("SINGA_POISON");
  return poisoning;
}

void FillWithNaN(const Tensor& t) {
  if (t.empty() || t.device()->kind() != DeviceKind::kCpu) return;
  if (const LayoutPtr& layout = t.layout())
    std::memset(t.block()->data(), 0xFF, layout->bytes());
  else if (t.is_contiguous())
    std::memset(t.raw_data(), 0xFF, static_cast<size_t>(t.bytes()));
}

void Poison(const Execution& execution, size_t workspace_bytes) {
  if (execution.device.kind() != DeviceKind::kCpu) return;
  if (workspace_bytes > 0) std::memset(execution.workspace, 0xFF, workspace_bytes);
  for (const Tensor& output : execution.outputs) {
    const bool is_input =
        std::any_of(execution.inputs.begin(), execution.inputs.end(),
                    [&](const Tensor& input) { return SharesMemory(input, output); });
    if (!is_input) FillWithNaN(output);
  }
}

}  // namespace singa

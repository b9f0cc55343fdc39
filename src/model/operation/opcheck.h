#pragma once

#include <span>

#include "singa/core/device.h"
#include "singa/core/opcheck.h"

namespace singa::opcheck {

/// True when this call is to be compared with `reference`.
bool Wanted(const char* op, const Plan& plan);

template <class Spec>
void RunChecked(const Spec& spec, const DevicePtr& device, const PlanPtr& plan,
                std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                const Scalars& scalars) {
  device->Exec(spec.op(), plan, inputs, outputs, scalars);
}

}  // namespace singa::opcheck

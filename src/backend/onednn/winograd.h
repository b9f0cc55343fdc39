#pragma once

#include <string>

#include "model/operation/conv_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn::winograd {

/// Why Winograd's method cannot be taken for this pass; empty when it can.
std::string Refuses(const ConvSpec& spec);
/// Whether it is likely to be faster than oneDNN's direct convolution.
bool Pays(const ConvSpec& spec);
PlanPtr MakePlan(const ConvSpec& spec);

}  // namespace singa::onednn::winograd

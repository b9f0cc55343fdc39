#pragma once

// When float32 products of bfloat16 parts are offered.

#include <cstdint>
#include <string>

#include "backend/cpu/batch_blocked/product.h"
#include "model/operation/conv/spec.h"
#include "model/operation/linalg/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::parts_product {

/// AMX, or its plain model with SINGA_AMX_FLOAT32=plain, which pays everywhere. Numbers have three
/// parts, or two where their factors may be rounded (Float32Precision::kHigh).
batch_blocked::PartsUnit UnitInUse();
/// Why this process does not multiply by parts; empty if it does: the unit in use is there, without
/// strict mode or SINGA_AMX_FLOAT32=off.
std::string IsOff();

/// Whether a product of a (rows, terms) matrix and a (terms, columns) one is likely to be faster by
/// parts than by float32 instructions.
bool Pays(int64_t rows, int64_t columns, int64_t terms);

/// Why the product of parts does not take a Spec on any CPU.
std::string Refuses(const MatMulSpec& spec);
bool Pays(const MatMulSpec& spec);
PlanPtr MakePlan(const MatMulSpec& spec, const batch_blocked::PartsUnit& unit = UnitInUse());

std::string Refuses(const ConvSpec& spec);
bool Pays(const ConvSpec& spec);
PlanPtr MakePlan(const ConvSpec& spec, const batch_blocked::PartsUnit& unit = UnitInUse());

}  // namespace singa::cpu::parts_product

#pragma once

// When float32 products of bfloat16 parts are offered.

#include <cstdint>
#include <string>

#include "backend/cpu/batch_blocked/product.h"
#include "model/operation/conv/spec.h"
#include "model/operation/linalg/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::parts_product {

/// Why this process does not multiply by parts; empty if it does: a CPU with AMX, without strict
/// mode or SINGA_AMX_FLOAT32=off.
std::string IsOff();

/// Whether a product of a (rows, terms) matrix and a (terms, columns) one is likely to be faster by
/// parts than by float32 instructions.
bool Pays(int64_t rows, int64_t columns, int64_t terms);

/// Why the product of parts does not take a Spec on any CPU.
std::string Refuses(const MatMulSpec& spec);
bool Pays(const MatMulSpec& spec);
PlanPtr MakePlan(const MatMulSpec& spec, batch_blocked::Unit unit = batch_blocked::Unit::kAmx);

std::string Refuses(const ConvSpec& spec);
bool Pays(const ConvSpec& spec);
PlanPtr MakePlan(const ConvSpec& spec, batch_blocked::Unit unit = batch_blocked::Unit::kAmx);

}  // namespace singa::cpu::parts_product

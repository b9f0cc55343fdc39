#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "singa/core/plan.h"
#include "singa/core/tensor.h"

namespace singa {

/// The Spec that an execution came from, of a type that the core does not know: a reference, which
/// a recording copies.
struct SpecRef {
  const void* spec = nullptr;
  const std::type_info* type = nullptr;
  std::shared_ptr<const void> (*copy)(const void*) = nullptr;
  /// Products that its sums have, whatever the implementation computes; null where there are none.
  int64_t (*multiply_adds)(const void*) = nullptr;

  SpecRef() = default;
  template <class Spec>
  static SpecRef Of(const Spec& spec) {
    SpecRef ref;
    ref.spec = &spec;
    ref.type = &typeid(Spec);
    ref.copy = [](const void* opaque) -> std::shared_ptr<const void> {
      return std::make_shared<const Spec>(*static_cast<const Spec*>(opaque));
    };
    if constexpr (requires { spec.multiply_adds(); })
      ref.multiply_adds = [](const void* opaque) {
        return static_cast<const Spec*>(opaque)->multiply_adds();
      };
    return ref;
  }
};

/// A step of work: a plan with what it reads and writes. Holds its tensors, so nothing outlives
/// what it uses.
struct Node {
  const char* op = "";  ///< "ConvForward" ...; a string that lives for ever
  PlanPtr plan;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  Scalars scalars;

  // Known of recorded ones.
  std::shared_ptr<const void> spec;
  const std::type_info* spec_type = nullptr;
  int64_t multiply_adds = 0;
  std::string layer;
  const char* wanted_by = "";  ///< a reorder: the operation that asked for it
  int random = -1;             ///< which of the recording's random draws its scalars carry
  int merged = 0;              ///< further operations that it stands for
  /// Where a replay finds the scalars instead; whoever recorded them writes there between replays.
  std::shared_ptr<const Scalars> live;

  /// The Spec, or null where it is of another type.
  template <class Spec>
  const Spec* SpecAs() const {
    return spec_type && *spec_type == typeid(Spec) ? static_cast<const Spec*>(spec.get()) : nullptr;
  }
};

}  // namespace singa

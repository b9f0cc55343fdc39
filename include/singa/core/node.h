#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "singa/core/plan.h"
#include "singa/core/tensor.h"

namespace singa {

/// What the core does with a Spec, the description of one call of an operation, whose type it does
/// not know.
struct SpecType {
  const std::type_info* id = nullptr;
  std::shared_ptr<void> (*copy)(const void* spec) = nullptr;
  /// Multiply-adds by the definition of the operation, whatever the implementation computes. Null
  /// for an operation without any.
  int64_t (*multiply_adds)(const void* spec) = nullptr;

  template <class Spec>
  static constexpr SpecType Of() {
    SpecType type;
    type.id = &typeid(Spec);
    type.copy = [](const void* spec) -> std::shared_ptr<void> {
      return std::make_shared<Spec>(*static_cast<const Spec*>(spec));
    };
    if constexpr (requires(const Spec& spec) { spec.multiply_adds(); })
      type.multiply_adds = [](const void* spec) {
        return static_cast<const Spec*>(spec)->multiply_adds();
      };
    return type;
  }
};

/// A reference to a Spec of any type.
struct SpecRef {
  const void* spec = nullptr;
  const SpecType* type = nullptr;

  SpecRef() = default;
  SpecRef(const void* any, const SpecType* its_type) : spec(any), type(its_type) {}
  template <class Spec>
  requires(!std::derived_from<Spec, SpecRef>) SpecRef(const Spec& of) : spec(&of) {
    static constexpr SpecType kType = SpecType::Of<Spec>();
    type = &kType;
  }

  /// Raises std::bad_cast where the Spec has another type.
  template <class Spec>
  const Spec& As() const {
    if (*type->id != typeid(Spec)) throw std::bad_cast();
    return *static_cast<const Spec*>(spec);
  }
};

/// One recorded execution: a plan with the tensors that it reads and writes. It holds the tensors,
/// so their memory lives as long as the node.
struct Node {
  const char* op = "";  ///< "ConvForward" ...; never freed
  PlanPtr plan;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  Scalars scalars;

  std::shared_ptr<const void> spec;
  const SpecType* spec_type = nullptr;
  int64_t multiply_adds = 0;
  std::string layer;
  const char* wanted_by = "";  ///< of a reorder: the operation that asked for it
  int random = -1;             ///< index of the random draw in its scalars; -1: none
  int merged = 0;              ///< recorded operations that it replaces, less one
  /// Its results depend on constant tensors alone. A Graph runs it again only when one of these has
  /// changed.
  bool prepares = false;
  /// If set, a replay reads the scalars here. The optimizer writes them between replays.
  std::shared_ptr<const Scalars> live;

  /// The Spec, or null if it has another type.
  template <class Spec>
  const Spec* SpecAs() const {
    return spec_type && *spec_type->id == typeid(Spec) ? static_cast<const Spec*>(spec.get())
                                                       : nullptr;
  }
};

}  // namespace singa

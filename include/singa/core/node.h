#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include "singa/core/plan.h"
#include "singa/core/tensor.h"

namespace singa {

/// A reference to the Spec of an execution. The core does not know its type; a recording copies it.
struct SpecRef {
  const void* spec = nullptr;
  const std::type_info* type = nullptr;
  std::shared_ptr<const void> (*copy)(const void*) = nullptr;
  /// Multiply-adds by the definition of the operation, whatever the implementation computes. Null
  /// for an operation without any.
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

/// One recorded execution: a plan with the tensors that it reads and writes. It holds the tensors,
/// so their memory lives as long as the node.
struct Node {
  const char* op = "";  ///< "ConvForward" ...; never freed
  PlanPtr plan;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
  Scalars scalars;

  std::shared_ptr<const void> spec;
  const std::type_info* spec_type = nullptr;
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
    return spec_type && *spec_type == typeid(Spec) ? static_cast<const Spec*>(spec.get()) : nullptr;
  }
};

}  // namespace singa

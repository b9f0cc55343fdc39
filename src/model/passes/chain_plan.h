#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "singa/core/plan.h"

namespace singa {

/// Elementwise plans, one after the other, on pieces that stay in the second level cache. What they
/// read and write is dense memory of `elements` elements, of which every plan sees a piece as a
/// plain tensor: so opaque layouts are walked as they lie.
class ChainPlan final : public Plan {
 public:
  enum class Place : int { kInput, kOutput, kBuffer };
  struct Operand {
    Place place;
    size_t index;  ///< of the node's inputs or outputs, or of the buffers
    DType dtype;
    bool scalar = false;  ///< the same element for all
    bool operator==(const Operand&) const = default;
  };
  struct Part {
    PlanPtr plan;
    Scalars scalars;
    bool random = false;  ///< seed and position come with each execution
    std::vector<Operand> inputs;
    std::vector<Operand> outputs;
  };

  ChainPlan(int64_t elements, size_t buffers, std::vector<Part> parts);

  void Run(const Execution& execution) const override;
  std::string Describe() const override;
  size_t workspace_bytes() const override;
  int inplace_input(size_t i) const override;
  bool SameAs(const Plan& other) const override;
  size_t bytes() const override { return sizeof(*this) + parts_.size() * sizeof(Part); }

 private:
  class Pieces;
  void PlanInPlace();

  int64_t elements_;
  size_t buffers_;
  int threads_;  ///< that the workspace has room for
  std::vector<Part> parts_;
  std::vector<int> in_place_;  ///< for each output
};

}  // namespace singa

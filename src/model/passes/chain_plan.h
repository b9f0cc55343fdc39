#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "singa/core/node.h"
#include "singa/core/plan.h"

namespace singa {

/// Runs elementwise plans one after the other, on pieces that stay in the second-level cache.
/// Arguments are dense memory of `elements` elements. Each plan sees a piece of it as a plain
/// tensor, so elements of opaque layouts are taken in the order in which they lie.
class ChainPlan final : public Plan {
 public:
  enum class Place : int { kInput, kOutput, kBuffer };
  struct Operand {
    Place place;
    size_t index;  ///< of the node's inputs or outputs, or of the buffers
    DType dtype;
    bool scalar = false;  ///< one element, broadcast
    bool operator==(const Operand&) const = default;
  };
  struct Part {
    PlanPtr plan;
    Scalars scalars;
    bool random = false;  ///< seed and position come with each execution
    std::vector<Operand> inputs;
    std::vector<Operand> outputs;
    // For OPCHECK: as in Node.
    const char* op = "";
    std::shared_ptr<const void> spec = nullptr;
    const SpecType* spec_type = nullptr;
  };

  ChainPlan(int64_t elements, size_t buffers, std::vector<Part> parts);

  void Run(const Execution& execution) const override;
  std::string Describe() const override;
  size_t workspace_bytes() const override;
  int inplace_input(size_t i) const override;
  int64_t elements() const { return elements_; }
  size_t buffers() const { return buffers_; }
  const std::vector<Part>& parts() const { return parts_; }
  bool SameAs(const Plan& other) const override;
  size_t bytes() const override { return sizeof(*this) + parts_.size() * sizeof(Part); }

 private:
  class Pieces;
  void PlanInPlace();

  int64_t elements_;
  size_t buffers_;
  int threads_;  ///< the workspace has room for this many threads
  std::vector<Part> parts_;
  std::vector<int> in_place_;  ///< inplace_input of each output
};

}  // namespace singa

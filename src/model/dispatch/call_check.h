#pragma once

// A call of an operation as OPCHECK keeps it, and the check of such a call.
//
// A kernel trusts its Spec: it reads and writes memory by the Spec's fields. A Spec that was read
// from a file has not been checked by the operation's public function. Therefore every Spec that
// can be replayed has VisitArguments, which declares its arguments (arguments.h), and
//
//   void CheckFields(const CallChecker& call) const;
//
// in the file of its family, which checks the values of the fields and the scalars before the
// arguments are compared with the declaration. A Spec whose kernels use elements of an argument as
// positions, without a check of their own, also has `CheckValues` of the same form, which checks
// these elements afterwards. A Spec whose arguments depend on one another, such as a list of any
// length, has
//
//   void CheckCall(CallChecker& call) const;
//
// instead, which checks fields and arguments. OPCHECK also runs these on every call that it
// compares, so tests find checks that differ from those of the public function.

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/error.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/tensor.h"

namespace singa {

namespace opcheck {

/// How an argument lies in memory.
struct Placement {
  LayoutPtr layout = {};  ///< null: row-major with `strides`
  Strides strides = {};   ///< rank 0: contiguous
  /// Of a saved call: the text of a layout that cannot be made from its name. The plan may want it.
  std::string unmade = {};

  static Placement Of(const Tensor& t);
  bool is_plain() const { return !layout && strides.rank() == 0 && unmade.empty(); }
  bool operator==(const Placement& other) const {
    return SameLayout(layout, other.layout) && strides == other.strides && unmade == other.unmade;
  }
};

/// One call of an operation, with everything that is needed to run it again.
struct Call {
  const char* op = "";
  std::string family;          ///< key of the replayer: the Spec's type
  std::string implementation;  ///< of the plan
  std::string description;
  std::string layer;
  DeviceKind device = DeviceKind::kCpu;
  std::vector<std::pair<std::string, std::string>> fields;  ///< of the Spec
  std::vector<std::string> input_names;                     ///< for messages
  std::vector<Tensor> inputs;            ///< contiguous, on the host, as they were before
  std::vector<Tensor> outputs;           ///< only type and shape matter
  std::vector<Placement> input_places;   ///< where the inputs lay
  std::vector<Placement> output_places;  ///< where the outputs lay
  std::vector<int> aliases;              ///< input that the output is, or -1
  Scalars scalars;
};

}  // namespace opcheck

/// Takes the arguments of a call one after the other: Input and Output compare the next one. Raises
/// std::invalid_argument, with operation and argument, for the first one that does not fit the
/// Spec.
class CallChecker final : public ArgumentVisitor {
 public:
  CallChecker(const char* op, const opcheck::Call& call) : op_(op), call_(call) {}

  // Fields.
  template <class... Parts>
  void Require(bool condition, const Parts&... parts) const {
    Check(condition, op_, parts...);
  }
  /// A shape that a tensor can have.
  void RequireShape(const Shape& shape) const { CheckShape(op_, shape, 8); }
  void RequireFloat(const char* name, DType dtype) const {
    Require(IsFloat(dtype), name, " must be a float type, got ", DTypeName(dtype));
  }
  void RequireAxis(int axis, const Shape& shape) const {
    Require(axis >= 0 && axis < shape.rank(), "axis ", axis, " is outside of shape ", shape);
  }
  /// Null, or a layout of tensors of this shape and type.
  void RequireLayout(const char* name, const LayoutPtr& layout, const Shape& shape,
                     DType dtype) const;
  /// Fields that many Specs have.
  void RequireThreads(int threads) const;
  void RequireAlignment(int alignment) const;

  const char* op() const { return op_; }
  Shape ShapeOfInput(size_t i) const override {
    return i < call_.inputs.size() ? call_.inputs[i].shape() : Shape();
  }
  Shape ShapeOfOutput(size_t i) const {
    return i < call_.outputs.size() ? call_.outputs[i].shape() : Shape();
  }
  DType TypeOfInput(size_t i) const override {
    return i < call_.inputs.size() ? call_.inputs[i].data_type() : kFloat32;
  }
  DType TypeOfOutput(size_t i) const {
    return i < call_.outputs.size() ? call_.outputs[i].data_type() : kFloat32;
  }
  const Tensor& input(size_t i) const { return call_.inputs[i]; }
  size_t num_inputs() const { return call_.inputs.size(); }
  size_t num_outputs() const { return call_.outputs.size(); }
  const Scalars& scalars() const { return call_.scalars; }
  const opcheck::Placement& input_place(size_t i) const { return call_.input_places[i]; }
  const opcheck::Placement& output_place(size_t i) const { return call_.output_places[i]; }
  /// Elements of a contiguous input that a kernel uses as positions.
  template <class T>
  std::span<const T> Values(const Tensor& t) const {
    return {static_cast<const T*>(t.raw_data()), static_cast<size_t>(t.size())};
  }

  /// An elementwise operation. All arguments are row-major with any strides. Where `keeps_zero`, or
  /// without padding, they may instead have one type and one opaque layout; in one without padding,
  /// inputs may be broadcast numbers. The replay places the arguments as the call did, and not as
  /// the plan asks.
  void Elementwise(bool keeps_zero);
  /// The replay places the arguments as the call did. The Spec has checked the places itself.
  void KeepsPlaces();
  bool keeps_places() const { return keeps_places_; }
  /// Output `i` is kept for backward, and whether it is in a private form.
  bool is_saved(size_t i) const { return saved_output_ == static_cast<int>(i); }
  bool is_private(size_t i) const { return is_saved(i) && saved_is_private_; }

  /// All arguments were taken.
  void Done() const;
  /// The names of the arguments, for messages: "dy", or "state 2" in a list.
  std::vector<std::string> InputNames() const { return Distinct(input_names_); }
  std::vector<std::string> OutputNames() const { return Distinct(output_names_); }

 private:
  void VisitInput(const char* name, const Shape& shape, DType dtype,
                  const ArgumentTraits& traits) override;
  void VisitOutput(const char* name, const Shape& shape, DType dtype,
                   const ArgumentTraits& traits) override;
  using Names = std::vector<const char*>;
  static std::vector<std::string> Distinct(const Names& names);
  const Tensor& Take(const char* kind, const char* name, const std::vector<Tensor>& tensors,
                     Names* taken) const;
  void RequireContiguous(const char* name, const opcheck::Placement& place) const;
  void RequireDenseRows(const char* name, const opcheck::Placement& place, const Shape& shape);

  const char* op_;
  const opcheck::Call& call_;
  Names input_names_, output_names_;  ///< of those that were taken
  int saved_output_ = -1;
  bool saved_is_private_ = false;
  bool keeps_places_ = false;
};

namespace opcheck {

/// Whether a Spec declares its arguments. An inherited declaration does not count.
template <class Spec>
concept DeclaresArguments = requires {
  { &Spec::VisitArguments } -> std::same_as<void (Spec::*)(ArgumentVisitor&) const>;
};
/// Whether its calls can be checked.
template <class Spec>
concept ChecksCalls = (DeclaresArguments<Spec> &&
                       requires(const Spec& spec, const CallChecker& call) {
                         spec.CheckFields(call);
                       }) ||
                      requires {
  { &Spec::CheckCall } -> std::same_as<void (Spec::*)(CallChecker&) const>;
};

}  // namespace opcheck
}  // namespace singa

#pragma once

// What dispatch knows of a type of Spec. Selection, OPCHECK, replay files and explain() work on
// this description and a reference to the Spec. Only the functions here and a backend's kernels
// read the Spec's members.
//
// An operation family describes one call by a Spec, a plain struct with
//
// - `const char* op() const`: the name in statistics and messages, such as "ConvForward".
// - `SINGA_FIELDS(name, ...);`: the only list of the fields that change the plan (fields.h). It
//   defines `static void VisitFields(self, v)`, which calls v("name", self.name) for each.
// - LayoutPtr members for the arguments whose layout the plan follows. All other arguments come in
//   the layout that the plan asks for.
// - `void VisitArguments(ArgumentVisitor& visit) const`: lists the arguments (arguments.h).
// - `void CheckFields(const CallChecker& call) const`: checks fields that come from a file
//   (call_check.h, which has an alternative to both).
//
// All others are optional. For the profile:
//
// - `int64_t multiply_adds() const`: by the definition of the operation.
//
// For OPCHECK's comparison:
//
// - `int64_t sum_length() const`: length K of the sum that gives one result. The tolerance grows
//   with √K.
// - `static constexpr bool kLinear`: results are sums of products of the inputs. The tolerance then
//   follows reference(|inputs|), elementwise, instead of the largest result.
// - `void MakeMagnitude()`: makes the constant factors of a kLinear copy positive.
// - `std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const`: for each output the
//   size of the terms that it sums, which the tolerance follows (empty: the largest result). For
//   results in which large terms cancel, and that are not kLinear. A second argument, `const
//   Scalars&`, gives the call's scalars.
// - `void MakeReference()`: changes fields of a copy for the reference, such as the form of a saved
//   tensor.
// - `void ReferenceInputs(std::vector<Tensor>*) const`: replaces inputs in an implementation's
//   private form by the reference's own.
// - `std::optional<std::vector<LayoutPtr>> InputLayouts(const Plan&, std::span<const Tensor>
//   inputs) const`: the layouts in which a plan reads its inputs as they lie in memory (null:
//   row-major), where Plan::input_layout does not tell; nothing where it follows strides.
//
// For spot checks:
//
// - `void Sample(spot::Sampler& sampler) const`: computes sampled elements of the results by plain
//   sums (spot/sampler.h).
//
// For choices by timing (measure.h):
//
// - `static constexpr bool kMeasured`: the candidates of the Spec are measured, on random tensors.
// - `void AdjustMeasured(MeasuredCall* call) const`: says more about these tensors.
// - `static constexpr DeviceKind kMeasuredOn`: they are on this kind of device only.
// - `void OnChosen(const Plan&) const`: is called with the choice.

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/call_check.h"
#include "model/dispatch/field_text.h"
#include "model/dispatch/measure.h"
#include "model/dispatch/op_signature.h"
#include "singa/core/node.h"
#include "singa/core/plan.h"

namespace singa {

/// Whether elements of a Spec's results can be sampled. An inherited declaration does not count.
template <class Spec>
concept SamplesResults = requires {
  { &Spec::Sample } -> std::same_as<void (Spec::*)(spot::Sampler&) const>;
};

/// The description of a type of Spec. A function's `spec` is a Spec of this type. Those that are
/// optional are null where the Spec lacks them.
struct OpType : SpecType {
  const char* (*op)(const void* spec) = nullptr;
  std::shared_ptr<void> (*make)() = nullptr;  ///< with the fields' defaults

  // Fields.
  void (*sign)(const void* spec, OpSignature& signature) = nullptr;
  void (*write)(const void* spec, opcheck::FieldWriter& writer) = nullptr;
  void (*read)(void* spec, opcheck::FieldReader& reader) = nullptr;
  void (*make_plain)(void* spec) = nullptr;  ///< makes every layout plain

  // Arguments.
  void (*visit_arguments)(const void* spec, ArgumentVisitor& visit) = nullptr;
  void (*check_call)(const void* spec, CallChecker& call) = nullptr;
  std::optional<std::vector<LayoutPtr>> (*input_layouts)(const void* spec, const Plan& plan,
                                                         std::span<const Tensor> inputs) = nullptr;

  // Comparison.
  bool linear = false;
  int64_t (*sum_length)(const void* spec) = nullptr;
  void (*make_magnitude)(void* spec) = nullptr;
  std::vector<Tensor> (*magnitudes)(const void* spec, const std::vector<Tensor>& inputs,
                                    const Scalars& scalars) = nullptr;
  void (*make_reference)(void* spec) = nullptr;
  void (*reference_inputs)(const void* spec, std::vector<Tensor>* inputs) = nullptr;
  void (*sample)(const void* spec, spot::Sampler& sampler) = nullptr;
  /// Of a node that is no call of an operation: runs it and compares. As OPCHECK's RunNode.
  bool (*run_node)(const Node& node, const std::function<void()>& run) = nullptr;

  // Measuring.
  MeasuredCall (*measured)(const void* spec) = nullptr;
  std::optional<DeviceKind> measured_on = {};
  void (*on_chosen)(const void* spec, const Plan& plan) = nullptr;

  /// The key in replay files.
  const char* name() const { return id->name(); }

  template <class Spec>
  static const OpType& Of() {
    static constexpr OpType kType = Describe<Spec>();
    return kType;
  }

 private:
  template <class Spec>
  static constexpr OpType Describe();
};

/// A reference to a Spec, with the description of its type.
struct OpRef : SpecRef {
  template <class Spec>
  requires(!std::derived_from<Spec, SpecRef>) OpRef(const Spec& of)
      : SpecRef(&of, &OpType::Of<Spec>()) {}
  OpRef(const void* any, const OpType& its_type) : SpecRef(any, &its_type) {}

  const OpType& op_type() const { return static_cast<const OpType&>(*type); }
  const char* op() const { return op_type().op(spec); }
};

/// Makes OPCHECK compare recorded operations of this type, and replay saved ones.
void AddOpType(const OpType& type);
/// The added type with this name; null if there is none.
const OpType* FindOpType(const std::string& name);
/// The names of all types, after the backends of this build are registered.
SINGA_API std::vector<std::string> OpTypeNames();

/// Adds the type of a Spec.
template <class Spec>
void AddOpTypeOf() {
  static_assert(opcheck::ChecksCalls<Spec>, "a Spec needs its own VisitArguments: call_check.h");
  AddOpType(OpType::Of<Spec>());
}

template <class Spec>
constexpr OpType OpType::Describe() {
  struct As {
    static const Spec& Const(const void* spec) { return *static_cast<const Spec*>(spec); }
    static Spec& Mutable(void* spec) { return *static_cast<Spec*>(spec); }
  };
  OpType type;
  static_cast<SpecType&>(type) = SpecType::Of<Spec>();
  type.op = [](const void* spec) { return As::Const(spec).op(); };
  type.make = []() -> std::shared_ptr<void> { return std::make_shared<Spec>(); };

  type.sign = [](const void* spec, OpSignature& signature) {
    Spec::VisitFields(As::Const(spec), signature);
  };
  type.write = [](const void* spec, opcheck::FieldWriter& writer) {
    Spec::VisitFields(As::Const(spec), writer);
  };
  type.read = [](void* spec, opcheck::FieldReader& reader) {
    Spec::VisitFields(As::Mutable(spec), reader);
  };
  type.make_plain = [](void* spec) {
    opcheck::PlainFields plain;
    Spec::VisitFields(As::Mutable(spec), plain);
  };

  if constexpr (opcheck::DeclaresArguments<Spec>)
    type.visit_arguments = [](const void* spec, ArgumentVisitor& visit) {
      As::Const(spec).VisitArguments(visit);
    };
  if constexpr (opcheck::ChecksCalls<Spec>)
    type.check_call = [](const void* spec, CallChecker& call) {
      if constexpr (opcheck::DeclaresArguments<Spec>) {
        As::Const(spec).CheckFields(call);
        As::Const(spec).VisitArguments(call);
        if constexpr (requires { As::Const(spec).CheckValues(call); })
          As::Const(spec).CheckValues(call);
      } else {
        As::Const(spec).CheckCall(call);
      }
    };
  if constexpr (requires(const Spec& s, const Plan& p, std::span<const Tensor> t) {
                  s.InputLayouts(p, t);
                })
    type.input_layouts = [](const void* spec, const Plan& plan, std::span<const Tensor> inputs) {
      return As::Const(spec).InputLayouts(plan, inputs);
    };

  if constexpr (requires { requires Spec::kLinear; }) type.linear = true;
  if constexpr (requires(const Spec& s) { s.sum_length(); })
    type.sum_length = [](const void* spec) -> int64_t { return As::Const(spec).sum_length(); };
  if constexpr (requires(Spec & s) { s.MakeMagnitude(); })
    type.make_magnitude = [](void* spec) { As::Mutable(spec).MakeMagnitude(); };
  if constexpr (requires(const Spec& s, const std::vector<Tensor>& t) { s.Magnitudes(t); }) {
    type.magnitudes = [](const void* spec, const std::vector<Tensor>& inputs, const Scalars&) {
      return As::Const(spec).Magnitudes(inputs);
    };
  } else if constexpr (requires(const Spec& s, const std::vector<Tensor>& t, const Scalars& v) {
                         s.Magnitudes(t, v);
                       }) {
    type.magnitudes = [](const void* spec, const std::vector<Tensor>& inputs,
                         const Scalars& scalars) {
      return As::Const(spec).Magnitudes(inputs, scalars);
    };
  }
  if constexpr (requires(Spec & s) { s.MakeReference(); })
    type.make_reference = [](void* spec) { As::Mutable(spec).MakeReference(); };
  if constexpr (requires(const Spec& s, std::vector<Tensor>* t) { s.ReferenceInputs(t); })
    type.reference_inputs = [](const void* spec, std::vector<Tensor>* inputs) {
      As::Const(spec).ReferenceInputs(inputs);
    };
  if constexpr (SamplesResults<Spec>)
    type.sample = [](const void* spec, spot::Sampler& sampler) { As::Const(spec).Sample(sampler); };

  if constexpr (requires { requires Spec::kMeasured; })
    type.measured = [](const void* spec) {
      MeasuredArguments measured;
      As::Const(spec).VisitArguments(measured);
      if constexpr (requires(const Spec& s, MeasuredCall* c) { s.AdjustMeasured(c); })
        As::Const(spec).AdjustMeasured(&measured.call);
      return std::move(measured.call);
    };
  if constexpr (requires { Spec::kMeasuredOn; }) type.measured_on = Spec::kMeasuredOn;
  if constexpr (requires(const Spec& s, const Plan& p) { s.OnChosen(p); })
    type.on_chosen = [](const void* spec, const Plan& plan) { As::Const(spec).OnChosen(plan); };
  return type;
}

}  // namespace singa

#include "model/dispatch/call_check.h"

#include <algorithm>

#include "core/layout/in_type.h"
#include "core/tensor/alignment.h"
#include "singa/core/threads.h"

namespace singa {

opcheck::Placement opcheck::Placement::Of(const Tensor& t) {
  if (t.empty()) return {};
  if (t.layout()) return {.layout = t.layout()};
  return {.layout = nullptr, .strides = t.is_contiguous() ? Strides{} : t.strides()};
}

void CallChecker::RequireLayout(const char* name, const LayoutPtr& layout, const Shape& shape,
                                DType dtype) const {
  if (!layout) return;
  Require(layout->shape() == shape && layout->dtype() == dtype, name, " ", layout->ToString(),
          " is of ", layout->shape(), " ", DTypeName(layout->dtype()), ", not of ", shape, " ",
          DTypeName(dtype));
}

void CallChecker::RequireThreads(int threads) const {
  Require(threads >= 1 && threads <= kMostThreads, "threads must be in [1, ", kMostThreads,
          "], got ", threads);
}

void CallChecker::RequireAlignment(int alignment) const {
  Require(alignment >= 1 && alignment <= kVectorBytes && (alignment & (alignment - 1)) == 0,
          "alignment must be a power of two up to ", kVectorBytes, ", got ", alignment);
}

const Tensor& CallChecker::Take(const char* kind, const char* name,
                                const std::vector<Tensor>& tensors, size_t* next) const {
  Require(*next < tensors.size(), kind, " ", name, " is missing: the call has ", tensors.size());
  return tensors[(*next)++];
}

void CallChecker::RequireGiven(const char* name, const Tensor& t) const {
  Require(!t.empty(), name, " is an empty tensor (None)");
}

void CallChecker::RequireType(const char* name, const Tensor& t, DType dtype) const {
  Require(t.data_type() == dtype, name, " must be ", DTypeName(dtype), ", got ", t);
}

void CallChecker::RequireIs(const char* name, const Tensor& t, const Shape& shape,
                            DType dtype) const {
  RequireGiven(name, t);
  Require(t.shape() == shape, name, " must have shape ", shape, ", got ", t);
  RequireType(name, t, dtype);
}

void CallChecker::RequireContiguous(const char* name, const opcheck::Placement& place) const {
  Require(place.strides.rank() == 0, name, " must be contiguous, got strides ", place.strides);
}

const Tensor& CallChecker::NextInput(const char* name) {
  return Take("input", name, call_.inputs, &next_input_);
}
const Tensor& CallChecker::AnyInput(const char* name) {
  const Tensor& t = NextInput(name);
  RequireGiven(name, t);
  return t;
}
const Tensor& CallChecker::StridedInput(const char* name, const Shape& shape, DType dtype) {
  const Tensor& t = AnyInput(name);
  RequireIs(name, t, shape, dtype);
  return t;
}
const Tensor& CallChecker::StridedInput(const char* name, const Shape& shape) {
  const Tensor& t = AnyInput(name);
  RequireIs(name, t, shape, t.data_type());
  return t;
}
const Tensor& CallChecker::Input(const char* name, const Shape& shape, DType dtype) {
  RequireContiguous(name,
                    next_input_ < num_inputs() ? input_place(next_input_) : opcheck::Placement());
  return StridedInput(name, shape, dtype);
}
const Tensor& CallChecker::FlatInput(const char* name, int64_t size, DType dtype) {
  const Tensor& t = AnyInput(name);
  RequireContiguous(name, input_place(next_input_ - 1));
  Require(t.size() == size, name, " must have ", size, " elements, got ", t);
  RequireType(name, t, dtype);
  return t;
}
const Tensor& CallChecker::InputIf(bool given, const char* name, const Shape& shape, DType dtype) {
  if (given) return Input(name, shape, dtype);
  const Tensor& t = NextInput(name);
  Require(t.empty(), name, " must be left out, got ", t);
  return t;
}
const Tensor& CallChecker::OptionalInput(const char* name, const Shape& shape, DType dtype) {
  const bool given = next_input_ < num_inputs() && !call_.inputs[next_input_].empty();
  return InputIf(given, name, shape, dtype);
}

const Tensor& CallChecker::AnyOutput(const char* name) {
  const Tensor& t = Take("output", name, call_.outputs, &next_output_);
  RequireGiven(name, t);
  return t;
}
const Tensor& CallChecker::Output(const char* name, const Shape& shape, DType dtype) {
  const Tensor& t = AnyOutput(name);
  RequireIs(name, t, shape, dtype);
  RequireContiguous(name, output_place(next_output_ - 1));
  return t;
}
const Tensor& CallChecker::StridedOutput(const char* name, const Shape& shape, DType dtype) {
  const Tensor& t = AnyOutput(name);
  RequireIs(name, t, shape, dtype);
  const Strides& strides = output_place(next_output_ - 1).strides;
  for (int axis = 0; axis < strides.rank(); ++axis)
    Require(strides[axis] != 0 || shape[axis] <= 1, name,
            " is a broadcast view, whose elements share memory: strides ", strides);
  return t;
}
const Tensor& CallChecker::FlatOutput(const char* name, int64_t size, DType dtype) {
  const Tensor& t = AnyOutput(name);
  RequireContiguous(name, output_place(next_output_ - 1));
  Require(t.size() == size, name, " must have ", size, " elements, got ", t);
  RequireType(name, t, dtype);
  return t;
}
const Tensor& CallChecker::OutputIf(bool given, const char* name, const Shape& shape, DType dtype) {
  if (given) return Output(name, shape, dtype);
  const Tensor& t = Take("output", name, call_.outputs, &next_output_);
  Require(t.empty(), name, " must be left out, got ", t);
  return t;
}
const Tensor& CallChecker::SavedOutputIf(bool given, const char* name, const Shape& shape,
                                         DType dtype) {
  const bool is_private = given && next_output_ < num_outputs() &&
                          call_.outputs[next_output_].data_type() == kUInt8 &&
                          call_.outputs[next_output_].rank() == 1;
  if (!is_private) return OutputIf(given, name, shape, dtype);
  private_output_ = static_cast<int>(next_output_);
  return AnyOutput(name);
}
void CallChecker::OutputIsInput(const char* name, size_t input) {
  const Tensor& t = AnyOutput(name);
  Require(call_.aliases[next_output_ - 1] == static_cast<int>(input), name,
          " must be written in place of input ", input);
  // The same memory, so the same shape and type.
  RequireIs(name, t, call_.inputs[input].shape(), call_.inputs[input].data_type());
}

void CallChecker::KeepsPlaces() {
  for (const auto* places : {&call_.input_places, &call_.output_places})
    for (const opcheck::Placement& place : *places)
      Require(place.unmade.empty(), "this build cannot make the layout ", place.unmade);
  keeps_places_ = true;
}

void CallChecker::Elementwise(bool keeps_zero) {
  LayoutPtr layout;
  for (const auto* places : {&call_.input_places, &call_.output_places})
    for (const opcheck::Placement& place : *places)
      if (place.layout) layout = place.layout;
  KeepsPlaces();
  if (!layout) return;
  Require(keeps_zero, "layout ", layout->ToString(), ": what pads it would not stay zero");
  const auto check = [&](std::span<const Tensor> tensors,
                         std::span<const opcheck::Placement> places) {
    for (size_t i = 0; i < tensors.size(); ++i)
      Require(tensors[i].empty() ||
                  (places[i].layout &&
                   SameLayout(places[i].layout, InType(layout, places[i].layout->dtype()))),
              "arguments lie in different layouts, among them ", layout->ToString());
  };
  check(call_.inputs, call_.input_places);
  check(call_.outputs, call_.output_places);
}

void CallChecker::Done() const {
  Require(next_input_ == num_inputs(), "the call has ", num_inputs(), " inputs instead of ",
          next_input_);
  Require(next_output_ == num_outputs(), "the call has ", num_outputs(), " outputs instead of ",
          next_output_);
}

}  // namespace singa

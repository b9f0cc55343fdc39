#include "model/dispatch/call_check.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/layout/in_type.h"
#include "core/tensor/alignment.h"
#include "core/tensor/stored_size.h"
#include "model/dispatch/tensor_check.h"
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
                                const std::vector<Tensor>& tensors, Names* taken) const {
  const size_t i = taken->size();
  Require(i < tensors.size(), kind, " ", name, " is missing: the call has ", tensors.size());
  taken->push_back(name);
  return tensors[i];
}

std::vector<std::string> CallChecker::Distinct(const Names& names) {
  std::map<std::string_view, int> all, before;
  for (const char* name : names) ++all[name];
  std::vector<std::string> distinct;
  for (const char* name : names) {
    const int number = before[name]++;
    distinct.push_back(all[name] == 1 ? name : name + (" " + std::to_string(number)));
  }
  return distinct;
}

void CallChecker::RequireContiguous(const char* name, const opcheck::Placement& place) const {
  Require(place.strides.rank() == 0, name, " must be contiguous, got strides ", place.strides);
}

void CallChecker::RequireDenseRows(const char* name, const opcheck::Placement& place,
                                   const Shape& shape) {
  const int last = shape.rank() - 1;
  Require(
      !place.layout && (place.strides.rank() == 0 || shape[last] <= 1 || place.strides[last] == 1),
      name, " must have a contiguous last axis, got strides ", place.strides);
  KeepsPlaces();
}

void CallChecker::VisitInput(const char* name, const Shape& shape, DType dtype,
                             const ArgumentTraits& traits) {
  if (traits.layout && !traits.private_form) RequireLayout(name, *traits.layout, shape, dtype);
  if (traits.left_out) return;
  const size_t i = input_names_.size();
  const Tensor& t = Take("input", name, call_.inputs, &input_names_);
  if (!traits.given) return Require(t.empty(), name, " must be left out, got ", t);
  if (traits.optional && t.empty()) return;
  CheckDeclared(op_, name, t, shape, dtype, traits);
  if (traits.private_form) {
    if (traits.layout) RequireLayout(name, *traits.layout, t.shape(), t.data_type());
  } else if (traits.dense_rows) {
    RequireDenseRows(name, input_place(i), shape);
  } else if (!traits.strided) {
    RequireContiguous(name, input_place(i));
  }
}

void CallChecker::VisitOutput(const char* name, const Shape& shape, DType dtype,
                              const ArgumentTraits& traits) {
  if (traits.layout) RequireLayout(name, *traits.layout, shape, dtype);
  const size_t i = output_names_.size();
  const Tensor& t = Take("output", name, call_.outputs, &output_names_);
  const bool updates = traits.same_as >= 0;
  if (!traits.given || (updates && call_.inputs[static_cast<size_t>(traits.same_as)].empty()))
    return Require(t.empty(), name, " must be left out, got ", t);
  CheckGiven(op_, name, t);
  Require(!updates || call_.aliases[i] == traits.same_as, name,
          " must be written in place of input ", traits.same_as);
  if (traits.saved) {
    saved_output_ = static_cast<int>(i);
    saved_is_private_ = IsPrivate(t);
    if (saved_is_private_) return;
  }
  CheckDeclared(op_, name, t, shape, dtype, traits);
  const Strides& strides = output_place(i).strides;
  if (traits.rows_like >= 0) {
    RequireDenseRows(name, output_place(i), shape);
  } else if (!traits.strided) {
    RequireContiguous(name, output_place(i));
  }
  for (int axis = 0; axis < strides.rank(); ++axis)
    Require(strides[axis] != 0 || shape[axis] <= 1, name,
            " is a broadcast view, whose elements share memory: strides ", strides);
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
  const bool padded = layout->is_padded();
  const auto is_number = [&](const opcheck::Placement& place, const Shape& shape) {
    return !padded && !place.layout && place.strides.rank() == shape.rank() &&
           IsOneElement(shape, place.strides);
  };
  Require(keeps_zero || !padded, "layout ", layout->ToString(),
          ": what pads it would not stay zero");
  const auto check = [&](std::span<const Tensor> tensors,
                         std::span<const opcheck::Placement> places) {
    for (size_t i = 0; i < tensors.size(); ++i)
      Require(tensors[i].empty() || is_number(places[i], tensors[i].shape()) ||
                  (places[i].layout &&
                   SameLayout(places[i].layout, InType(layout, places[i].layout->dtype()))),
              "arguments lie in different layouts, among them ", layout->ToString());
  };
  check(call_.inputs, call_.input_places);
  check(call_.outputs, call_.output_places);
}

void CallChecker::Done() const {
  Require(input_names_.size() == num_inputs(), "the call has ", num_inputs(), " inputs instead of ",
          input_names_.size());
  Require(output_names_.size() == num_outputs(), "the call has ", num_outputs(),
          " outputs instead of ", output_names_.size());
}

}  // namespace singa

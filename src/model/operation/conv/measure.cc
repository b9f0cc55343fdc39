// What is special about the tensors with which a convolution is measured (measure.h), and the
// layouts that its passes pass on to one another.

#include <map>
#include <mutex>
#include <string>

#include "model/dispatch/field_text.h"
#include "model/operation/conv/spec.h"

namespace singa {
namespace {

/// The layouts of the weights that the passes that read them want.
using Readers = std::map<ConvPass, LayoutPtr>;
std::mutex g_mutex;
std::map<std::string, Readers>& AllReaders() {  // guarded by g_mutex
  static auto& readers = *new std::map<std::string, Readers>;
  return readers;
}

/// A key that all passes of one convolution have in common.
std::string KeyOf(const ConvSpec& spec) {
  Recorder geometry = spec.geometry;
  geometry.bias = false;  // the input's gradient has none
  opcheck::Fields fields;
  opcheck::FieldWriter{&fields}("", geometry);
  std::string key = DTypeName(spec.dtype);
  for (const auto& [name, value] : fields) key += " " + value;
  return key;
}

}  // namespace

void ConvSpec::AdjustMeasured(MeasuredCall* call) const {
  MeasuredTensor& result = call->outputs[0];
  switch (pass) {
    case ConvPass::kForward:
      call->inputs[1].settled = true;
      if (has_add) call->inputs[add_input()].settled = true;
      result.image = true;
      // The operations behind it follow y's layout, until y meets a tensor in another layout: a
      // residual, another branch.
      if (x_layout) result.likely = LayoutName(x_layout);
      break;
    case ConvPass::kBackwardX:
      call->inputs[1].settled = true;
      result.image = true;
      if (x_layout) result.readers = {x_layout};
      break;
    case ConvPass::kBackwardW: {
      std::lock_guard<std::mutex> lock(g_mutex);
      for (const auto& [reader, layout] : AllReaders()[KeyOf(*this)])
        result.readers.push_back(layout);
      break;
    }
    case ConvPass::kBackwardB:
      break;
  }
}

void ConvSpec::OnChosen(const Plan& plan) const {
  if (pass != ConvPass::kForward && pass != ConvPass::kBackwardX) return;
  std::lock_guard<std::mutex> lock(g_mutex);
  AllReaders()[KeyOf(*this)][pass] = plan.input_layout(1);
}

}  // namespace singa

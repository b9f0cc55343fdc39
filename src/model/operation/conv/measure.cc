// The call with which a convolution is measured (measure.h), and the layouts that its passes pass
// on to one another.

#include <map>
#include <mutex>
#include <string>

#include "model/dispatch/field_text.h"
#include "model/operation/batchnorm/statistics_type.h"
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

MeasuredCall ConvSpec::MeasuredAs(const Shape& x, const Shape& y, int64_t bias) const {
  const MeasuredTensor weights{.shape = geometry.weight_shape(), .dtype = dtype, .settled = true};
  const MeasuredTensor biases{.shape = {bias}, .dtype = dtype};
  const MeasuredTensor from_x{.shape = x, .dtype = dtype, .layout = x_layout};
  const MeasuredTensor from_dy{.shape = y, .dtype = dtype, .layout = dy_layout};
  MeasuredCall call;
  switch (pass) {
    case ConvPass::kForward: {
      MeasuredTensor result{.shape = y, .dtype = dtype, .image = true};
      // The operations behind it follow y's layout, until y meets a tensor in another layout: a
      // residual, another branch.
      if (x_layout) result.likely = LayoutName(x_layout);
      call = {{from_x, weights}, {result}};
      if (geometry.bias) call.inputs.push_back(biases);
      if (has_add) call.inputs.push_back({.shape = y, .dtype = dtype, .settled = true});
      break;
    }
    case ConvPass::kBackwardX: {
      MeasuredTensor result{.shape = x, .dtype = dtype, .image = true};
      if (x_layout) result.readers = {x_layout};
      call = {{from_dy, weights}, {result}};
      break;
    }
    case ConvPass::kBackwardW: {
      MeasuredTensor result{.shape = geometry.weight_shape(), .dtype = dtype};
      {
        std::lock_guard<std::mutex> lock(g_mutex);
        for (const auto& [reader, layout] : AllReaders()[KeyOf(*this)])
          result.readers.push_back(layout);
      }
      call = {{from_dy, from_x}, {result}};
      if (geometry.bias) call.outputs.push_back(biases);
      break;
    }
    case ConvPass::kBackwardB:
      call = {{from_dy}, {biases}};
      break;
  }
  return call;
}

MeasuredCall ConvStatisticsSpec::Measured() const {
  MeasuredCall call = ConvSpec::Measured();
  call.outputs.insert(call.outputs.end(), 2,
                      {.shape = {geometry.out_channels}, .dtype = StatisticsType(dtype)});
  return call;
}

void ConvSpec::OnChosen(const Plan& plan) const {
  if (pass != ConvPass::kForward && pass != ConvPass::kBackwardX) return;
  std::lock_guard<std::mutex> lock(g_mutex);
  AllReaders()[KeyOf(*this)][pass] = plan.input_layout(1);
}

}  // namespace singa

#pragma once

// Measures how long a plan takes, on memory of the real size, together with the reorders that the
// plan causes around it. op_type.h says which Specs are measured.

#include <limits>
#include <string>
#include <vector>

#include "model/dispatch/arguments.h"
#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa {

/// An argument or a result of the operation.
struct MeasuredTensor {
  const char* name = "";
  Shape shape;
  DType dtype = kFloat32;
  /// Arguments: the layout in which it comes.
  LayoutPtr layout = nullptr;
  /// Arguments: it lies as the plan wants it. That is so for parameters, whose layout follows the
  /// choice.
  bool settled = false;
  /// Results: the layouts in which other operations are known to read it.
  std::vector<LayoutPtr> readers = {};
  /// Results: the tag of the layout that its readers are likely to use; empty: not known.
  std::string likely = {};
  /// Results: an image, whose layout the operations after it follow.
  bool image = false;
  /// The call leaves it out.
  bool absent = false;
};

struct MeasuredCall {
  std::vector<MeasuredTensor> inputs;
  std::vector<MeasuredTensor> outputs;

  int64_t elements() const {
    int64_t sum = 0;
    for (const auto* tensors : {&inputs, &outputs})
      for (const MeasuredTensor& t : *tensors) sum += t.shape.Count();
    return sum;
  }
};

/// The arguments that a Spec declares, all of them that are optional.
class MeasuredArguments final : public ArgumentVisitor {
 public:
  MeasuredCall call;

  Shape ShapeOfInput(size_t i) const override {
    return i < call.inputs.size() ? call.inputs[i].shape : Shape();
  }
  DType TypeOfInput(size_t i) const override {
    return i < call.inputs.size() ? call.inputs[i].dtype : kFloat32;
  }

 private:
  void VisitInput(const char* name, const Shape& shape, DType dtype,
                  const ArgumentTraits& traits) override;
  void VisitOutput(const char* name, const Shape& shape, DType dtype,
                   const ArgumentTraits& traits) override;
};

/// Runs plans of one call. The runs are not counted, profiled or recorded. The process has one
/// Stopwatch at a time. Other work on the machine makes its results larger.
class Stopwatch {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  Stopwatch(DevicePtr device, MeasuredCall call);
  /// Median milliseconds of a few runs on warm memory. The result is less exact for plans that take
  /// much longer than `best`. A device that can capture its work gets several runs as one launch,
  /// so that the device's time is measured and not the host's.
  double Time(const Plan& plan, double best = kNever) const;

 private:
  DevicePtr device_;
  MeasuredCall call_;
};

}  // namespace singa

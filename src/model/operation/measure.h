#pragma once

// How long a plan takes where it will run: on memory of the real size, together with the reorders
// that it makes necessary around it.
//
// A Spec whose candidates can be measured has `MeasuredCall Measured() const`; where only those of
// one kind of device are, also `static constexpr DeviceKind kMeasuredOn`. One that wants to know
// what was chosen for it has `void OnChosen(const Plan&) const`.

#include <limits>
#include <string>
#include <vector>

#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa {

/// An argument or a result of the operation.
struct MeasuredTensor {
  Shape shape;
  DType dtype = kFloat32;
  /// Arguments: how it comes.
  LayoutPtr layout = nullptr;
  /// Arguments: it lies as the plan wants it, whatever that is. Parameters are chosen a layout for
  /// elsewhere.
  bool settled = false;
  /// Results: layouts in which others are known to read it.
  std::vector<LayoutPtr> readers = {};
  /// Results: tag of the layout that its readers are likely to go on with; empty: not known.
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

/// Runs plans of one call. Nothing of it is counted, profiled or recorded. One at a time in the
/// process; what it returns says what else the machine did.
class Stopwatch {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  Stopwatch(DevicePtr device, MeasuredCall call);
  /// Median milliseconds of a few runs on warm memory; less exact for plans that take much longer
  /// than `best`. A device that can capture what it is asked for launches several runs as a whole:
  /// it is its own time that counts, and not the host's.
  double Time(const Plan& plan, double best = kNever) const;

 private:
  DevicePtr device_;
  MeasuredCall call_;
};

}  // namespace singa

#pragma once

#include <string>

#include "backend/cuda/cudnn/dnn.h"
#include "model/operation/conv/spec.h"

namespace singa::cudnn {

/// Layouts of a convolution's tensors; null is row-major.
struct ConvLayouts {
  LayoutPtr x, w, y;
};

/// Channels-last, or row-major for all if spec.plain.
ConvLayouts LayoutsOf(const ConvSpec& spec);

/// The problem to pass to cuDNN for a pass other than kBackwardB.
ConvProblem ProblemOf(const ConvSpec& spec);
ConvProblem ProblemOf(const ConvStatisticsSpec& spec);

/// The reason why cuDNN does not support the Spec; empty if it does.
std::string RefusesConv(const ConvSpec& spec);

}  // namespace singa::cudnn

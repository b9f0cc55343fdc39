#pragma once

#include <string>

#include "backend/cudnn/library/dnn.h"
#include "model/operation/conv_spec.h"

namespace singa::cudnn {

/// Where the tensors of a convolution lie; null is row-major.
struct ConvLayouts {
  LayoutPtr x, w, y;
};

/// Channels last, or all row-major where the Spec says so.
ConvLayouts LayoutsOf(const ConvSpec& spec);

/// What cuDNN is asked for one pass of a convolution that is not kBackwardB.
ConvProblem ProblemOf(const ConvSpec& spec);
ConvProblem ProblemOf(const ConvStatisticsSpec& spec);

/// Why cuDNN cannot be asked at all; empty where it can.
std::string RefusesConv(const ConvSpec& spec);

}  // namespace singa::cudnn

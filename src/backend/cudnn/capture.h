#pragma once

// CUDA graphs, as far as they are used: nvidia/runtime.cc calls CUDA, emulated/runtime.cc does the
// same on the host. Whatever fails raises cuda::Error.

#include <vector>

#include "backend/cudnn/runtime.h"

struct CUgraphExec_st;  // what cudaGraphExec_t and cudaGraphNode_t point to
struct CUgraphNode_st;

namespace singa::cuda {

/// What was queued once, to be queued again.
using CapturedGraph = CUgraphExec_st*;
/// A launch, a copy or the like in it.
using CapturedLaunch = CUgraphNode_st*;

namespace runtime {

/// What is queued on `stream` from now on is kept and does not run. Until EndCapture this thread
/// takes no memory, gives none back, and waits for nothing: such calls fail, and the capture too.
void BeginCapture(Stream stream);
CapturedGraph EndCapture(Stream stream);
/// What the next launch on a stream that is captured comes after: at first nothing, then the last
/// one.
std::vector<CapturedLaunch> CapturesAfter(Stream stream);
/// ... and something else instead. What is found nowhere there runs as if on another stream.
void SetCapturesAfter(Stream stream, const std::vector<CapturedLaunch>& launches);
/// It may be running, and then does so to its end.
void DeleteGraph(CapturedGraph graph);
/// Queued. Kernels get the arguments that they had; what lies at their addresses is read afresh.
void LaunchGraph(CapturedGraph graph, Stream stream);

}  // namespace runtime
}  // namespace singa::cuda

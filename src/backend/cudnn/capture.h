#pragma once

// CUDA graphs, as far as they are used: nvidia/runtime.cc calls CUDA, emulated/runtime.cc does the
// same on the host. Whatever fails raises cuda::Error.

#include "backend/cudnn/runtime.h"

struct CUgraphExec_st;  // what cudaGraphExec_t points to

namespace singa::cuda {

/// What was queued once, to be queued again.
using CapturedGraph = CUgraphExec_st*;

namespace runtime {

/// What is queued on `stream` from now on is kept and does not run. Until EndCapture this thread
/// takes no memory, gives none back, and waits for nothing: such calls fail, and the capture too.
void BeginCapture(Stream stream);
CapturedGraph EndCapture(Stream stream);
/// It may be running, and then does so to its end.
void DeleteGraph(CapturedGraph graph);
/// Queued. Kernels get the arguments that they had; what lies at their addresses is read afresh.
void LaunchGraph(CapturedGraph graph, Stream stream);

}  // namespace runtime
}  // namespace singa::cuda

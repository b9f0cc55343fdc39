#pragma once

// The part of CUDA graphs that the backend uses. nvidia/runtime.cc calls CUDA;
// test/emulated_gpu/runtime.cc emulates it on the host. Failures throw cuda::Error.

#include <vector>

#include "backend/cuda/runtime/runtime.h"

struct CUgraphExec_st;  // types behind cudaGraphExec_t and cudaGraphNode_t
struct CUgraphNode_st;

namespace singa::cuda {

/// Captured work, which can be queued again.
using CapturedGraph = CUgraphExec_st*;
/// A node of a graph: a launch, a copy, and so on.
using CapturedLaunch = CUgraphNode_st*;

namespace runtime {

/// Captures what is queued on `stream` from now on, instead of running it. Until EndCapture, this
/// thread must not allocate or free memory, or wait: these calls fail, and so does the capture.
void BeginCapture(Stream stream);
CapturedGraph EndCapture(Stream stream);
/// The nodes that the next captured launch on `stream` depends on: none at first, then the previous
/// launch.
std::vector<CapturedLaunch> CapturesAfter(Stream stream);
/// Replaces these dependencies. Launches without a dependency path between them run as if on
/// different streams.
void SetCapturesAfter(Stream stream, const std::vector<CapturedLaunch>& launches);
/// The graph may be running; it then runs to its end.
void DeleteGraph(CapturedGraph graph);
/// Queues the graph. Kernels get the same arguments as when captured, and read the present contents
/// of memory.
void LaunchGraph(CapturedGraph graph, Stream stream);

}  // namespace runtime
}  // namespace singa::cuda

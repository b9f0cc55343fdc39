// Batch norm. The running statistics are not included: our own kernel updates them, so that all
// implementations use the same formula.

#include "backend/cuda/cudnn/nvidia/graph.h"

namespace singa::cudnn {
namespace {

constexpr cudnnBackendNormMode_t kMode = CUDNN_BATCH_NORM;

/// The arguments of a problem. Build names them in the problem's order.
struct Arguments {
  const NormProblem& problem;
  Graph& graph;
  int64_t Image() const {
    return graph.Argument(problem.x, TypeOf(problem.dtype), kNormImageAlignment);
  }
  int64_t OfChannels() const {
    const int64_t count = problem.x.dims[1];
    return graph.Argument({{1, count, 1, 1}, {count, 1, count, count}}, CUDNN_DATA_FLOAT,
                          sizeof(float));
  }
};

void BuildForward(const NormProblem& problem, Graph& graph) {
  const Arguments arguments{problem, graph};
  const int64_t x = arguments.Image();
  const int64_t scale = arguments.OfChannels(), bias = arguments.OfChannels();
  const int64_t add = problem.add ? arguments.Image() : 0;
  const int64_t mean = arguments.OfChannels(), inverse = arguments.OfChannels();
  const int64_t y = arguments.Image();
  Chain chain(graph, problem.x, y, 1 + problem.add + problem.relu);
  Descriptor operation = graph.Operation(
      CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
      {{CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, x},
       {CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, scale},
       {CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, bias},
       {CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, graph.Constant(problem.epsilon)},
       {CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, mean},
       {CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, inverse},
       {CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, chain.First()}});
  operation.Set(CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &kMode);
  const cudnnBackendNormFwdPhase_t phase = CUDNN_NORM_FWD_TRAINING;
  operation.Set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase);
  operation.Finalize("build the batch norm");
  graph.Add(std::move(operation));
  if (problem.add) chain.Then(CUDNN_POINTWISE_ADD, add);
  if (problem.relu) chain.Then(CUDNN_POINTWISE_RELU_FWD, 0);
}

void BuildBackward(const NormProblem& problem, Graph& graph) {
  const Arguments arguments{problem, graph};
  const int64_t dy = arguments.Image(), x = arguments.Image();
  const int64_t scale = arguments.OfChannels();
  const int64_t mean = arguments.OfChannels(), inverse = arguments.OfChannels();
  const int64_t dscale = arguments.OfChannels(), dbias = arguments.OfChannels();
  const int64_t dx = arguments.Image();
  Descriptor operation =
      graph.Operation(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
                      {{CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, dy},
                       {CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, x},
                       {CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, scale},
                       {CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, mean},
                       {CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, inverse},
                       {CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, dscale},
                       {CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, dbias},
                       {CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, dx}});
  operation.Set(CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &kMode);
  operation.Finalize("build the gradient of the batch norm");
  graph.Add(std::move(operation));
}

}  // namespace

void Build(const NormProblem& problem, Graph& graph) {
  problem.backward ? BuildBackward(problem, graph) : BuildForward(problem, graph);
}

}  // namespace singa::cudnn

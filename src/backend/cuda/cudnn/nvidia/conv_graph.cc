#include "backend/cuda/cudnn/nvidia/graph.h"

namespace singa::cudnn {
namespace {

Descriptor Geometry(const ConvProblem& problem) {
  Descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.SetType(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  convolution.Set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  convolution.SetInt(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2);
  convolution.SetInts(CUDNN_ATTR_CONVOLUTION_DILATIONS, problem.dilation);
  convolution.SetInts(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, problem.stride);
  convolution.SetInts(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, problem.before);
  convolution.SetInts(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, problem.after);
  convolution.Finalize("describe the convolution");
  return convolution;
}

/// result = 1 · convolution + 0 · result
void Finish(Descriptor& operation, const ConvProblem& problem,
            cudnnBackendAttributeName_t convolution, cudnnBackendAttributeName_t alpha,
            cudnnBackendAttributeName_t beta) {
  operation.SetDescriptor(convolution, Geometry(problem));
  operation.SetFloat(alpha, 1);
  operation.SetFloat(beta, 0);
  operation.Finalize("build the convolution");
}

/// Adds two arguments: the sums of y's values and of their squares.
void AddStatistics(const ConvProblem& problem, int64_t y, Graph& graph) {
  const int64_t channels = problem.y.dims[1];
  const auto of_channels = [&] {
    return graph.Argument({{1, channels, 1, 1}, {channels, 1, channels, channels}},
                          CUDNN_DATA_FLOAT, sizeof(float));
  };
  const int64_t sums = of_channels(), squares = of_channels();
  Descriptor operation = graph.Operation(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR,
                                         {{CUDNN_ATTR_OPERATION_GENSTATS_XDESC, y},
                                          {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sums},
                                          {CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, squares}});
  const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
  operation.Set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
  operation.SetType(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
  operation.Finalize("build the statistics");
  graph.Add(std::move(operation));
}

void BuildForward(const ConvProblem& problem, Graph& graph) {
  const cudnnDataType_t type = TypeOf(problem.dtype);
  const auto argument = [&](const DnnTensor& t) {
    return graph.Argument(t, type, problem.alignment);
  };
  const int64_t channels = problem.y.dims[1];
  const int64_t x = argument(problem.x), w = argument(problem.w);
  const int64_t b =
      problem.bias ? argument({{1, channels, 1, 1}, {channels, 1, channels, channels}}) : 0;
  const int64_t add = problem.add ? argument(problem.y) : 0;
  const int64_t y = argument(problem.y);
  Chain chain(graph, problem.y, y, 1 + problem.bias + problem.add + problem.relu);
  Descriptor operation =
      graph.Operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x},
                       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w},
                       {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, chain.First()}});
  Finish(operation, problem, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
  graph.Add(std::move(operation));
  // In this order, cuDNN has precompiled kernels for add, bias and ReLU; it has to compile others.
  if (problem.add) chain.Then(CUDNN_POINTWISE_ADD, add);
  if (problem.bias) chain.Then(CUDNN_POINTWISE_ADD, b);
  if (problem.relu) chain.Then(CUDNN_POINTWISE_RELU_FWD, 0);
  if (problem.statistics) AddStatistics(problem, y, graph);
}

void BuildBackward(const ConvProblem& problem, Graph& graph) {
  const cudnnDataType_t type = TypeOf(problem.dtype);
  const bool data = problem.pass == ConvPass::kBackwardX;
  const int64_t dy = graph.Argument(problem.y, type, problem.alignment);
  const int64_t other = graph.Argument(data ? problem.w : problem.x, type, problem.alignment);
  const int64_t result = graph.Argument(data ? problem.x : problem.w, type, problem.alignment);
  if (data) {
    Descriptor operation =
        graph.Operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                        {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, result},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, other},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy}});
    Finish(operation, problem, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
    graph.Add(std::move(operation));
  } else {
    Descriptor operation =
        graph.Operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                        {{CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, other},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, result},
                         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy}});
    Finish(operation, problem, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
    graph.Add(std::move(operation));
  }
}

}  // namespace

void Build(const ConvProblem& problem, Graph& graph) {
  problem.pass == ConvPass::kForward ? BuildForward(problem, graph) : BuildBackward(problem, graph);
}

}  // namespace singa::cudnn

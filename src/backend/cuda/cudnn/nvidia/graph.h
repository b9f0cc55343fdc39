#pragma once

// An operation graph of cuDNN: operations on numbered tensors. Each family of operations has its
// own file (*_graph.cc).

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <utility>
#include <vector>

#include "backend/cuda/cudnn/dnn.h"
#include "backend/cuda/cudnn/nvidia/descriptor.h"

namespace singa::cudnn {

class Graph {
 public:
  explicit Graph(const DnnProblem& problem);
  const Descriptor& get() const { return graph_; }
  /// Tensor numbers of the arguments, in the problem's order, and of the constants.
  const std::vector<int64_t>& arguments() const { return arguments_; }
  const std::vector<int64_t>& constants() const { return constants_; }
  /// Addresses of the constants in host memory, valid as long as the graph.
  std::vector<const void*> constant_values() const;

  // For the files of the families.
  /// Adds the next argument. Returns its number.
  int64_t Argument(const DnnTensor& tensor, cudnnDataType_t type, int alignment);
  /// Adds a float32 tensor between two operations.
  int64_t Between(const DnnTensor& tensor);
  /// Adds a float32 constant.
  int64_t Constant(float value);
  /// Creates an operation with tensor attributes; the caller finalises it.
  Descriptor Operation(
      cudnnBackendDescriptorType_t type,
      std::initializer_list<std::pair<cudnnBackendAttributeName_t, int64_t>> tensors) const;
  void Add(Descriptor operation) { operations_.push_back(std::move(operation)); }
  /// Adds y = mode(x, other), or y = mode(x) if `other` is 0.
  void Pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t other, int64_t y);

 private:
  int64_t NewTensor(const DnnTensor& t, cudnnDataType_t type, int alignment, bool between,
                    bool constant);

  std::vector<Descriptor> tensors_;  // the first has number 1
  std::vector<int64_t> arguments_, constants_;
  std::deque<float> values_;  // of the constants
  std::vector<Descriptor> operations_;
  Descriptor graph_;
};

/// A sequence of operations, each on the result of the previous one. The last result is y.
class Chain {
 public:
  /// `between` describes intermediate results. The caller adds the first operation, with result
  /// First().
  Chain(Graph& graph, const DnnTensor& between, int64_t y, int operations)
      : graph_(graph), between_(between), y_(y), left_(operations), last_(Next()) {}
  /// The first operation's result.
  int64_t First() const { return last_; }
  /// Adds the next operation; see Graph::Pointwise.
  void Then(cudnnPointwiseMode_t mode, int64_t other) {
    const int64_t next = Next();
    graph_.Pointwise(mode, last_, other, next);
    last_ = next;
  }

 private:
  int64_t Next() { return --left_ == 0 ? y_ : graph_.Between(between_); }

  Graph& graph_;
  const DnnTensor& between_;
  int64_t y_;
  int left_;
  int64_t last_;
};

void Build(const ConvProblem& problem, Graph& graph);
void Build(const NormProblem& problem, Graph& graph);

}  // namespace singa::cudnn

#pragma once

// What cuDNN is asked, as its graph API wants it: operations on tensors, which have numbers. Each
// family of operations has a file of its own (*_graph.cc).

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <utility>
#include <vector>

#include "backend/cudnn/library/dnn.h"
#include "backend/cudnn/library/nvidia/descriptor.h"

namespace singa::cudnn {

class Graph {
 public:
  Graph(const DnnProblem& problem, cudnnHandle_t handle);
  const Descriptor& get() const { return graph_; }
  /// Numbers of the arguments, in the problem's order, and of the constants.
  const std::vector<int64_t>& arguments() const { return arguments_; }
  const std::vector<int64_t>& constants() const { return constants_; }
  /// Where the constants are, in host memory, as long as the graph.
  std::vector<const void*> constant_values() const;

  // For the families' files.
  /// The next argument; its number.
  int64_t Argument(const DnnTensor& tensor, cudnnDataType_t type, int alignment);
  /// What one operation hands on to another, in float32.
  int64_t Between(const DnnTensor& tensor);
  /// A float32.
  int64_t Constant(float value);
  /// An operation, still to be finished, with attributes that are tensors.
  Descriptor Operation(
      cudnnBackendDescriptorType_t type,
      std::initializer_list<std::pair<cudnnBackendAttributeName_t, int64_t>> tensors) const;
  void Add(Descriptor operation) { operations_.push_back(std::move(operation)); }
  /// y = mode(x, other), or of x alone where other is 0.
  void Pointwise(cudnnPointwiseMode_t mode, int64_t x, int64_t other, int64_t y);

 private:
  int64_t NewTensor(const DnnTensor& t, cudnnDataType_t type, int alignment, bool between,
                    bool constant);

  std::vector<Descriptor> tensors_;  // that of number 1 first
  std::vector<int64_t> arguments_, constants_;
  std::deque<float> values_;  // of the constants
  std::vector<Descriptor> operations_;
  Descriptor graph_;
};

/// Operations that follow one another, each on the result of the one before it; that of the last
/// one is y.
class Chain {
 public:
  /// `between`: what lies between them. The first operation adds itself, on First().
  Chain(Graph& graph, const DnnTensor& between, int64_t y, int operations)
      : graph_(graph), between_(between), y_(y), left_(operations), last_(Next()) {}
  /// The first operation's result.
  int64_t First() const { return last_; }
  /// The next operation; see Graph::Pointwise.
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

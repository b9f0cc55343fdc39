#pragma once

#include <cstddef>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/graph/recorded_step.h"

namespace singa {

/// An estimate of the time that `node` takes, in bytes that memory moves meanwhile: those of its
/// arguments, and its arithmetic at a usual ratio of a processor's arithmetic to its bandwidth. It
/// depends on nothing that is measured, so that two recordings of a step are rewritten alike.
double EstimatedTime(const Node& node);

/// What the nodes of one segment keep in the arena, and how it can be computed a second time.
class Temporaries {
 public:
  /// A block of the arena. Values and nodes are given by their numbers.
  struct Value {
    BlockPtr block;
    size_t bytes = 0;       ///< as the planner counts them; 0 for what is in prepared()
    int writer = -1;        ///< the node that computes it and can do so again; -1: there is none
    bool stays = false;     ///< until the end: the host uses it, or it is prepared once
    std::vector<int> uses;  ///< nodes that write or read it, in order
  };
  /// What an execution of a node needs.
  struct Work {
    std::vector<int> reads, makes;                ///< values
    std::vector<std::pair<int, int>> takes_over;  ///< (output, input whose memory it may take)
    size_t workspace = 0;                         ///< as the planner counts it
    double time = 0;                              ///< EstimatedTime
  };
  /// A second execution of a node, which gives the same bits.
  struct Again {
    Node node;
    Work work;
    int until = 0;  ///< the node that changes what it reads; the number of nodes if none does
  };

  /// `nodes` must outlive it.
  Temporaries(const RecordedStep& step, const std::vector<Node>& nodes);

  const std::vector<Node>& nodes() const { return nodes_; }
  const std::vector<Value>& values() const { return values_; }
  const Value& value(int v) const { return values_[static_cast<size_t>(v)]; }
  const Work& work(int node) const { return work_[static_cast<size_t>(node)]; }
  /// Nothing for a node that changes what outlives it.
  const std::optional<Again>& again(int node) const { return again_[static_cast<size_t>(node)]; }
  /// Nodes whose second execution reads the value.
  const std::vector<int>& followers(int v) const { return followers_[static_cast<size_t>(v)]; }
  /// The value in whose block `t` lies; -1 if that is not of the arena.
  int ValueOf(const Tensor& t) const;
  /// Bytes of what depends on parameters alone, which a Graph keeps from replay to replay.
  size_t prepared() const { return prepared_; }
  /// EstimatedTime of all nodes.
  double time() const { return time_; }
  /// Blocks that the host uses after the segment.
  const std::vector<BlockPtr>& lent() const { return lent_; }

 private:
  Work WorkOf(const Node& node) const;
  std::optional<Again> AgainOf(int n, const Device& device) const;

  const std::vector<Node>& nodes_;
  std::vector<Value> values_;
  std::unordered_map<const Block*, int> value_of_;
  std::unordered_map<const Block*, std::vector<int>> writers_;  // of all blocks, in order
  std::vector<Work> work_;
  std::vector<std::optional<Again>> again_;
  std::vector<std::vector<int>> followers_;
  std::vector<BlockPtr> lent_;
  size_t prepared_ = 0;
  size_t alignment_ = 1;
  double time_ = 0;
};

}  // namespace singa

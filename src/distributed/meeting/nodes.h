#pragma once

#include <string>
#include <vector>

namespace singa::distributed {

/// Which ranks share memory. A node is a run of ranks with consecutive numbers on one machine;
/// nodes are numbered in the order of their ranks. A machine whose ranks have other numbers between
/// them counts as several nodes.
class Nodes {
 public:
  /// The place of `rank` in a job whose ranks are on machines with these names. Raises
  /// std::invalid_argument for a rank outside of the world, or a world of no or too many ranks.
  Nodes(int rank, std::vector<std::string> machines);

  int rank() const { return rank_; }
  int world_size() const { return static_cast<int>(node_.size()); }
  int count() const { return static_cast<int>(first_.size()) - 1; }
  /// The node of a rank, and that of this rank.
  int of(int rank) const { return node_[static_cast<size_t>(rank)]; }
  int own() const { return of(rank_); }
  /// Ranks of a node: from `first` to before `end`. The first one has the node's connections.
  int first(int node) const { return first_[static_cast<size_t>(node)]; }
  int end(int node) const { return first(node + 1); }
  bool IsLocal(int rank) const { return of(rank) == own(); }
  bool is_first() const { return rank_ == first(own()); }
  /// Number of this rank among those of its machine, and how many these are.
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }

  /// Raises std::invalid_argument if there is no such rank.
  static void CheckPlace(int rank, int world_size);

 private:
  int rank_;
  int local_rank_ = 0, local_size_ = 0;
  std::vector<int> node_;   // of each rank
  std::vector<int> first_;  // of each node; at last the number of ranks
};

}  // namespace singa::distributed

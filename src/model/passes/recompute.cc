#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/passes/node_spec.h"
#include "model/passes/passes.h"
#include "singa/core/stats.h"

namespace singa {
namespace {

/// With fewer operations between the last use in forward and the first in backward, dropping a
/// result saves nothing.
constexpr size_t kNear = 8;
/// Residual blocks in a row whose sums are dropped. Each sum is computed again from the one before.
constexpr int kChain = 2;

/// The batch norms of one segment whose results are dropped and computed again.
class Recomputation {
 public:
  Recomputation(const RecordedStep& step, std::vector<Node> nodes)
      : step_(step), nodes_(std::move(nodes)) {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      for (const Tensor& t : nodes_[n].inputs)
        if (!t.empty()) readers_[t.block().get()].push_back(n);
      for (const Tensor& t : nodes_[n].outputs)
        if (!t.empty()) writers_[t.block().get()].push_back(n);
      if (turn_ == 0 && nodes_[n].SpecAs<BatchNormBackwardSpec>()) turn_ = n;
    }
  }

  std::vector<Node> Nodes() {
    for (size_t n = 0; n < turn_; ++n) Drop(n);
    std::vector<Node> result;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const auto [begin, end] = again_.equal_range(n);
      for (auto node = begin; node != end; ++node) result.push_back(std::move(node->second));
      result.push_back(std::move(nodes_[n]));
    }
    return result;
  }

 private:
  /// Has the readers of node `n`'s result in backward read a second computation, if that is
  /// possible and saves memory.
  void Drop(size_t n) {
    const BatchNormForwardSpec* spec = nodes_[n].SpecAs<BatchNormForwardSpec>();
    if (!spec) spec = nodes_[n].SpecAs<BatchNormFromSumsSpec>();
    if (!spec || !spec->training || !spec->activation) return;
    const Tensor y = nodes_[n].outputs[0];
    if (!IsTemporary(y) || writers_[y.block().get()].size() != 1) return;
    const std::vector<size_t>& readers = readers_[y.block().get()];
    const auto late = std::upper_bound(readers.begin(), readers.end(), turn_);
    if (late == readers.end() || late == readers.begin() || *late < *(late - 1) + kNear) return;
    const size_t at = *late;
    // The inputs of the second computation have to be kept until then anyway.
    const std::vector<Tensor>& in = nodes_[n].inputs;
    const Tensor mean = nodes_[n].outputs[1], var = nodes_[n].outputs[2];
    for (const Tensor& t : {in[0], in[1], in[2], mean, var})
      if (!t.empty() && !IsThere(t, at)) return;
    Tensor add = in[5];
    const auto dropped = add.empty() ? dropped_.end() : dropped_.find(add.block().get());
    const bool chained = dropped != dropped_.end() && dropped->second.length < kChain;
    if (!add.empty() && !chained && !IsThere(add, at)) return;

    BatchNormForwardSpec again = *spec;
    again.training = false;
    SetCurrentLayer(nodes_[n].layer);
    Node node;
    node.op = again.op();
    Respecify(node, again, FindPlan(*step_.device(), again));
    if (!SameLayout(node.plan->output_layout(0), y.layout())) return;
    const auto block = std::make_shared<Block>(step_.device(), nullptr, y.block()->size(), nullptr);
    block->set_layout(y.layout());
    const Tensor copy = y.On(block);
    int length = 1;
    if (chained) {  // the residual is computed again before
      Dropped& before = dropped->second;
      length += before.length;
      add = add.On(before.copy.block());
      Hasten(before, at);
    }
    node.inputs = {in[0], in[1], in[2], mean, var, add};
    node.outputs = {copy};
    node.layer = nodes_[n].layer;
    for (auto reader = late; reader != readers.end(); ++reader)
      for (Tensor& t : nodes_[*reader].inputs)
        if (!t.empty() && t.block() == y.block()) t = t.On(block);
    again_.emplace(at, std::move(node));
    dropped_[y.block().get()] = {copy, at, length};
  }

  struct Dropped {
    Tensor copy;  ///< the result of the second computation
    size_t at;    ///< before which operation it is computed again
    int length;   ///< of the chain that ends in it
  };

  /// Moves the second computation of `dropped` to before operation `at`.
  void Hasten(Dropped& dropped, size_t at) {
    const auto [begin, end] = again_.equal_range(dropped.at);
    for (auto node = begin; node != end; ++node) {
      if (node->second.outputs[0].block() != dropped.copy.block()) continue;
      Node moved = std::move(node->second);
      again_.erase(node);
      again_.emplace(at, std::move(moved));
      break;
    }
    dropped.at = at;
  }

  bool IsTemporary(const Tensor& t) const {
    const int slot = step_.SlotOf(t.block().get());
    return slot >= 0 && step_.slots()[static_cast<size_t>(slot)].internal;
  }

  /// Whether `t` is kept until operation `at` anyway, and does not change.
  bool IsThere(const Tensor& t, size_t at) {
    const Block* block = t.block().get();
    const std::vector<size_t>& writers = writers_[block];
    if (!IsTemporary(t)) return writers.empty() || writers.front() >= at;  // a parameter's update
    const std::vector<size_t>& readers = readers_[block];
    return !dropped_.count(block) && writers.size() == 1 && !readers.empty() &&
           readers.back() >= at;
  }

  const RecordedStep& step_;
  std::vector<Node> nodes_;
  size_t turn_ = 0;  // the first backward of a batch norm
  std::unordered_map<const Block*, std::vector<size_t>> readers_;
  std::unordered_map<const Block*, std::vector<size_t>> writers_;
  std::unordered_map<const Block*, Dropped> dropped_;
  std::multimap<size_t, Node> again_;  // second computations, by the operation that they precede
};

}  // namespace

std::vector<Node> RecomputeNormalized(const RecordedStep& step, std::vector<Node> nodes) {
  return Recomputation(step, std::move(nodes)).Nodes();
}

}  // namespace singa

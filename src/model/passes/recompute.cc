#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/operation/batchnorm/spec.h"
#include "model/passes/def_use.h"
#include "model/passes/node_spec.h"
#include "model/passes/normalized_again.h"
#include "model/passes/passes.h"

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
      : step_(step), nodes_(std::move(nodes)), uses_(step, nodes_) {
    while (turn_ < nodes_.size() && !nodes_[turn_].SpecAs<BatchNormBackwardSpec>()) ++turn_;
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
    if (!uses_.IsTemporary(y) || uses_.writers(y).size() != 1) return;
    const std::vector<size_t>& readers = uses_.readers(y);
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

    std::optional<Node> node = NormalizedAgain(*step_.device(), nodes_[n]);
    if (!node) return;
    const Tensor copy = TemporaryLike(y);
    int length = 1;
    if (chained) {  // the residual is computed again before
      Dropped& before = dropped->second;
      length += before.length;
      add = add.On(before.copy.block());
      Hasten(before, at);
    }
    node->inputs[5] = add;
    node->outputs = {copy};
    for (auto reader = late; reader != readers.end(); ++reader)
      for (Tensor& t : nodes_[*reader].inputs)
        if (!t.empty() && t.block() == y.block()) t = t.On(copy.block());
    again_.emplace(at, *std::move(node));
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

  /// Whether `t` is kept until operation `at` anyway, and does not change.
  bool IsThere(const Tensor& t, size_t at) const {
    const std::vector<size_t>& writers = uses_.writers(t);
    if (!uses_.IsTemporary(t))
      return writers.empty() || writers.front() >= at;  // a parameter's update
    const std::vector<size_t>& readers = uses_.readers(t);
    return !dropped_.count(t.block().get()) && writers.size() == 1 && !readers.empty() &&
           readers.back() >= at;
  }

  const RecordedStep& step_;
  std::vector<Node> nodes_;
  DefUse uses_;
  size_t turn_ = 0;  // the first backward of a batch norm; beyond all where there is none
  std::unordered_map<const Block*, Dropped> dropped_;
  std::multimap<size_t, Node> again_;  // second computations, by the operation that they precede
};

}  // namespace

std::vector<Node> RecomputeNormalized(const RecordedStep& step, std::vector<Node> nodes) {
  return Recomputation(step, std::move(nodes)).Nodes();
}

}  // namespace singa

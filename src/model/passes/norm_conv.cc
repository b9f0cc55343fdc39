#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/passes/def_use.h"
#include "model/passes/node_spec.h"
#include "model/passes/passes.h"
#include "singa/core/stats.h"

namespace singa {
namespace {

/// The batch norms of one segment whose results convolutions compute.
class NormsInFront {
 public:
  NormsInFront(const RecordedStep& step, std::vector<Node> nodes)
      : step_(step), nodes_(std::move(nodes)), uses_(step, nodes_) {}

  std::vector<Node> Nodes() {
    for (size_t n = 0; n < nodes_.size(); ++n) Merge(n);
    return std::move(nodes_);
  }

 private:
  /// Has the readers of batch norm `n`'s result read its input, if all of them can.
  void Merge(size_t n) {
    const Node& norm = nodes_[n];
    const auto* spec = norm.SpecAs<BatchNormForwardSpec>();
    // A result of 16 bits would have to be rounded.
    if (!spec || !spec->training || spec->has_add || spec->dtype != kFloat32) return;
    const Tensor &x = norm.inputs[0], &y = norm.outputs[0];
    const std::vector<size_t>& readers = uses_.readers(y);
    if (!uses_.IsTemporary(y) || uses_.writers(y).size() != 1 || readers.empty() ||
        !SameLayout(x.layout(), y.layout()) || x.strides() != y.strides())
      return;
    for (const Tensor& t : {x, norm.inputs[1], norm.inputs[2], norm.outputs[1], norm.outputs[2]})
      if (!Stays(t, n, readers.back())) return;

    std::vector<Node> rewritten;
    for (const size_t reader : readers) {
      std::optional<Node> node = WithoutResult(nodes_[reader], norm, *spec);
      if (!node) return;
      rewritten.push_back(*std::move(node));
    }
    BatchNormStatisticsSpec statistics;
    statistics.shape = spec->shape;
    statistics.dtype = spec->dtype;
    statistics.has_scale = statistics.has_bias = false;
    statistics.epsilon = spec->epsilon;
    statistics.x_layout = spec->x_layout;
    Node own = norm;
    own.inputs[1] = own.inputs[2] = own.outputs[0] = Tensor();
    if (!Replan(own, statistics, norm)) return;
    for (size_t i = 0; i < readers.size(); ++i) nodes_[readers[i]] = std::move(rewritten[i]);
    nodes_[n] = std::move(own);
  }

  /// Whether `t` is empty, or nothing writes it between node `n` and node `last`.
  bool Stays(const Tensor& t, size_t n, size_t last) const {
    if (t.empty()) return true;
    const std::vector<size_t>& writers = uses_.writers(t);
    return std::none_of(writers.begin(), writers.end(),
                        [&](size_t writer) { return writer > n && writer <= last; });
  }

  /// `reader`, which computes the result of `norm` where it needs it.
  std::optional<Node> WithoutResult(const Node& reader, const Node& norm,
                                    const BatchNormForwardSpec& spec) const {
    Node node = reader;
    if (const auto* conv = reader.SpecAs<ConvSpec>()) {
      NormConvSpec merged{*conv, spec.has_scale, spec.has_bias, spec.epsilon, spec.activation};
      const bool gradient = conv->pass == ConvPass::kBackwardW;
      if ((!gradient && conv->pass != ConvPass::kForward) || conv->has_add) return {};
      if (!Reads(reader, merged.x_input(), norm.outputs[0])) return {};
      node.inputs[merged.x_input()] = norm.inputs[0];
      for (const Tensor& t : {norm.outputs[1], norm.outputs[2], norm.inputs[1], norm.inputs[2]})
        node.inputs.push_back(t);
      return Replan(node, merged, reader) ? std::optional(node) : std::nullopt;
    }
    if (const auto* backward = reader.SpecAs<BatchNormBackwardSpec>()) {
      // The sign of y, which is that of what ReLU is applied to.
      BatchNormBackwardSpec merged = *backward;
      if (!merged.has_y || merged.need_add || !Reads(reader, 6, norm.outputs[0]) ||
          !SameView(reader.inputs[1], norm.inputs[0]))
        return {};
      merged.has_y = false;
      merged.has_bias = spec.has_bias;
      node.inputs[5] = norm.inputs[2];
      node.inputs[6] = Tensor();
      return Replan(node, merged, reader) ? std::optional(node) : std::nullopt;
    }
    return {};
  }

  /// Whether `y` is argument `place` of `node`, and no other.
  static bool Reads(const Node& node, size_t place, const Tensor& y) {
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (i != place && !node.inputs[i].empty() && node.inputs[i].block() == y.block())
        return false;
    return SameView(node.inputs[place], y);
  }

  /// Has `node` compute `spec`. False if that is not done by the implementation of `before`, on
  /// tensors as they lie. The reference implementation would compute the result as a whole.
  template <class Spec>
  bool Replan(Node& node, const Spec& spec, const Node& before) const {
    const std::string_view implementation = before.plan->implementation();
    if (implementation == kReference) return false;
    SetCurrentLayer(node.layer);
    Respecify(node, spec, *step_.device());
    node.op = spec.op();
    return node.plan->implementation() == implementation && LieAsPlanned(node, *node.plan);
  }

  const RecordedStep& step_;
  std::vector<Node> nodes_;
  DefUse uses_;
};

}  // namespace

std::vector<Node> NormalizeInConvolutions(const RecordedStep& step, std::vector<Node> nodes) {
  return NormsInFront(step, std::move(nodes)).Nodes();
}

}  // namespace singa

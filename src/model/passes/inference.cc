#include <algorithm>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/linalg/spec.h"
#include "model/passes/def_use.h"
#include "model/passes/passes.h"
#include "singa/core/stats.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/elementwise.h"

namespace singa {
namespace {

/// Inputs of BatchNormForwardInference.
enum : size_t { kScale = 1, kBias = 2, kMean = 3, kVar = 4, kAdd = 5 };

/// A convolution or Linear, and the operations behind it that become one node with it.
struct Chain {
  const Node* first = nullptr;
  size_t last = 0;  ///< the node that is replaced
  const Node* batch_norm = nullptr;
  Tensor add;
  Activation activation = {};
  Activation front = {};  ///< of the chain before, applied where the convolution reads
};

/// The chains of one segment.
class Folding {
 public:
  Folding(const RecordedStep& step, std::vector<Node> nodes)
      : step_(step), nodes_(std::move(nodes)), uses_(step, nodes_) {}

  std::vector<Node> Nodes() {
    FindChains();
    MoveActivations();
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (const auto chain = chains_.find(n); chain != chains_.end())
        Emit(chain->second);
      else if (!inside_.count(n))
        Keep(nodes_[n]);
    }
    return std::move(result_);
  }

 private:
  // Finding chains --------------------------------------------------------------------------------

  void FindChains() {
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (!BeginsChain(nodes_[n])) continue;
      Chain chain{.first = &nodes_[n], .last = n, .add = Tensor()};
      while (!chain.activation) {
        const std::optional<size_t> next = uses_.OnlyReader(nodes_[chain.last].outputs[0]);
        // An addition of the results of two chains belongs to the first one.
        if (!next || inside_.count(*next) || chains_.count(*next)) break;
        if (!Take(nodes_[*next], &chain)) break;
        inside_.insert(chain.last);
        chain.last = *next;
      }
      if (chain.last != n || HasConstantWeights(nodes_[n])) chains_[chain.last] = chain;
    }
  }

  /// Leaves activations of images to the convolutions that read them, as their only readers, where
  /// these have kernels for that: the image is neither read nor written once more.
  void MoveActivations() {
    for (auto& [last, chain] : chains_) {
      if (!chain.activation || !chain.first->SpecAs<ConvSpec>()) continue;
      const Tensor& y = nodes_[last].outputs[0];
      const std::optional<size_t> next = uses_.OnlyReader(y);
      if (!next) continue;
      const auto reader = std::find_if(chains_.begin(), chains_.end(), [&](const auto& each) {
        return each.second.first == &nodes_[*next];
      });
      if (reader == chains_.end() || !Applies(reader->second, y, chain.activation)) continue;
      reader->second.front = chain.activation;
      chain.activation = {};
    }
  }

  /// Whether the convolution of `chain` applies `activation` to its image `x` in passing.
  bool Applies(const Chain& chain, const Tensor& x, const Activation& activation) const {
    const auto* conv = chain.first->SpecAs<ConvSpec>();
    if (!conv || !chain.add.empty() || !SameView(chain.first->inputs[0], x)) return false;
    if (step_.device()->kind() != DeviceKind::kCpu) return false;
    return HasKernel(Behind(activation, *conv), chain);
  }

  static NormConvSpec Behind(const Activation& activation, const ConvSpec& conv) {
    NormConvSpec spec = NormConvSpec::Behind(activation, conv);
    if (spec.choice.preference == Preference::kAutotune)
      spec.choice.preference = Preference::kFastest;
    return spec;
  }

  /// Whether the implementation that computes the chain's convolution takes `spec`, too. The
  /// reference would compute the activation as a whole.
  bool HasKernel(const NormConvSpec& spec, const Chain& chain) const {
    const std::string_view implementation = chain.first->plan->implementation();
    if (implementation == kReference) return false;
    try {
      return FindPlan(*step_.device(), spec, spec.choice)->implementation() == implementation;
    } catch (const Unavailable&) {  // the workspace is limited
      return false;
    }
  }

  bool BeginsChain(const Node& node) const {
    const auto* conv = node.SpecAs<ConvSpec>();
    const auto* product = node.SpecAs<MatMulSpec>();
    const bool fits = (conv && conv->pass == ConvPass::kForward && !conv->relu && !conv->has_add) ||
                      (product && !product->relu);
    // The chain comes where its last node was, so the inputs must not change until then.
    return fits && std::all_of(node.inputs.begin(), node.inputs.end(),
                               [&](const Tensor& t) { return t.empty() || WrittenOnce(t); });
  }

  /// Whether it is a convolution whose weights may be prepared.
  bool HasConstantWeights(const Node& node) const {
    return node.SpecAs<ConvSpec>() && uses_.IsConstant(Unordered(node.inputs[1]));
  }

  bool WrittenOnce(const Tensor& t) const { return uses_.writers(t).size() <= 1; }

  /// Adds `node`, the only reader of the chain's result, to the chain if that is possible.
  bool Take(const Node& node, Chain* chain) const {
    const bool conv = chain->first->SpecAs<ConvSpec>() != nullptr;
    if (const auto* spec = node.SpecAs<UnarySpec>(); spec && spec->kind == UnaryOp::kRelu) {
      chain->activation = ActivationKind::kRelu;
      return true;
    }
    if (const Activation behind = LimitOrGate(node); conv && behind) {
      chain->activation = behind;
      return true;
    }
    if (conv && node.SpecAs<BatchNormForwardSpec>()) return TakeBatchNorm(node, chain);
    if (conv && node.SpecAs<BinarySpec>()) return TakeAdd(node, chain);
    return false;
  }

  /// The activation that an elementwise operation is, other than ReLU.
  static Activation LimitOrGate(const Node& node) {
    const auto* spec = node.SpecAs<UnarySpec>();
    if (!spec || node.live) return {};
    const ActivationKind kind = formula::ActivationOf(spec->kind);
    if (formula::FactsOf(kind).is_gate && !formula::FactsOf(kind).is_slow) return kind;
    const double low = node.scalars.v[0], high = node.scalars.v[1];
    const bool limits = spec->kind == UnaryOp::kClip || kind == ActivationKind::kClip;
    return limits && low <= high ? Activation(ActivationKind::kClip, low, high) : Activation();
  }

  bool TakeBatchNorm(const Node& node, Chain* chain) const {
    const auto* spec = node.SpecAs<BatchNormForwardSpec>();
    const Tensor& y = nodes_[chain->last].outputs[0];
    if (spec->training || chain->batch_norm || !chain->add.empty()) return false;
    if (node.inputs[0].block() != y.block()) return false;
    std::vector<Tensor> folded(node.inputs.begin() + kScale, node.inputs.begin() + kAdd);
    for (size_t i = 1; i < chain->first->inputs.size(); ++i)
      folded.push_back(Unordered(chain->first->inputs[i]));
    for (const Tensor& t : folded)
      if (!t.empty() && !uses_.IsConstant(t)) return false;
    if (!node.inputs[kAdd].empty() && !WrittenOnce(node.inputs[kAdd])) return false;
    chain->batch_norm = &node;
    chain->add = node.inputs[kAdd];
    chain->activation = spec->activation;
    return true;
  }

  bool TakeAdd(const Node& node, Chain* chain) const {
    const auto* spec = node.SpecAs<BinarySpec>();
    const Tensor& y = nodes_[chain->last].outputs[0];
    const Tensor& add = node.inputs[SameView(node.inputs[0], y) ? 1 : 0];
    if (spec->kind != BinaryOp::kAdd || !chain->add.empty() || !WrittenOnce(add)) return false;
    if (add.shape() != y.shape() || add.data_type() != y.data_type()) return false;
    chain->add = add;
    return true;
  }

  /// The constant that was reordered to make `t`; `t` itself if there is none.
  Tensor Unordered(const Tensor& t) const {
    const std::vector<size_t>& writers = uses_.writers(t);
    if (writers.size() != 1 || nodes_[writers[0]].op != std::string_view("Reorder")) return t;
    const Tensor& source = nodes_[writers[0]].inputs[0];
    return uses_.IsConstant(source) ? source : t;
  }

  // Writing nodes ---------------------------------------------------------------------------------

  /// Replaces `node` by the operations that `record` calls. `record` returns the new tensor that
  /// replaces the result of `node`.
  template <class Record>
  void Replace(const Node& node, const Record& record) {
    const Tensor& y = node.outputs[0];
    SetCurrentLayer(node.layer);
    RecordedStep scratch(step_.device(), step_.arena());
    scratch.Start({});
    Tensor result = record();
    const bool temporary = uses_.IsTemporary(y);
    if (!temporary) result = result.ToLayout(y.layout());
    const size_t begin = result_.size();
    result_.insert(result_.end(), scratch.nodes().begin(), scratch.nodes().end());
    scratch.Abandon();
    if (temporary) {
      instead_[y.block().get()] = result;
      return;
    }
    for (size_t n = begin; n < result_.size(); ++n)
      for (auto* tensors : {&result_[n].inputs, &result_[n].outputs})
        for (Tensor& t : *tensors)
          if (!t.empty() && t.block() == result.block()) t = t.On(y.block());
  }

  void Emit(const Chain& chain) {
    const Node& first = *chain.first;
    Replace(nodes_[chain.last], [&] {
      if (const auto* product = first.SpecAs<MatMulSpec>()) return Product(*product, first);
      return Convolution(chain);
    });
  }

  Tensor Product(MatMulSpec spec, const Node& node) {
    spec.relu = true;
    std::vector<Tensor> inputs;
    for (const Tensor& t : node.inputs) inputs.push_back(Present(t));
    const Tensor& y = node.outputs[0];
    const Tensor result(y.shape(), y.device(), y.data_type());
    Run(spec, y.device(), FindPlan(*y.device(), spec), inputs, {&result, 1});
    return result;
  }

  Tensor Convolution(const Chain& chain) {
    const Node& node = *chain.first;
    ConvSpec spec = *node.SpecAs<ConvSpec>();
    Tensor W = Unordered(node.inputs[1]);
    Tensor b = spec.geometry.bias ? node.inputs[2] : Tensor();
    if (chain.batch_norm) {
      const std::vector<Tensor>& bn = chain.batch_norm->inputs;
      const double epsilon = chain.batch_norm->SpecAs<BatchNormForwardSpec>()->epsilon;
      const std::vector<Tensor> folded =
          FoldBatchNorm(W, b, bn[kScale], bn[kBias], bn[kMean], bn[kVar], epsilon);
      W = folded[0];
      b = folded[1];
    }
    spec.geometry.bias = !b.empty();
    spec.has_add = !chain.add.empty();
    spec.relu = chain.activation.kind == ActivationKind::kRelu;
    spec.constant_weights = HasConstantWeights(node);
    Tensor x = Newest(node.inputs[0]);
    if (chain.front) {
      NormConvSpec behind = Behind(chain.front, spec);
      behind.x_layout = x.layout();
      if (HasKernel(behind, chain)) return Activated(chain, spec, RunConvForward(behind, x, W, b));
      x = Apply(chain.front, x);
    }
    const Tensor add = spec.has_add ? Newest(chain.add) : Tensor();
    return Activated(chain, spec, RunConvForward(spec, x, W, b, add));
  }

  static Tensor Apply(const Activation& activation, const Tensor& x) {
    return Unary(formula::FunctionOf(activation.kind), x, activation.low, activation.high);
  }

  /// The end of a chain, from the result of its convolution.
  static Tensor Activated(const Chain& chain, const ConvSpec& spec, const Tensor& y) {
    return !chain.activation || spec.relu ? y : Apply(chain.activation, y);
  }

  /// The tensor that replaces `t`, in any layout; `t` itself if nothing does.
  Tensor Newest(const Tensor& t) const {
    const auto found = instead_.find(t.block().get());
    if (found == instead_.end()) return t;
    const Tensor& now = found->second;
    const bool whole = t.layout() || (t.offset() == 0 && t.is_contiguous());
    return whole && t.shape() == now.shape() ? now : Present(t);
  }

  /// The same in the layout of `t`. May record a reorder.
  Tensor Present(const Tensor& t) const {
    const auto found = t.empty() ? instead_.end() : instead_.find(t.block().get());
    if (found == instead_.end()) return t;
    return t.On(found->second.ToLayout(t.layout()).block());
  }

  /// Keeps the node, on the tensors that replace its inputs.
  void Keep(const Node& node) {
    RecordedStep scratch(step_.device(), step_.arena());
    scratch.Start({});
    Node kept = node;
    SetCurrentLayer(node.layer);
    for (Tensor& t : kept.inputs) t = Present(t);
    result_.insert(result_.end(), scratch.nodes().begin(), scratch.nodes().end());
    scratch.Abandon();
    result_.push_back(std::move(kept));
  }

  const RecordedStep& step_;
  const std::vector<Node> nodes_;
  DefUse uses_;
  std::unordered_map<size_t, Chain> chains_;  // by the last node
  std::unordered_set<size_t> inside_;         // nodes of chains except the last ones
  std::unordered_map<const Block*, Tensor> instead_;
  std::vector<Node> result_;
};

}  // namespace

std::vector<Node> FoldForInference(const RecordedStep& step, std::vector<Node> nodes) {
  return Folding(step, std::move(nodes)).Nodes();
}

std::vector<Node> DropUnused(const RecordedStep& step, std::vector<Node> nodes) {
  const DefUse uses(step, nodes);
  std::unordered_set<const Block*> read;
  std::vector<Node> needed;
  for (size_t n = nodes.size(); n-- > 0;) {
    const bool used =
        std::any_of(nodes[n].outputs.begin(), nodes[n].outputs.end(), [&](const Tensor& t) {
          return !t.empty() && (!uses.IsTemporary(t) || read.count(t.block().get()));
        });
    if (!used) continue;
    for (const Tensor& t : nodes[n].inputs)
      if (!t.empty()) read.insert(t.block().get());
    needed.push_back(std::move(nodes[n]));
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

std::vector<Node> MarkPreparation(const RecordedStep& step, std::vector<Node> nodes) {
  const DefUse uses(step, nodes);
  std::unordered_set<const Block*> prepared;
  const auto is_constant = [&](const Tensor& t) {
    return t.empty() || uses.IsConstant(t) || prepared.count(t.block().get());
  };
  const auto is_made_once = [&](const Tensor& t) {
    return t.empty() || (uses.IsTemporary(t) && uses.writers(t).size() == 1);
  };
  for (Node& node : nodes) {
    node.prepares = node.random < 0 && !node.inputs.empty() &&
                    std::all_of(node.inputs.begin(), node.inputs.end(), is_constant) &&
                    std::all_of(node.outputs.begin(), node.outputs.end(), is_made_once);
    if (!node.prepares) continue;
    for (const Tensor& t : node.outputs)
      if (!t.empty()) prepared.insert(t.block().get());
  }
  return nodes;
}

}  // namespace singa

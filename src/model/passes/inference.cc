#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/channel_scale/spec.h"
#include "model/operation/conv/expand_conv_spec.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/layout/axis_map_spec.h"
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

/// What becomes part of a convolution's filters and biases.
struct Affine {
  const Node* batch_norm = nullptr;  ///< null: a product or sum with `channels`
  BinaryOp op = BinaryOp::kAdd;
  Tensor channels;  ///< one number for each channel of the result
};

/// A convolution or Linear, and the operations around it that become one node with it.
struct Chain {
  const Node* first = nullptr;
  size_t last = 0;               ///< the node that is replaced
  const Node* pad = nullptr;     ///< zeros in front of the convolution
  const Node* reader = nullptr;  ///< the first node that reads the image
  std::vector<Affine> affine;
  Tensor add;
  Activation activation = {};
  Activation front = {};  ///< of the chain before, applied where the convolution reads
  std::shared_ptr<const Chain> inner = nullptr;  ///< the chain before, computed there

  const Tensor& image() const { return reader->inputs[0]; }
  /// The Spec of the convolution, with the zeros of `pad` as part of its own padding.
  ConvSpec Conv() const {
    ConvSpec spec = *first->SpecAs<ConvSpec>();
    if (!pad) return spec;
    Recorder& geometry = spec.geometry;
    const auto& zeros = *pad->SpecAs<AxisMapSpec>();
    const int rank = zeros.x_shape.rank();
    for (int axis = 2; axis < rank; ++axis) {
      Recorder::Axis& along = geometry.axes[static_cast<size_t>(Recorder::kMostAxes - rank + axis)];
      along.before += zeros.first[axis];
      along.after += zeros.last[axis];
    }
    geometry = WithInput(spec.op(), geometry, zeros.x_shape);
    return spec;
  }
};

/// The chains of one segment.
class Folding {
 public:
  Folding(const RecordedStep& step, std::vector<Node> nodes)
      : step_(step), nodes_(std::move(nodes)), uses_(step, nodes_) {}

  std::vector<Node> Nodes() {
    FindChains();
    MoveExpansions();
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
      if (!BeginsChain(n)) continue;
      const Node* first = &nodes_[n];
      Chain chain{.first = first, .last = n, .reader = first, .affine = {}, .add = Tensor()};
      if (first->SpecAs<ConvSpec>()) TakeFront(n, &chain);
      while (!chain.activation && TakeNext(&chain)) {
      }
      if (chain.last != n || chain.pad || HasConstantWeights(nodes_[n]))
        chains_[chain.last] = chain;
    }
  }

  /// Adds the only reader of the chain's result to the chain if that is possible.
  bool TakeNext(Chain* chain) {
    const Tensor& y = nodes_[chain->last].outputs[0];
    std::optional<size_t> reorder, next = uses_.OnlyReader(y);
    if (next && IsReorder(nodes_[*next])) {  // sums with one number per channel want plain images
      reorder = next;
      next = uses_.OnlyReader(nodes_[*reorder].outputs[0]);
    }
    // An addition of the results of two chains belongs to the first one.
    if (!next || inside_.count(*next) || chains_.count(*next)) return false;
    const Tensor& z = nodes_[*next].outputs[0];
    if (!IsWhole(z) || z.data_type() != y.data_type()) return false;
    if (reorder ? !TakeAffine(nodes_[*next], nodes_[*reorder].outputs[0], chain)
                : !Take(*next, chain))
      return false;
    inside_.insert(chain->last);
    if (reorder) inside_.insert(*reorder);
    chain->last = *next;
    return true;
  }

  /// Whether `t` has all elements of its memory, in their order.
  static bool IsWhole(const Tensor& t) {
    return t.layout() || (t.offset() == 0 && t.is_contiguous());
  }
  static bool IsReorder(const Node& node) { return node.op == std::string_view("Reorder"); }

  /// Looks for the image that the convolution n reads, behind reorders and zeros that it alone
  /// reads. What is not read any more is dropped later.
  void TakeFront(size_t n, Chain* chain) const {
    const size_t reader = BehindReorder(n);
    chain->reader = &nodes_[reader];
    const std::optional<size_t> pad = OnlyMaker(reader);
    if (!pad || !AddsZeros(nodes_[*pad])) return;
    Chain padded = *chain;
    padded.pad = &nodes_[*pad];
    padded.reader = &nodes_[BehindReorder(*pad)];
    // Implementations refuse windows that see nothing of the image.
    for (const Recorder::Axis& axis : padded.Conv().geometry.axes)
      if (std::max(axis.before, axis.after) > axis.dilation * (axis.kernel - 1)) return;
    if (IsFinal(nodes_[*pad].inputs[0], *pad)) *chain = padded;
  }

  /// The reorder that makes the first input of node n, for n alone; n itself if there is none.
  size_t BehindReorder(size_t n) const {
    const std::optional<size_t> maker = OnlyMaker(n);
    const bool reorders = maker && IsReorder(nodes_[*maker]);
    return reorders && IsFinal(nodes_[*maker].inputs[0], *maker) ? *maker : n;
  }

  /// The node that makes the first input of `reader`, if nothing else reads its result.
  std::optional<size_t> OnlyMaker(size_t reader) const {
    const std::vector<size_t>& writers = uses_.writers(nodes_[reader].inputs[0]);
    if (writers.size() != 1) return {};
    const std::optional<size_t> only = uses_.OnlyReader(nodes_[writers[0]].outputs[0]);
    return only == reader ? std::optional(writers[0]) : std::nullopt;
  }

  /// Whether `node` adds zeros around images, and takes nothing away.
  static bool AddsZeros(const Node& node) {
    const auto* spec = node.SpecAs<AxisMapSpec>();
    if (!spec || spec->kind != AxisMapKind::kPadConstant || node.scalars.v[0] != 0) return false;
    for (int axis = 0; axis < spec->x_shape.rank(); ++axis)
      if (axis < 2 ? !spec->IsIdentity(axis) : std::min(spec->first[axis], spec->last[axis]) < 0)
        return false;
    return true;
  }

  /// Leaves convolutions with 1 x 1 filters to those that read their results, as their only
  /// readers, where these have kernels for that: these results are not in memory.
  void MoveExpansions() {
    std::vector<size_t> moved;
    for (const auto& [last, chain] : chains_) {
      Chain* outer = OnlyReaderOf(last);
      if (!outer || !chain.first->SpecAs<ConvSpec>() || chain.pad || !chain.add.empty()) continue;
      if (!HasConstantWeights(*chain.first) || !HasConstantWeights(*outer->first)) continue;
      const std::optional<ExpandConvSpec> spec = Behind(chain, chain.Conv(), outer->Conv());
      if (!spec || !HasKernel(*spec, *outer)) continue;
      outer->inner = std::make_shared<Chain>(chain);
      moved.push_back(last);
    }
    for (const size_t last : moved) {
      chains_.erase(last);
      inside_.insert(last);
    }
  }

  /// Leaves activations of images to the convolutions that read them, as their only readers, where
  /// these have kernels for that: the image is neither read nor written once more.
  void MoveActivations() {
    for (auto& [last, chain] : chains_) {
      if (!chain.activation || !chain.first->SpecAs<ConvSpec>()) continue;
      Chain* outer = OnlyReaderOf(last);
      if (!outer || !HasKernel(Behind(chain.activation, outer->Conv()), *outer)) continue;
      outer->front = chain.activation;
      chain.activation = {};
    }
  }

  /// The chain on the CPU whose convolution, without an addition, is the only reader of the result
  /// of node `last`, as its image; null if there is none.
  Chain* OnlyReaderOf(size_t last) {
    const Tensor& y = nodes_[last].outputs[0];
    const std::optional<size_t> next = uses_.OnlyReader(y);
    if (!next || step_.device()->kind() != DeviceKind::kCpu) return nullptr;
    const auto found = std::find_if(chains_.begin(), chains_.end(), [&](const auto& each) {
      return each.second.reader == &nodes_[*next];
    });
    if (found == chains_.end()) return nullptr;
    Chain& chain = found->second;
    const bool reads = chain.first->SpecAs<ConvSpec>() && SameView(chain.image(), y);
    return reads && chain.add.empty() ? &chain : nullptr;
  }

  /// `conv` of what the chain `inner` makes by the convolution `before`; nothing if that has other
  /// filters than 1 x 1.
  static std::optional<ExpandConvSpec> Behind(const Chain& inner, const ConvSpec& before,
                                              ConvSpec conv) {
    conv.choice = conv.choice.Unmeasured();
    conv.constant_weights = true;
    conv.x_layout = before.x_layout;
    const Recorder& r = before.geometry;
    ExpandConvSpec spec = {conv, r.in_channels, r.bias, inner.activation};
    return spec.Inner().geometry == r ? std::optional(spec) : std::nullopt;
  }

  static NormConvSpec Behind(const Activation& activation, const ConvSpec& conv) {
    NormConvSpec spec = NormConvSpec::Behind(activation, conv);
    spec.choice = spec.choice.Unmeasured();
    return spec;
  }

  /// Whether the implementation that computes the chain's convolution takes `spec`, too. The
  /// reference would compute the activation as a whole.
  template <class Spec>
  bool HasKernel(const Spec& spec, const Chain& chain) const {
    const std::string_view implementation = chain.first->plan->implementation();
    return implementation != kReference && ImplementationOf(spec) == implementation;
  }

  /// Empty where nothing computes `spec`, because the workspace is limited.
  template <class Spec>
  std::string_view ImplementationOf(const Spec& spec) const {
    try {
      return FindPlan(*step_.device(), spec, spec.choice)->implementation();
    } catch (const Unavailable&) {
      return {};
    }
  }

  bool BeginsChain(size_t n) const {
    const Node& node = nodes_[n];
    const auto* conv = node.SpecAs<ConvSpec>();
    const auto* product = node.SpecAs<MatMulSpec>();
    const bool fits =
        (conv && conv->pass == ConvPass::kForward && !conv->activation && !conv->has_add) ||
        (product && !product->relu);
    return fits && std::all_of(node.inputs.begin(), node.inputs.end(),
                               [&](const Tensor& t) { return IsFinal(t, n); });
  }

  /// Whether it is a convolution whose weights may be prepared.
  bool HasConstantWeights(const Node& node) const {
    return node.SpecAs<ConvSpec>() && uses_.IsConstant(Unordered(node.inputs[1]));
  }

  /// Whether node n reads the last value of `t`: a chain reads it later, where its last node was.
  bool IsFinal(const Tensor& t, size_t n) const {
    const std::vector<size_t>& writers = uses_.writers(t);
    return std::all_of(writers.begin(), writers.end(), [n](size_t writer) { return writer < n; });
  }

  /// Adds node n, the only reader of the chain's result, to the chain if that is possible.
  bool Take(size_t n, Chain* chain) const {
    const Node& node = nodes_[n];
    const bool conv = chain->first->SpecAs<ConvSpec>() != nullptr;
    if (const auto* spec = node.SpecAs<UnarySpec>(); spec && spec->kind == UnaryOp::kRelu) {
      chain->activation = ActivationKind::kRelu;
      return true;
    }
    if (const Activation behind = LimitOrGate(node); conv && behind) {
      chain->activation = behind;
      return true;
    }
    if (!conv) return false;
    return TakeBatchNorm(n, chain) || TakeAffine(node, nodes_[chain->last].outputs[0], chain) ||
           TakeAdd(n, chain);
  }

  /// The activation that an elementwise operation is, other than ReLU.
  static Activation LimitOrGate(const Node& node) {
    const auto* spec = node.SpecAs<UnarySpec>();
    if (!spec || node.live) return {};
    const ActivationKind kind = formula::ActivationOf(spec->kind);
    if (formula::FactsOf(kind).is_gate) return kind;
    const double low = node.scalars.v[0], high = node.scalars.v[1];
    const bool limits = spec->kind == UnaryOp::kClip || kind == ActivationKind::kClip;
    return limits && low <= high ? Activation(ActivationKind::kClip, low, high) : Activation();
  }

  bool TakeBatchNorm(size_t n, Chain* chain) const {
    const Node& node = nodes_[n];
    const auto* spec = node.SpecAs<BatchNormForwardSpec>();
    const Tensor& y = nodes_[chain->last].outputs[0];
    if (!spec || spec->training || !HasConstantParameters(*chain)) return false;
    if (node.inputs[0].block() != y.block()) return false;
    for (size_t i = kScale; i < kAdd; ++i)
      if (!IsConstantOrNone(node.inputs[i])) return false;
    if (!IsFinal(node.inputs[kAdd], n)) return false;
    chain->affine.push_back({.batch_norm = &node, .channels = Tensor()});
    chain->add = node.inputs[kAdd];
    chain->activation = spec->activation;
    return true;
  }

  /// Takes a product or a sum of a convolution's result y and one constant number per channel.
  bool TakeAffine(const Node& node, const Tensor& y, Chain* chain) const {
    if (!chain->first->SpecAs<ConvSpec>() || !HasConstantParameters(*chain)) return false;
    const auto* binary = node.SpecAs<BinarySpec>();
    const bool is_product =
        node.SpecAs<ChannelScaleSpec>() || (binary && binary->kind == BinaryOp::kMul);
    const bool is_sum = binary && binary->kind == BinaryOp::kAdd;
    if (!is_product && !is_sum) return false;
    const Tensor& t = node.inputs[SameView(node.inputs[0], y) ? 1 : 0];
    if (!uses_.IsConstant(t) || t.layout() || t.data_type() != y.data_type()) return false;
    for (int axis = 0; axis < t.rank(); ++axis)
      if (axis != 1 && t.shape(axis) != 1 && t.strides()[axis] != 0) return false;
    const Tensor channels(t.block(), {y.shape(1)}, {t.strides()[1]}, t.offset(), t.data_type());
    chain->affine.push_back({nullptr, is_product ? BinaryOp::kMul : BinaryOp::kAdd, channels});
    return true;
  }

  bool TakeAdd(size_t n, Chain* chain) const {
    const Node& node = nodes_[n];
    const auto* spec = node.SpecAs<BinarySpec>();
    if (!spec || spec->kind != BinaryOp::kAdd || !chain->add.empty()) return false;
    const Tensor& y = nodes_[chain->last].outputs[0];
    const Tensor& add = node.inputs[SameView(node.inputs[0], y) ? 1 : 0];
    if (!IsFinal(add, n)) return false;
    if (add.shape() != y.shape() || add.data_type() != y.data_type()) return false;
    chain->add = add;
    return true;
  }

  /// Whether filters and biases may take in what scales and shifts the channels of the result.
  bool HasConstantParameters(const Chain& chain) const {
    const std::vector<Tensor>& inputs = chain.first->inputs;
    return chain.add.empty() && std::all_of(inputs.begin() + 1, inputs.end(), [&](const Tensor& t) {
             return IsConstantOrNone(Unordered(t));
           });
  }

  bool IsConstantOrNone(const Tensor& t) const { return t.empty() || uses_.IsConstant(t); }

  /// The constant that was reordered to make `t`; `t` itself if there is none.
  Tensor Unordered(const Tensor& t) const {
    const std::vector<size_t>& writers = uses_.writers(t);
    if (writers.size() != 1 || !IsReorder(nodes_[writers[0]])) return t;
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
    const bool moves = Moves(y);
    if (!moves) result = result.ToLayout(y.layout());
    const size_t begin = result_.size();
    result_.insert(result_.end(), scratch.nodes().begin(), scratch.nodes().end());
    scratch.Abandon();
    if (moves) {
      instead_[y.block().get()] = std::make_shared<Versions>(1, result);
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

  /// A convolution with what its chain folds into filters and bias.
  struct Folded {
    ConvSpec spec;
    Tensor W, b;
  };
  Folded FoldedConv(const Chain& chain) const {
    const Node& node = *chain.first;
    ConvSpec spec = chain.Conv();
    Tensor W = Unordered(node.inputs[1]);
    Tensor b = spec.geometry.bias ? node.inputs[2] : Tensor();
    for (const Affine& affine : chain.affine) Fold(affine, &W, &b);
    spec.geometry.bias = !b.empty();
    spec.has_add = !chain.add.empty();
    spec.constant_weights = HasConstantWeights(node);
    return {spec, W, b};
  }

  Tensor Convolution(const Chain& chain) {
    auto [spec, W, b] = FoldedConv(chain);
    Tensor x;
    if (chain.inner) {
      Folded inner = FoldedConv(*chain.inner);
      x = Newest(chain.inner->image());
      inner.spec.x_layout = x.layout();
      std::optional<ExpandConvSpec> behind = Behind(*chain.inner, inner.spec, spec);
      if (behind && Merges(chain.activation, *behind)) behind->activation = chain.activation;
      if (behind && HasKernel(*behind, chain))
        return Activated(chain, *behind, RunConvForward(*behind, x, W, b, inner.W, inner.b));
      x = Convolution(*chain.inner);
    } else {
      x = Newest(chain.image());
    }
    spec.x_layout = x.layout();
    if (Merges(chain.activation, spec)) spec.activation = chain.activation;
    if (chain.front) {
      const NormConvSpec behind = Behind(chain.front, spec);
      if (HasKernel(behind, chain)) return Activated(chain, spec, RunConvForward(behind, x, W, b));
      x = Apply(chain.front, x);
    }
    const Tensor add = spec.has_add ? Newest(chain.add) : Tensor();
    return Activated(chain, spec, RunConvForward(spec, x, W, b, add));
  }

  /// Whether the implementation that computes `spec` applies an activation, too.
  template <class Spec>
  bool Merges(const Activation& activation, Spec spec) const {
    if (activation.kind == ActivationKind::kRelu) return true;
    if (!activation || !formula::KeepsZero(activation)) return false;
    if (step_.device()->kind() != DeviceKind::kCpu) return false;
    spec.choice = spec.choice.Unmeasured();
    const std::string_view without = ImplementationOf(spec);
    spec.activation = activation;
    return without != kReference && ImplementationOf(spec) == without;
  }

  /// Changes filters and biases so that they do what comes behind the convolution.
  static void Fold(const Affine& affine, Tensor* W, Tensor* b) {
    if (const Node* norm = affine.batch_norm) {
      const std::vector<Tensor>& in = norm->inputs;
      const double epsilon = norm->SpecAs<BatchNormForwardSpec>()->epsilon;
      const std::vector<Tensor> folded =
          FoldBatchNorm(*W, *b, in[kScale], in[kBias], in[kMean], in[kVar], epsilon);
      *W = folded[0];
      *b = folded[1];
      return;
    }
    const Tensor& channels = affine.channels;
    if (affine.op == BinaryOp::kMul) {
      Shape filters = Shape::Filled(W->rank(), 1);
      filters[0] = channels.shape(0);
      *W = Binary(affine.op, *W, channels.Reshape(filters));
    }
    if (!b->empty())
      *b = Binary(affine.op, *b, channels);
    else if (affine.op == BinaryOp::kAdd)
      *b = channels;
  }

  static Tensor Apply(const Activation& activation, const Tensor& x) {
    if (!activation) return x;
    return Unary(formula::FunctionOf(activation.kind), x, activation.low, activation.high);
  }

  /// The end of a chain, from the result of its convolution.
  static Tensor Activated(const Chain& chain, const ConvSpec& spec, const Tensor& y) {
    return spec.activation ? y : Apply(chain.activation, y);
  }

  /// The tensor that replaces `t`, in any layout; `t` itself if nothing does.
  Tensor Newest(const Tensor& t) {
    const auto found = instead_.find(t.block().get());
    if (found == instead_.end()) return t;
    const Tensor& now = found->second->front();
    return IsWhole(t) && t.shape() == now.shape() ? now : Present(t);
  }

  /// The same in the layout of `t`. May record a reorder, once for each layout.
  Tensor Present(const Tensor& t) {
    const auto found = t.empty() ? instead_.end() : instead_.find(t.block().get());
    if (found == instead_.end()) return t;
    Versions& versions = *found->second;
    for (const Tensor& each : versions)
      if (SameLayout(each.layout(), t.layout())) return t.On(each.block());
    versions.push_back(versions.front().ToLayout(t.layout()));
    return t.On(versions.back().block());
  }

  /// Whether another tensor may take the place of `t`. What is written again, in place, stays.
  bool Moves(const Tensor& t) const { return uses_.IsTemporary(t) && uses_.writers(t).size() == 1; }

  /// Whether `node` reorders a tensor that others replace. Then these replace its result, too.
  bool Dissolves(const Node& node) {
    if (!IsReorder(node) || !Moves(node.outputs[0]) || !IsWhole(node.inputs[0])) return false;
    const auto found = instead_.find(node.inputs[0].block().get());
    if (found == instead_.end()) return false;
    instead_[node.outputs[0].block().get()] = found->second;
    return true;
  }

  /// Keeps the node, on the tensors that replace its inputs.
  void Keep(const Node& node) {
    if (Dissolves(node)) return;
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
  /// What replaces blocks: the same tensor in several layouts.
  using Versions = std::vector<Tensor>;
  std::unordered_map<const Block*, std::shared_ptr<Versions>> instead_;
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

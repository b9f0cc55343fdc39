// Grouped convolutions whose groups have fewer channels than a vector, such as 8 to 16 ones.
// For these oneDNN takes shorter vectors, and images in shorter blocks, which the convolutions
// beside it then have to read. Here as many groups are joined as fill a vector. An output channel
// has zeros in the filter for the channels of the other groups. That costs multiplications, but
// these layers have few. Groups of 1, 2, 4 and 8 channels on both sides are taken by the depthwise
// kernels before, which have no such zeros, where they have loops for the filter.
//
// Zero times infinity is NaN, so a value that is not finite also reaches the results of the groups
// that are joined with its own. Strict mode therefore joins none.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "backend/onednn/engine.h"
#include "backend/onednn/inner_convolution.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::onednn {
namespace {

/// More would mostly multiply zeros.
constexpr int64_t kMostJoined = 8;

/// How many groups have whole vectors of channels together, on both sides; 0: there is no such
/// number.
int64_t GroupsToJoin(const Recorder& r) {
  const int64_t lanes = BlockedChannels();
  const int64_t in = r.in_channels / r.group, out = r.out_channels / r.group;
  if (AllowedInstructionSet() < InstructionSet::kAvx2 || std::min(in, out) >= lanes) return 0;
  if (in == 1 && out == 1) return 0;
  for (int64_t joined = 2; joined <= kMostJoined; ++joined)
    if (r.group % joined == 0 && joined * in % lanes == 0 && joined * out % lanes == 0)
      return joined;
  return 0;
}

ConvSpec Joined(const ConvSpec& spec) {
  const int64_t joined = GroupsToJoin(spec.geometry);
  ConvSpec wide = spec;
  wide.geometry.group /= joined;
  wide.geometry.col_height *= joined;
  return wide;
}

class JoinedPlan final : public Plan {
 public:
  JoinedPlan(const ConvSpec& spec, PlanPtr plan)
      : Plan("joined groups"),
        joined_(GroupsToJoin(spec.geometry)),
        filters_(spec.geometry.out_channels),
        filters_of_group_(spec.geometry.out_channels / spec.geometry.group),
        filter_bytes_(static_cast<size_t>(spec.geometry.col_height) * SizeOf(spec.dtype)),
        inner_(Joined(spec), std::move(plan)) {}

  std::string Describe() const override {
    return "joined groups, " + std::to_string(joined_) + " at a time (" + inner_.plan().Describe() +
           ")";
  }
  LayoutPtr input_layout(size_t i) const override {
    return !inner_.gradient() && i == 1 ? nullptr : inner_.plan().input_layout(i);
  }
  LayoutPtr output_layout(size_t i) const override {
    return inner_.gradient() && i == 0 ? nullptr : inner_.plan().output_layout(i);
  }
  int inplace_input(size_t i) const override { return inner_.plan().inplace_input(i); }
  size_t workspace_bytes() const override { return inner_.workspace_bytes(); }
  size_t bytes() const override { return sizeof(*this) + inner_.plan().bytes(); }

  void Run(const Execution& execution) const override {
    inner_.Run(
        execution, {execution.inputs.begin(), execution.inputs.end()},
        {execution.outputs.begin(), execution.outputs.end()}, execution.workspace,
        [&](char* joined) {
          std::memset(joined, 0, inner_.plain_bytes());
          for (int64_t i = 0; i < filters_; ++i)
            std::memcpy(joined + Place(i), execution.in<char>(1) + Row(i), filter_bytes_);
        },
        [&](const char* joined) {
          for (int64_t i = 0; i < filters_; ++i)
            std::memcpy(execution.out<char>(0) + Row(i), joined + Place(i), filter_bytes_);
        });
  }

 private:
  /// Offsets of filter i: in W, and in the filters of joined groups.
  size_t Row(int64_t i) const { return static_cast<size_t>(i) * filter_bytes_; }
  size_t Place(int64_t i) const {
    const int64_t group = i / filters_of_group_;
    return Row(i * joined_ + group % joined_);
  }

  const int64_t joined_, filters_, filters_of_group_;
  const size_t filter_bytes_;
  const InnerConvolution inner_;
};

std::string Refuses(const ConvSpec& spec) {
  if (spec.pass == ConvPass::kBackwardB) return "groups are joined for the other passes";
  if (spec.plain) return "groups are joined in blocked and channels-last images";
  if (spec.geometry.group == 1) return "there is one group";
  if (IsStrict()) return "NaN would spread to other groups, which strict mode does not allow";
  if (GroupsToJoin(spec.geometry) == 0)
    return "groups of several channels are joined, where at most 8 of them fill a vector, on CPUs "
           "with AVX2";
  return "";
}

PlanOrReason Make(const ConvSpec& spec) {
  const PlanOrReason made = InnerConvolution::Make(Joined(spec));
  if (!made) return made;
  return std::make_shared<JoinedPlan>(spec, made.plan());
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<ConvSpec>(DeviceKind::kCpu, "joined groups",
                     {.refuses = Refuses, .make = Make, .priority = 1});
}

}  // namespace singa::onednn

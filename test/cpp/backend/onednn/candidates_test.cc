// All candidates of convolutions compute the same values, and can be found by their names.

#include <set>

#include "core/layout/channel_lanes.h"
#include "model/dispatch/dispatch.h"
#include "model/dispatch/select.h"
#include "model/operation/conv/conv_naive.h"
#include "model/operation/conv/spec.h"
#include "singa/dispatch/tuning.h"
#include "singa/operation/conv.h"

namespace singa::test {
namespace {

std::vector<Candidate> AllWays(const ConvSpec& spec) {
  std::vector<Candidate> all;
  for (const Kernel& kernel : KernelsOf<ConvSpec>())
    for (Candidate& candidate : kernel.Candidates(spec)) {
      EXPECT_TRUE(candidate.name.starts_with(kernel.implementation)) << candidate.name;
      all.push_back(std::move(candidate));
    }
  return all;
}

Tensor Result(const ConvSpec& spec, const Plan& plan, const std::vector<Tensor>& inputs,
              const Shape& shape) {
  std::vector<Tensor> wanted, results = {NewOutput(plan, 0, shape, DefaultDevice(), spec.dtype)};
  for (const Tensor& input : inputs) wanted.push_back(InPlanLayout(plan, wanted.size(), input));
  DefaultDevice()->Exec(spec.op(), PlanPtr(&plan, [](const Plan*) {}), wanted, results);
  return results[0];
}

TEST(Candidates, EveryWayOfAConvolutionIsTheDefinition) {
  Random random(7);
  size_t ways = 0;
  for (const Shape& x_shape : {Shape{2, 16, 9, 8}, Shape{1, 20, 7, 6}, Shape{2, 3, 12, 11}}) {
    for (const int64_t kernel : {1, 3}) {
      for (const bool blocked : {false, true}) {
        auto spec = CurrentSpec<ConvSpec>();
        spec.geometry =
            ConvRecorder("Conv", x_shape, {kernel, kernel}, {1, 1}, {1, 1}, 32, false, {1, 1}, 1);
        const Recorder& g = spec.geometry;
        const Shape y_shape = g.output_shape();
        const Tensor x = RandomTensor(random, x_shape), w = RandomTensor(random, g.weight_shape());
        const Tensor dy = RandomTensor(random, y_shape);
        const PassSums definition(g, x, w, Tensor(), dy);
        const auto layout = [&](const Shape& shape) {
          return LaneLayout(shape, kFloat32, LaneTag::kNhwc);
        };
        if (blocked) spec.x_layout = layout(x_shape);
        const auto check = [&](ConvPass pass, const std::vector<Tensor>& inputs, const Shape& shape,
                               const Sums& sums) {
          spec.pass = pass;
          if (blocked && pass != ConvPass::kForward) spec.dy_layout = layout(y_shape);
          std::set<std::string> names;
          for (const Candidate& candidate : AllWays(spec)) {
            SCOPED_TRACE(std::string(spec.op()) + " by " + candidate.name);
            EXPECT_TRUE(names.insert(candidate.name).second) << "twice";
            const PlanPtr plan = candidate.make();
            // The name contains implementation and layouts, by which a later process finds it.
            EXPECT_TRUE(candidate.name.starts_with(plan->implementation()));
            ExpectSums(Result(spec, *plan, inputs, shape), shape, sums, candidate.name);
            ++ways;
          }
          const PlanPtr by_default = FindKernel<ConvSpec>("onednn")->Make(spec).plan();
          const auto first = FindKernel<ConvSpec>("onednn")->Candidates(spec)[0].make();
          EXPECT_EQ(first->Describe(), by_default->Describe());
          EXPECT_TRUE(SameLayout(first->output_layout(0), by_default->output_layout(0)));
        };
        check(ConvPass::kForward, {x, w}, y_shape, definition.y);
        check(ConvPass::kBackwardX, {dy, w}, x_shape, definition.dx);
        check(ConvPass::kBackwardW, {dy, x}, g.weight_shape(), definition.dw);
      }
    }
  }
  EXPECT_GE(ways, 36u * 3) << "fewer than three ways each";
}

TEST(Candidates, AChoiceNamesLayoutsToo) {
  ConvSpec spec;
  spec.geometry = ConvRecorder("Conv", {2, 32, 9, 8}, {3, 3}, {1, 1}, {1, 1}, 32, false, {1, 1}, 1);
  const std::string signature = SignatureText(*DefaultDevice(), spec, PlanOptions{});
  std::set<std::string> layouts;
  for (const Candidate& candidate : AllWays(spec)) {
    AddTuningChoices({{signature, candidate.name, TuningMachine(), ""}});
    const PlanPtr plan = FindPlan(*DefaultDevice(), spec);
    EXPECT_EQ(plan->Describe(), candidate.make()->Describe()) << candidate.name;
    const std::string layout = LayoutName(plan->output_layout(0));
    if (plan->implementation() == std::string("onednn")) {
      EXPECT_TRUE(candidate.name.ends_with(layout)) << candidate.name;
    }
    layouts.insert(layout);
  }
  ClearTuningChoices();
  EXPECT_GE(layouts.size(), 3u) << "plain, channels-last, blocked";
}

}  // namespace
}  // namespace singa::test

// The problems that cuDNN is asked for, and which of its engines may be used.

#include "backend/cuda/cudnn/conv_problem.h"

#include "backend/cuda/cudnn/emulated_cudnn.h"
#include "backend/cuda/cudnn/engines.h"

namespace singa::cudnn {
namespace {

using ConvProblemTest = EmulatedCudnn;

ConvSpec SpecOf(ConvPass pass, DType dtype = kFloat32) {
  ConvSpec spec;
  spec.pass = pass;
  spec.dtype = dtype;
  spec.geometry =
      ConvRecorder("test", {4, 6, 9, 8}, {3, 5}, {2, 1}, {0, 1, 2, 3}, 10, true, {1, 2}, 2);
  return spec;
}

std::vector<std::string> Names(const std::vector<Engine>& engines) {
  std::vector<std::string> names;
  for (const Engine& engine : engines) names.push_back(engine.name);
  return names;
}

TEST_F(ConvProblemTest, SaysSizesAndDistances) {
  const ConvSpec spec = SpecOf(ConvPass::kForward);
  const ConvProblem p = ProblemOf(spec);
  EXPECT_EQ(p.x.dims, (std::array<int64_t, 4>{4, 6, 9, 8}));
  EXPECT_EQ(p.x.strides, (std::array<int64_t, 4>{6 * 9 * 8, 1, 8 * 6, 6}));
  EXPECT_EQ(p.w.dims, (std::array<int64_t, 4>{10, 3, 3, 5}));                // per group
  EXPECT_EQ(p.w.strides, (std::array<int64_t, 4>{3 * 3 * 5, 1, 5 * 3, 3}));  // KRSC
  EXPECT_EQ(p.y.dims, (std::array<int64_t, 4>{4, 10, spec.geometry.conv_height(),
                                              spec.geometry.conv_width()}));
  EXPECT_EQ(p.stride, (std::array<int64_t, 2>{2, 1}));
  EXPECT_EQ(p.dilation, (std::array<int64_t, 2>{1, 2}));
  EXPECT_EQ(p.before, (std::array<int64_t, 2>{0, 1}));
  EXPECT_EQ(p.after, (std::array<int64_t, 2>{2, 3}));
  EXPECT_TRUE(p.bias);
  EXPECT_FALSE(p.add || p.relu);
}

TEST_F(ConvProblemTest, EpiloguesAreTheForwardPassOnly) {
  ConvSpec spec = SpecOf(ConvPass::kForward);
  spec.has_add = true;
  spec.activation = true;
  EXPECT_TRUE(ProblemOf(spec).bias && ProblemOf(spec).add && ProblemOf(spec).relu);
  EXPECT_FALSE(ProblemOf(SpecOf(ConvPass::kBackwardW)).fused());  // db is computed separately
}

TEST_F(ConvProblemTest, PlainImagesStayRowMajor) {
  ConvSpec spec = SpecOf(ConvPass::kForward);
  EXPECT_EQ(LayoutName(LayoutsOf(spec).x), "nhwc");
  EXPECT_EQ(LayoutName(LayoutsOf(spec).w), "nhwc");
  EXPECT_EQ(LayoutName(LayoutsOf(spec).y), "nhwc");
  spec.plain = true;
  const ConvLayouts plain = LayoutsOf(spec);
  EXPECT_TRUE(!plain.x && !plain.w && !plain.y);
  EXPECT_EQ(ProblemOf(spec).x.strides, (std::array<int64_t, 4>{6 * 9 * 8, 9 * 8, 8, 1}));
  EXPECT_EQ(ProblemOf(spec).w.strides, (std::array<int64_t, 4>{3 * 3 * 5, 3 * 5, 5, 1}));
}

TEST_F(ConvProblemTest, DepthwiseFiltersArePlainAlready) {
  ConvSpec spec = SpecOf(ConvPass::kForward);
  spec.geometry = ConvRecorder("test", {2, 6, 8, 8}, {3, 3}, {1, 1}, {1, 1}, 6, false, {1, 1}, 6);
  EXPECT_EQ(LayoutsOf(spec).w, nullptr);
  EXPECT_EQ(ProblemOf(spec).w.dims, (std::array<int64_t, 4>{6, 1, 3, 3}));
}

TEST_F(ConvProblemTest, Float32TakesTensorCoresOnlyWithTf32) {
  const auto without = Names(Permitted(emulated::Dnn().engines, kFloat32));
  EXPECT_EQ(without, (std::vector<std::string>{"eng5 k2=1", "eng5 k2=3", "eng4", "eng0"}));
  SetTf32(true);
  EXPECT_EQ(Names(Permitted(emulated::Dnn().engines, kFloat32)).front(), "eng7 k2=1");
  SetStrict(true);
  EXPECT_EQ(Names(Permitted(emulated::Dnn().engines, kFloat32)),
            (std::vector<std::string>{"eng5 k2=1", "eng5 k2=3", "eng0"}));
  EXPECT_EQ(Names(Permitted(emulated::Dnn().engines, kBFloat16)).front(), "eng7 k2=1");
}

TEST_F(ConvProblemTest, SumsInAnotherOrderEachTimeOnlyWhereAsked) {
  const auto has = [](const std::string& name) {
    const auto names = Names(Permitted(emulated::Dnn().engines, kFloat32));
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  EXPECT_FALSE(has("eng6"));
  SetDeterministic(false);
  EXPECT_TRUE(has("eng6"));
}

TEST_F(ConvProblemTest, StrictLeavesOutTransformsAndNarrowSums) {
  std::vector<Engine> engines = {{.name = "narrow", .rounds_sums = true},
                                 {.name = "winograd", .transforms = true},
                                 {.name = "rounded", .rounds_inputs = true},
                                 {.name = "plain"}};
  EXPECT_EQ(Names(Permitted(engines, kFloat16)),
            (std::vector<std::string>{"narrow", "winograd", "plain"}));
  SetStrict(true);
  EXPECT_EQ(Names(Permitted(engines, kFloat16)), (std::vector<std::string>{"plain"}));
}

TEST_F(ConvProblemTest, RefusalsSayWhy) {
  EXPECT_EQ(RefusesConv(SpecOf(ConvPass::kForward, kBFloat16)), "");
  EXPECT_NE(RefusesConv(SpecOf(ConvPass::kForward, kFloat64)).find("float64"), std::string::npos);
  ConvSpec large = SpecOf(ConvPass::kForward);
  large.geometry =
      ConvRecorder("test", {1 << 12, 1 << 10, 32, 32}, {1, 1}, {1, 1}, {0, 0}, 8, false, {1, 1}, 1);
  EXPECT_NE(RefusesConv(large).find("2^31"), std::string::npos);
  emulated::Dnn().problem = "libcudnn.so.9 cannot be loaded; `pip install nvidia-cudnn-cu13`";
  EXPECT_NE(RefusesConv(SpecOf(ConvPass::kForward)).find("pip install nvidia-cudnn-cu13"),
            std::string::npos);
}

}  // namespace
}  // namespace singa::cudnn

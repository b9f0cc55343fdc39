// Kernels of oneDNN's that are wrong for a call are never chosen for it.

#include "backend/onednn/defects.h"

#include <gtest/gtest.h>

#include "backend/onednn/engine.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/dispatch.h"
#include "model/dispatch/select.h"
#include "model/operation/conv/spec.h"
#include "singa/dispatch/tuning.h"

namespace singa {
namespace {

ConvSpec SpecOf(ConvPass pass, const Shape& x, std::vector<int64_t> kernel,
                std::vector<int64_t> stride, std::vector<int64_t> padding, int64_t out,
                std::vector<int64_t> dilation, int64_t group = 1) {
  ConvSpec spec;
  spec.pass = pass;
  spec.dtype = kBFloat16;
  spec.geometry = ConvRecorder("Conv", x, kernel, stride, padding, out, false, dilation, group);
  return spec;
}
ConvSpec Pointwise(ConvPass pass, int64_t in, int64_t out) {
  return SpecOf(pass, {2, in, 9, 10}, {1, 1}, {1, 1}, {0, 0}, out, {1, 1});
}

bool IsWrong(const char* implementation, const ConvSpec& spec, LaneTag tag = LaneTag::kNhwc,
             bool transposed = false) {
  const Shape x = spec.geometry.input_shape(), y = spec.geometry.output_shape();
  const auto layout = [&](const Shape& shape) { return LaneLayout(shape, spec.dtype, tag); };
  return onednn::DefectOf({implementation, transposed, spec, transposed ? layout(y) : layout(x),
                           transposed ? layout(x) : layout(y)}) != nullptr;
}

TEST(Defects, PointwiseSumsOfOddChannels) {
  constexpr const char* kName = "jit_bf16_1x1:avx512_core_bf16";
  for (const int64_t in : {20, 21})
    for (const int64_t out : {32, 33}) {
      EXPECT_EQ(IsWrong(kName, Pointwise(ConvPass::kForward, in, out)), in == 21);
      EXPECT_EQ(IsWrong(kName, Pointwise(ConvPass::kBackwardX, in, out)), out == 33);
      EXPECT_FALSE(IsWrong(kName, Pointwise(ConvPass::kBackwardW, in, out)));
      // The other way round, and within another name.
      const auto transposed = [&](ConvPass pass) {
        return IsWrong("conv:any+jit_bf16_1x1:avx512_core_bf16", Pointwise(pass, in, out),
                       LaneTag::kNhwc, true);
      };
      EXPECT_EQ(transposed(ConvPass::kForward), out == 33);
      EXPECT_EQ(transposed(ConvPass::kBackwardX), in == 21);
    }
  const ConvSpec odd = Pointwise(ConvPass::kForward, 21, 16);
  EXPECT_FALSE(IsWrong(kName, odd, LaneTag::kNChw16c)) << "blocks are padded";
  EXPECT_FALSE(IsWrong("brgconv_1x1:avx512_core_bf16", odd));
}

TEST(Defects, FilterGradientsThatWriteBehindTheirBuffer) {
  const auto wrong = [](const char* name, int64_t channels, std::vector<int64_t> stride,
                        LaneTag tag = LaneTag::kNhwc, ConvPass pass = ConvPass::kBackwardW) {
    return IsWrong(name, SpecOf(pass, {2, channels, 6, 6}, {1, 1}, stride, {0, 0}, 16, {1, 1}),
                   tag);
  };
  for (const char* name : {"jit_1x1:avx2", "conv:any+jit_1x1:avx2"}) {
    EXPECT_TRUE(wrong(name, 1, {1, 2})) << "row-major images of a channel are channels-last, too";
    EXPECT_TRUE(wrong(name, 7, {2, 1}));
    EXPECT_FALSE(wrong(name, 8, {2, 2}));
    EXPECT_FALSE(wrong(name, 7, {1, 1}));
    EXPECT_FALSE(wrong(name, 7, {2, 2}, LaneTag::kNChw8c));
    EXPECT_FALSE(wrong(name, 7, {2, 2}, LaneTag::kNhwc, ConvPass::kForward));
  }
  for (const char* name : {"jit_1x1:avx512_core", "jit_bf16_1x1:avx512_core_bf16"}) {
    EXPECT_TRUE(wrong(name, 15, {2, 2}));
    EXPECT_FALSE(wrong(name, 16, {2, 2}));
  }
  EXPECT_FALSE(wrong("brgconv_1x1:avx2", 7, {2, 2}));
  // Of a transposed convolution the larger images are the results.
  const ConvSpec spec =
      SpecOf(ConvPass::kBackwardW, {2, 16, 6, 6}, {1, 1}, {2, 2}, {0, 0}, 7, {1, 1});
  EXPECT_TRUE(IsWrong("conv:any+jit_1x1:avx2", spec, LaneTag::kNhwc, true));
  EXPECT_FALSE(IsWrong("jit_1x1:avx2", spec));
}

TEST(Defects, FilterGradientsThatReadUnwrittenMemory) {
  const auto wrong = [](const Shape& x, std::vector<int64_t> kernel, std::vector<int64_t> stride,
                        std::vector<int64_t> padding, std::vector<int64_t> dilation) {
    const ConvSpec spec = SpecOf(ConvPass::kBackwardW, x, kernel, stride, padding, 32, dilation);
    EXPECT_FALSE(IsWrong("x64:gemm:jit", spec));
    return IsWrong("jit_bf16:avx512_core_bf16", spec);
  };
  EXPECT_FALSE(wrong({2, 16, 9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}));
  EXPECT_TRUE(wrong({2, 16, 3, 2}, {3, 3}, {3, 3}, {1, 1}, {1, 1})) << "narrower than the stride";
  EXPECT_TRUE(wrong({2, 16, 2, 9}, {7, 7}, {1, 1}, {3, 3}, {1, 1})) << "lower than the padding";
  EXPECT_TRUE(wrong({2, 16, 9, 40}, {3, 3}, {1, 1}, {2, 2}, {2, 2})) << "dilated rows";
  EXPECT_FALSE(wrong({2, 16, 9, 40}, {3, 3}, {1, 1}, {1, 2}, {1, 2}));
  EXPECT_TRUE(wrong({2, 16, 4, 8, 8}, {5, 3, 3}, {1, 1, 1}, {2, 1, 1}, {1, 1, 1})) << "flat";
  EXPECT_FALSE(wrong({2, 16, 5, 8, 8}, {5, 3, 3}, {1, 1, 1}, {2, 1, 1}, {1, 1, 1}));
}

TEST(Defects, TilesThatJoinColumns) {
  constexpr const char* kName = "brgconv:avx512_core_amx";
  const auto spec = [](ConvPass pass, int64_t channels, int64_t width, int64_t kernel,
                       int64_t stride, int64_t padding) {
    return SpecOf(pass, {2, channels, 8, width}, {2, kernel}, {2, stride}, {0, padding}, 20,
                  {1, 1});
  };
  constexpr ConvPass kForward = ConvPass::kForward;
  EXPECT_TRUE(IsWrong(kName, spec(kForward, 48, 16, 2, 2, 0)));
  EXPECT_TRUE(IsWrong(kName, spec(kForward, 16, 16, 4, 4, 0)));
  EXPECT_FALSE(IsWrong(kName, spec(kForward, 64, 16, 2, 2, 0))) << "whole tiles";
  EXPECT_FALSE(IsWrong(kName, spec(kForward, 40, 16, 2, 2, 0))) << "no tiles";
  EXPECT_FALSE(IsWrong(kName, spec(kForward, 48, 17, 2, 2, 0))) << "a column is left";
  EXPECT_FALSE(IsWrong(kName, spec(kForward, 48, 16, 2, 2, 1))) << "padding";
  EXPECT_FALSE(IsWrong(kName, spec(ConvPass::kBackwardW, 48, 16, 2, 2, 0)));
  EXPECT_FALSE(IsWrong("jit:avx512_core_amx", spec(kForward, 48, 16, 2, 2, 0)));
  EXPECT_TRUE(IsWrong("conv:any+brgconv:avx512_core_amx",
                      spec(ConvPass::kBackwardX, 48, 16, 2, 2, 0), LaneTag::kNhwc, true));
}

TEST(Defects, TilesOfColumnsThatSeeOnlyPadding) {
  const auto wrong = [](int64_t width, int64_t kernel, int64_t stride, int64_t padding,
                        ConvPass pass = ConvPass::kBackwardW) {
    const ConvSpec spec =
        SpecOf(pass, {2, 16, 9, width}, {3, kernel}, {1, stride}, {1, padding}, 32, {1, 1});
    EXPECT_EQ(IsWrong("jit:avx512_core_amx", spec), pass == ConvPass::kBackwardW);
    return IsWrong("conv:any+brgconv_bwd_w:avx512_core_amx", spec);
  };
  EXPECT_TRUE(wrong(1, 3, 2, 1)) << "narrower than the stride";
  EXPECT_TRUE(wrong(2, 7, 1, 3)) << "columns 0 and 6 meet nothing";
  EXPECT_FALSE(wrong(3, 3, 2, 1));
  EXPECT_FALSE(wrong(4, 7, 1, 3));
  EXPECT_FALSE(wrong(1, 3, 2, 1, ConvPass::kForward));
}

TEST(Defects, TilesCrashWhereWindowsSeeNoElement) {
  const auto defect = [](int64_t height, int64_t padding) {
    const ConvSpec spec =
        SpecOf(ConvPass::kForward, {2, 16, height, 9}, {2, 1}, {1, 1}, {padding, 0}, 20, {3, 1});
    return onednn::DefectOf({"brg_conv:avx512_core_amx", false, spec, nullptr, nullptr});
  };
  ASSERT_TRUE(defect(1, 2)) << "of one row, windows see rows -2 and 1";
  EXPECT_TRUE(defect(1, 2)->crashes);
  EXPECT_FALSE(defect(1, 3)) << "rows -3 and 0";
  EXPECT_FALSE(defect(2, 2));
}

TEST(Defects, SumsThatCrashAreNotListed) {
  const auto defect = [](int64_t channels, bool has_add, const char* implementation,
                         LaneTag tag = LaneTag::kNhwc) {
    ConvSpec spec = SpecOf(ConvPass::kForward, {3, channels, 9, 9}, {3, 3}, {1, 1}, {1, 1},
                           channels, {1, 1}, channels);
    spec.has_add = has_add;
    const LayoutPtr layout = LaneLayout(spec.geometry.input_shape(), kFloat32, tag);
    return onednn::DefectOf({implementation, false, spec, layout, layout});
  };
  ASSERT_TRUE(defect(65, true, "jit_dw:sse41"));
  EXPECT_TRUE(defect(65, true, "jit_dw:sse41")->crashes);
  EXPECT_FALSE(defect(64, true, "jit_dw:sse41"));
  EXPECT_FALSE(defect(65, false, "jit_dw:sse41"));
  EXPECT_FALSE(defect(65, true, "jit_dw:sse41", LaneTag::kNChw8c)) << "blocks are padded";
  EXPECT_FALSE(defect(65, true, "jit_dw:avx2"));
}

TEST(Defects, AreListedButNeverChosen) {
  if (!onednn::RefusesFloat(kBFloat16).empty()) GTEST_SKIP() << "no bfloat16 by oneDNN here";
  ConvSpec spec = Pointwise(ConvPass::kForward, 21, 16);
  spec.x_layout = LaneLayout(spec.geometry.input_shape(), kBFloat16, LaneTag::kNhwc);
  const Kernel* kernel = FindKernel<ConvSpec>("onednn");
  for (const Candidate& candidate : kernel->Candidates(spec)) EXPECT_EQ(candidate.defect, "");
  std::vector<std::string> defects;
  for (const Candidate& candidate : kernel->AllCandidates(spec))
    if (!candidate.defect.empty()) defects.push_back(candidate.name);
  if (defects.empty()) GTEST_SKIP() << "oneDNN offers none of the defective kernels here";
  for (const std::string& name : defects) {
    const std::string signature = SignatureText(*DefaultDevice(), spec, PlanOptions{});
    AddTuningChoices({{signature, name, TuningMachine(), ""}});
    const PlanPtr plan = FindPlan(*DefaultDevice(), spec);
    EXPECT_EQ(name.find(plan->Describe()), std::string::npos) << name;
    ClearTuningChoices();
  }
}

}  // namespace
}  // namespace singa

// Engines of cuDNN whose results are wrong are never chosen.

#include "backend/cuda/cudnn/defects.h"

#include <gtest/gtest.h>

#include "backend/cuda/cudnn/engines.h"

namespace singa::cudnn {
namespace {

ConvProblem Problem(ConvPass pass, DType dtype) {
  ConvProblem p;
  p.pass = pass;
  p.dtype = dtype;
  p.x.dims = p.y.dims = {2, 16, 12, 12};
  p.w.dims = {16, 16, 3, 3};
  p.before = p.after = {1, 1};
  return p;
}

TEST(CudnnDefects, UnevenPadding) {
  ConvProblem weights = Problem(ConvPass::kBackwardW, kFloat32);
  ConvProblem images = Problem(ConvPass::kBackwardX, kFloat32);
  EXPECT_FALSE(DefectOf(weights, "eng1 k2=6 k3=0"));
  EXPECT_FALSE(DefectOf(images, "eng50"));
  weights.after = images.after = {1, 0};
  for (const char* engine : {"eng1 k2=6 k3=0", "eng17 k25=0", "eng18 k11=0"})
    EXPECT_TRUE(DefectOf(weights, engine)) << engine;
  EXPECT_TRUE(DefectOf(images, "eng50"));
  for (const char* engine : {"eng0", "eng10", "eng67 k2=12", "eng50"})
    EXPECT_FALSE(DefectOf(weights, engine)) << engine;
  EXPECT_FALSE(DefectOf(images, "eng5"));
}

TEST(CudnnDefects, SumsInSixteenBits) {
  ConvProblem p = Problem(ConvPass::kBackwardW, kBFloat16);
  EXPECT_FALSE(DefectOf(p, "eng47 k0=1 k2=5"));
  EXPECT_TRUE(DefectOf(p, "eng47 k0=3 k2=5"));
  EXPECT_FALSE(DefectOf(p, "eng33 k0=61 k2=7"));
  EXPECT_FALSE(DefectOf(p, "eng62 k25=2"));
  p.w.dims[1] = 31;
  EXPECT_TRUE(DefectOf(p, "eng62 k25=1"));
  p.dtype = kFloat32;
  EXPECT_FALSE(DefectOf(p, "eng47 k0=3 k2=5"));
}

TEST(CudnnDefects, WinogradOfLargeFiltersAndSmallImages) {
  ConvProblem p = Problem(ConvPass::kBackwardW, kFloat32);
  EXPECT_FALSE(DefectOf(p, "eng17 k25=0"));
  p.w.dims[3] = 5;
  EXPECT_TRUE(DefectOf(p, "eng17 k25=0"));
  p.w.dims[3] = 3;
  p.y.dims[2] = 1;
  EXPECT_TRUE(DefectOf(p, "eng17 k25=0"));
}

TEST(CudnnDefects, WhatComesAfterTheConvolution) {
  ConvProblem p = Problem(ConvPass::kForward, kBFloat16);
  EXPECT_FALSE(DefectOf(p, "eng39 k25=2"));
  p.bias = true;
  EXPECT_TRUE(DefectOf(p, "eng39 k25=2"));
  EXPECT_FALSE(DefectOf(p, "eng62 k25=2"));
}

TEST(CudnnDefects, AreMeasuredByNobodyAndChosenByNobody) {
  const std::vector<Engine> engines = {{.name = "eng1", .defect = "is wrong"}, {.name = "eng2"}};
  std::vector<std::string> made;
  const auto make = [&](const Engine& engine) -> PlanPtr {
    made.push_back(engine.name);
    return nullptr;
  };
  FirstPlan(engines, make);
  EXPECT_EQ(made, std::vector<std::string>{"eng2"});
  EXPECT_EQ(CandidatesOf(engines, 2, make).at(0).defect, "is wrong");
  EXPECT_TRUE(CandidatesOf(engines, 2, make).at(1).defect.empty());
  EXPECT_NE(FirstPlan({engines[0]}, make).reason().find("eng1 is wrong"), std::string::npos);
}

}  // namespace
}  // namespace singa::cudnn

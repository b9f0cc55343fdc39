#include "singa/compat.h"

#include "support.h"

namespace singa::test {
namespace {

struct Example {
  Random random{1};
  Tensor x = RandomTensor(random, {2, 3, 6, 6}), w = RandomTensor(random, {4, 3, 3, 3});
  Tensor b = RandomTensor(random, {4}), dy = RandomTensor(random, {2, 4, 6, 6});
  Recorder recorder = SetupRecorder(x, {3, 3}, {1, 1}, {1, 1}, 3, 4, true);
  ConvHandle handle{x, {3, 3}, {1, 1}, {1, 1}, 3, 4};
};

TEST(Compat, ConvolutionInBothForms) {
  const Example e;
  const std::vector<Tensor> expected = ConvBackward(e.dy, e.x, e.w, e.handle, true, true, true);
  const Vector y = Values(ConvForward(e.x, e.w, e.b, e.handle));
  EXPECT_EQ(Values(CpuConvForward(e.x, e.w, e.b, e.handle)), y);
  EXPECT_EQ(Values(CpuConvForward(e.x, e.w, e.b, e.recorder)), y);
  EXPECT_NE(Values(CpuConvForward(e.x, e.w, Tensor(), e.recorder)), y);
  EXPECT_EQ(Values(CpuConvBackwardx(e.dy, e.w, e.x, e.handle)), Values(expected[0]));
  EXPECT_EQ(Values(CpuConvBackwardx(e.dy, e.w, e.x, e.recorder)), Values(expected[0]));
  const Vector dw = Values(ConvBackwardW(e.dy, e.x, e.handle));
  EXPECT_EQ(Values(CpuConvBackwardW(e.dy, e.x, e.w, e.handle)), dw);
  EXPECT_EQ(Values(CpuConvBackwardW(e.dy, e.x, e.w, e.recorder)), dw);
  const Vector db = Values(ConvBackwardB(e.dy, e.handle));
  EXPECT_EQ(Values(CpuConvBackwardb(e.dy, e.b, e.handle)), db);
  EXPECT_EQ(Values(CpuConvBackwardb(e.dy, Tensor(), e.recorder)), db);
  EXPECT_ERROR(std::invalid_argument, "[CpuConvBackwardW] W must have shape (4, 3, 3, 3)",
               CpuConvBackwardW(e.dy, e.x, e.b, e.handle));
  EXPECT_ERROR(std::invalid_argument, "[CpuConvBackwardb] b must have shape (4,)",
               CpuConvBackwardb(e.dy, e.w, e.handle));
}

TEST(Compat, Pooling) {
  const Tensor x = FromValues({1, 1, 2, 4}, {1, 5, 2, 0, 3, 4, 7, 6});
  const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
  const Tensor y = CpuPoolingForward(handle, x);
  EXPECT_EQ(Values(y), (Vector{5, 7}));
  EXPECT_EQ(Values(CpuPoolingBackward(handle, FromValues({1, 1, 1, 2}, {10, 20}), x, y)),
            (Vector{0, 10, 0, 0, 0, 0, 20, 0}));
}

TEST(Compat, BatchNormOrders) {
  Random random(2);
  const Tensor x = RandomTensor(random, {3, 2, 4, 4}), dy = RandomTensor(random, {3, 2, 4, 4});
  const Tensor scale = FromValues({2}, {1.5, -2}), bias = FromValues({2}, {0.5, 3});
  const BatchNormHandle handle(0.9, x);
  auto statistics = [] { return std::vector<Tensor>{Full({2}, 0), Full({2}, 1)}; };
  const std::vector<Tensor> mine = statistics(), theirs = statistics();
  const std::vector<Tensor> a = BatchNormForwardTraining(handle, x, scale, bias, mine[0], mine[1]);
  const std::vector<Tensor> b =
      CpuBatchNormForwardTraining(handle, x, scale, bias, theirs[0], theirs[1]);
  ASSERT_EQ(b.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Values(b[i]), Values(a[i]));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Values(theirs[i]), Values(mine[i]));
  EXPECT_EQ(Values(CpuBatchNormForwardInference(handle, x, scale, bias, theirs[0], theirs[1])),
            Values(BatchNormForwardInference(handle, x, scale, bias, mine[0], mine[1])));
  const std::vector<Tensor> expected = BatchNormBackward(handle, dy, x, scale, a[1], a[2]);
  const std::vector<Tensor> gradients =
      CpuBatchNormBackwardx(handle, b[0], dy, x, scale, bias, b[1], b[2]);
  ASSERT_EQ(gradients.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Values(gradients[i]), Values(expected[i]));
}

TEST(Compat, GpuNamesSayHowToGetThere) {
  const Example e;
  EXPECT_ERROR(Unavailable, "[InitCudnnConvHandles] input is on cpu",
               InitCudnnConvHandles(e.x, e.recorder));
  EXPECT_ERROR(Unavailable, "device.create_cuda_gpu()",
               CudnnConvHandle(e.x, {3, 3}, {1, 1}, {1, 1}, 3, 4));
  EXPECT_ERROR(Unavailable, "[CudnnPoolingHandle] input is on cpu",
               CudnnPoolingHandle(e.x, {2, 2}, {2, 2}, {0, 0}));
  EXPECT_ERROR(Unavailable, "[CudnnBatchNormHandle] input is on cpu",
               CudnnBatchNormHandle(0.9, e.x));
}

}  // namespace
}  // namespace singa::test

// Recurrent networks on the emulated GPU against the CPU's reference. Loops on the host emulate
// cuDNN; for most sizes, their weights have a different order.

#include "singa/operation/rnn.h"

#include <algorithm>

#include "backend/cuda/cudnn/emulated_cudnn.h"
#include "emulated_gpu/queue.h"
#include "model/dispatch/kernel.h"
#include "model/operation/rnn/rnn_case.h"
#include "model/operation/rnn/spec.h"
#include "support.h"

namespace singa::cudnn {
namespace {

using namespace test;

Tensor To(const DevicePtr& device, const Tensor& t) { return t.empty() ? t : t.ToDevice(device); }

/// A network and its arguments on one device.
struct Network {
  RnnHandle handle;
  Tensor x, hx, cx, w, seq_lengths;
  Tensor dy, dhy, dcy;

  Network(Random& random, const RnnCase& c, DType dtype, double dropout = 0)
      : handle(Tensor({c.steps, c.batch, c.input}, nullptr, dtype), c.hidden, c.mode, c.layers,
               c.bias, dropout, c.directions == 2),
        x(RandomTensor(random, {c.steps, c.batch, c.input}, dtype)),
        w(RandomTensor(random, {handle.weights_size}, dtype, -0.8, 0.8)) {
    const bool lstm = c.mode == RnnMode::kLstm;
    const Shape state{c.layers * c.directions, c.batch, c.hidden};
    const Shape output{c.steps, c.batch, c.directions * c.hidden};
    if (c.states) hx = RandomTensor(random, state, dtype);
    if (c.states && lstm) cx = RandomTensor(random, state, dtype);
    if (random.Int(0, 3) > 0) dy = RandomTensor(random, output, dtype);
    if (dy.empty() || random.Coin()) dhy = RandomTensor(random, state, dtype);
    if (lstm && random.Coin()) dcy = RandomTensor(random, state, dtype);
    if (!c.lengths) return;
    Vector lengths;
    for (int64_t n = 0; n < c.batch; ++n)
      lengths.push_back(static_cast<double>(random.Int(0, c.steps)));
    seq_lengths = FromValues({c.batch}, lengths, kInt32);
  }

  Network On(const DevicePtr& device) const {
    Network other = *this;
    for (Tensor Network::*t : {&Network::x, &Network::hx, &Network::cx, &Network::w,
                               &Network::seq_lengths, &Network::dy, &Network::dhy, &Network::dcy})
      other.*t = To(device, this->*t);
    return other;
  }
  std::vector<Tensor> Forward(bool training = true) const {
    return RnnForward(handle, x, hx, cx, w, seq_lengths, training);
  }
  std::vector<Tensor> Backward(const std::vector<Tensor>& forward) const {
    return RnnBackward(handle, dy, dhy, dcy, x, hx, cx, w, forward[0], seq_lengths, forward[3]);
  }
};

/// All results of both passes that a user sees.
std::vector<Tensor> Results(const Network& network) {
  const std::vector<Tensor> forward = network.Forward();
  std::vector<Tensor> results = network.Backward(forward);
  results.insert(results.end(), forward.begin(), forward.end() - 1);
  return results;
}

/// Expects values within `ulps` of the largest value.
void ExpectClose(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double ulps) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    SCOPED_TRACE("result " + std::to_string(i));
    ASSERT_EQ(got[i].empty(), want[i].empty());
    if (got[i].empty()) continue;
    ASSERT_EQ(got[i].shape(), want[i].shape());
    ASSERT_EQ(got[i].data_type(), want[i].data_type());
    const Vector values = Values(want[i]);
    double largest = 1;
    for (const double value : values) largest = std::max(largest, std::abs(value));
    ExpectNear(got[i].ToDevice(DefaultDevice()), values,
               Vector(values.size(), ulps * largest * Epsilon(got[i].data_type())), "y");
  }
}

using EmulatedCudnnRnnTest = EmulatedCudnn;

TEST_F(EmulatedCudnnRnnTest, RandomNetworksEqualTheReference) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    const RnnCase c = RandomRnnCase(random, round, 5, kCudnnModes);
    const Network host(random, c, random.Coin() ? kFloat64 : kFloat32);
    const Network gpu = host.On(gpu_);
    ExpectClose(Results(gpu), Results(host), 100);
    std::vector<Tensor> inference = gpu.Forward(false), want = host.Forward(false);
    EXPECT_TRUE(inference[3].empty());
    ExpectClose(inference, want, 100);
  }
}

TEST_F(EmulatedCudnnRnnTest, DropoutTakesTheNumbersThatTheCpuTakes) {
  Random random(2);
  for (int round = 0; round < 12; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    RnnCase c = RandomRnnCase(random, round, 5, kCudnnModes);
    c.layers = 2 + round % 2;
    const Network host(random, c, round % 3 ? kFloat32 : kFloat64, 0.4), gpu = host.On(gpu_);
    emulated::Dnn().networks.clear();
    for (const DevicePtr& device : {DefaultDevice(), gpu_}) {
      device->SetRandSeed(7);
      Scalars scalars;  // starts at any position
      device->TakeRandom(static_cast<uint64_t>(round), &scalars);
    }
    ExpectClose(Results(gpu), Results(host), 100);
    EXPECT_EQ(gpu_->random_state(), DefaultDevice()->random_state());
    EXPECT_EQ(emulated::Dnn().networks.front().layers, 1);
    ExpectClose(gpu.Forward(false), host.Forward(false), 100);
    EXPECT_EQ(emulated::Dnn().networks.back().layers, c.layers);  // without dropout
  }
}

TEST_F(EmulatedCudnnRnnTest, BackwardMayRunAgain) {
  Random random(3);
  for (const double dropout : {0.0, 0.3}) {
    const Network gpu =
        Network(random, {RnnMode::kLstm, 4, 3, 2, 5, 2, 2, true, true, false}, kFloat32, dropout)
            .On(gpu_);
    const std::vector<Tensor> forward = gpu.Forward();
    const std::vector<Tensor> first = gpu.Backward(forward), second = gpu.Backward(forward);
    for (size_t i = 0; i < first.size(); ++i) EXPECT_EQ(Values(first[i]), Values(second[i])) << i;
  }
}

TEST_F(EmulatedCudnnRnnTest, WeightsAreCopiedWhereTheyDoNotLieAsCudnnWantsThem) {
  Random random(4);
  const auto queued = [&](int64_t input, int64_t offset) {
    const Network gpu =
        Network(random, {RnnMode::kGru, 2, 3, input, 8, 1, 2, true, false, false}, kFloat32)
            .On(gpu_);
    Tensor w = gpu.w;
    if (offset > 0) {
      w = Tensor({gpu.w.size() + offset}, gpu_).SliceAxis(0, offset, gpu.w.size() + offset);
      w.CopyFrom(gpu.w);
    }
    const Vector want = Values(gpu.Forward(false)[0]);
    const auto run = [&] {
      return RnnForward(gpu.handle, gpu.x, gpu.hx, gpu.cx, w, Tensor(), false)[0];
    };
    EXPECT_EQ(Values(run()), want);
    const uint64_t before = cuda::emulated::Queued();
    run();
    return cuda::emulated::Queued() - before;
  };
  EXPECT_EQ(queued(4, 0), 1u);
  EXPECT_EQ(queued(4, 4), 1u);
  EXPECT_EQ(queued(4, 1), 2u);  // an address that is not a multiple of 16
  EXPECT_EQ(queued(1, 0), 1u);  // 3 gates of 8
  Random other(5);
  const Network odd =
      Network(other, {RnnMode::kGru, 2, 3, 3, 5, 1, 2, true, false, false}, kFloat32).On(gpu_);
  odd.Forward(false);
  const uint64_t before = cuda::emulated::Queued();
  odd.Forward(false);
  EXPECT_GT(cuda::emulated::Queued() - before, 2u);
}

TEST_F(EmulatedCudnnRnnTest, SettingsReachCudnn) {
  Random random(6);
  const Network gpu =
      Network(random, {RnnMode::kTanh, 3, 2, 4, 6, 2, 1, false, false, false}, kFloat32).On(gpu_);
  const Vector exact = Values(gpu.Forward()[0]);
  SetTf32(true);
  const Vector rounded = Values(gpu.Forward()[0]);
  EXPECT_NE(exact, rounded);
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(exact[i], rounded[i], 0.01);
  const RnnProblem plain{RnnMode::kTanh, kFloat32, 3, 2, 4, 6, 2, 1, false, true, false};
  RnnProblem tf32 = plain;
  tf32.tf32 = true;
  EXPECT_EQ(emulated::Dnn().networks, (std::vector<RnnProblem>{plain, tf32}));
  gpu.Forward();
  EXPECT_EQ(emulated::Dnn().networks.size(), 2u);  // plans are cached
}

TEST_F(EmulatedCudnnRnnTest, SixteenBitTypesAreRoundedAtEachStep) {
  Random random(7);
  for (const DType dtype : {kBFloat16, kFloat16})
    for (const double dropout : {0.0, 0.4})
      for (int round = 0; round < 16; ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        RnnCase c = RandomRnnCase(random, round, 5, kCudnnModes);
        if (dropout > 0) c.layers = 2;
        const Network host(random, c, dtype, dropout), gpu = host.On(gpu_);
        for (const DevicePtr& device : {DefaultDevice(), gpu_}) device->SetRandSeed(7);
        // Each step, layer and unit adds some rounding errors that the host does not have.
        ExpectClose(Results(gpu), Results(host), 32);
        EXPECT_EQ(emulated::Dnn().networks.back().dtype, dtype);
      }
}

TEST_F(EmulatedCudnnRnnTest, NobodyWaitsForLengthsOnTheHost) {
  Random random(9);
  const Network host(random, {RnnMode::kLstm, 4, 3, 2, 5, 2, 2, true, true, true}, kFloat32);
  Network gpu = host.On(gpu_);
  std::vector<Vector> expected;
  for (const Tensor& t : Results(gpu)) expected.push_back(Values(t));
  gpu.seq_lengths = host.seq_lengths;
  gpu_->Sync();
  const cuda::Stream stream = cuda::StreamOf(*gpu_);
  const uint64_t before = cuda::emulated::Queued();
  const std::vector<Tensor> results = Results(gpu);
  EXPECT_GT(cuda::emulated::Waiting(stream), 0u);
  EXPECT_EQ(cuda::emulated::Waiting(stream), cuda::emulated::Queued() - before);
  std::vector<Vector> values;
  for (const Tensor& t : results) values.push_back(Values(t));
  EXPECT_EQ(values, expected);
}

TEST_F(EmulatedCudnnRnnTest, NoSequences) {
  const Tensor x({3, 0, 2}, gpu_);
  const RnnHandle handle(x, 4, RnnMode::kGru, 2, true, 0.5);
  const Tensor w = Full({handle.weights_size}, 1, gpu_), none;
  const std::vector<Tensor> out = RnnForward(handle, x, none, none, w, none);
  EXPECT_EQ(out[0].shape(), Shape({3, 0, 4}));
  const std::vector<Tensor> gradients =
      RnnBackward(handle, out[0], none, none, x, none, none, w, out[0], none, out[3]);
  EXPECT_EQ(Values(gradients[3]), Vector(static_cast<size_t>(handle.weights_size), 0));
}

TEST_F(EmulatedCudnnRnnTest, Errors) {
  Random random(8);
  Network host(random, {RnnMode::kGru, 3, 2, 5, 4, 1, 1, true, false, true}, kFloat32);
  host.seq_lengths = Full({2}, 4, nullptr, kInt32);
  EXPECT_ERROR(std::invalid_argument, "[RnnForward] seq_lengths[0] = 4 is outside [0, 3]",
               host.On(gpu_).Forward());
  host.seq_lengths = Tensor();
  Network gpu = host.On(gpu_);
  std::vector<Tensor> forward = gpu.Forward();
  EXPECT_EQ(FormOf(forward[3]), SavedForm::kPrivate);
  std::vector<Tensor> of_cpu = host.Forward();
  for (Tensor& t : of_cpu) t = To(gpu_, t);
  EXPECT_ERROR(Unavailable, "another implementation did forward", gpu.Backward(of_cpu));
  forward[3] = Tensor({5}, gpu_, kUInt8);
  EXPECT_ERROR(std::invalid_argument, "[RnnBackward] saved is from another forward pass",
               gpu.Backward(forward));
  Clear();
  emulated::Dnn().problem = "libcudnn.so.9 is missing";
  EXPECT_ERROR(Unavailable, "libcudnn.so.9 is missing", gpu.Forward());
}

TEST_F(EmulatedCudnnRnnTest, OpcheckComparesBothPasses) {
  Random random(9);
  for (const auto& [dtype, dropout] :
       {std::pair(kFloat32, 0.0), {kFloat32, 0.5}, {kBFloat16, 0.0}, {kFloat16, 0.0}}) {
    const Network gpu =
        Network(random, {RnnMode::kLstm, 3, 4, 5, 6, 2, 2, true, true, true}, dtype, dropout)
            .On(gpu_);
    ResetOpcheckStats();
    OpcheckOptions options;
    options.every = 1;
    SetOpcheck(options);
    const std::vector<Tensor> checked = Results(gpu);
    SetOpcheck({});
    std::vector<std::string> compared;
    for (const OpcheckOpStats& stats : GetOpcheckStats()) {
      if (stats.checked > 0) compared.push_back(stats.op);
      EXPECT_EQ(stats.failed, 0u) << stats.op;
    }
    // Dropout's output between layers cannot be recomputed from backward's arguments.
    const auto both = std::vector<std::string>{"RnnBackward", "RnnForward"};
    EXPECT_EQ(compared, dropout == 0 ? both : std::vector<std::string>{"RnnForward"});
  }
  ResetOpcheckStats();
}

TEST_F(EmulatedCudnnRnnTest, RecordedStepsAreCapturedUnlessThereAreLengths) {
  struct Case {
    const char* name;
    bool lengths;
    double dropout;
    uint64_t launches;  ///< the input, numbers of each step, all nodes, five results
  };
  for (const auto& [name, lengths, dropout, launches] :
       {Case{"whole", false, 0, 7}, {"lengths", true, 0, 0}, {"dropout", false, 0.3, 8}}) {
    SCOPED_TRACE(name);
    Random random(10);
    Network gpu =
        Network(random, {RnnMode::kGru, 4, 3, 2, 5, 3, 2, true, true, lengths}, kFloat32, dropout)
            .On(gpu_);
    const Tensor x = gpu.x;
    const auto graph = GraphOf([&](const Tensor&) { return Results(gpu); }, x);
    uint64_t executed = 0, replayed = 0;
    for (int step = 0; step < 4; ++step) {
      gpu.x = RandomTensor(random, x.shape()).ToDevice(gpu_);
      uint64_t before = cuda::emulated::Queued();
      gpu_->SetRandSeed(static_cast<uint64_t>(step) + 1);
      const std::vector<Tensor> want = Results(gpu);
      executed = cuda::emulated::Queued() - before;
      before = cuda::emulated::Queued();
      gpu_->SetRandSeed(static_cast<uint64_t>(step) + 1);
      EXPECT_TRUE(graph->Start({gpu.x}));
      graph->Run(0);
      const std::vector<Tensor> got = graph->Finish();
      replayed = cuda::emulated::Queued() - before;
      size_t next = 0;
      for (const Tensor& t : want)
        if (!t.empty()) {
          while (got.at(next).empty()) ++next;
          EXPECT_EQ(Values(got.at(next++)), Values(t)) << step;
        }
    }
    if (!lengths) {
      EXPECT_EQ(replayed, launches);
      EXPECT_LT(replayed, executed);
    }
  }
}

}  // namespace
}  // namespace singa::cudnn

// Trains a small convolutional network without Python and without the tape: the operations are
// functions in forward/backward pairs, and this program calls them in turn.
//
//   singa_example [STEPS]
//
// The images show stripes that run one of four ways, under noise; the network has to say which.

#include <singa/singa.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <random>
#include <vector>

namespace {

using singa::Tensor;

constexpr int64_t kBatch = 32, kSide = 12, kClasses = 4, kChannels = 8;

struct Batch {
  Tensor images{singa::Shape{kBatch, 1, kSide, kSide}};
  Tensor labels{singa::Shape{kBatch}, nullptr, singa::kInt32};
};

Batch MakeBatch(std::mt19937& random) {
  std::vector<float> pixels;
  std::vector<int32_t> labels;
  std::uniform_real_distribution<float> phase(0, 6.28f);
  std::normal_distribution<float> noise(0, 1);
  const int directions[kClasses][2] = {{0, 1}, {1, 0}, {1, 1}, {1, -1}};
  for (int64_t i = 0; i < kBatch; ++i) {
    const auto label = static_cast<int32_t>(random() % kClasses);
    const float start = phase(random);
    labels.push_back(label);
    for (int y = 0; y < kSide; ++y) {
      for (int x = 0; x < kSide; ++x) {
        const auto along = static_cast<float>(directions[label][0] * y + directions[label][1] * x);
        pixels.push_back(std::sin(1.2f * along + start) + noise(random));
      }
    }
  }
  Batch batch;
  batch.images.CopyFromHost(pixels.data(), pixels.size() * sizeof(float));
  batch.labels.CopyFromHost(labels.data(), labels.size() * sizeof(int32_t));
  return batch;
}

Tensor Normal(const singa::Shape& shape, int64_t fan_in) {
  Tensor t(shape);
  singa::Gaussian(0, std::sqrt(2.0 / static_cast<double>(fan_in)), t);
  return t;
}

// conv 5x5 -> relu -> max pooling 2x2 -> fully connected -> softmax cross-entropy
class Network {
 public:
  double TrainOneBatch(const Batch& batch, double lr) {
    const Tensor& x = batch.images;
    Tensor conv = singa::ConvForward(x, w1_, b1_, conv_);
    Tensor hidden = singa::Unary(singa::UnaryOp::kRelu, conv);
    std::vector<Tensor> pooled = singa::PoolingForward(pool_, hidden);  // values, positions
    Tensor flat = pooled[0].Reshape({kBatch, -1});
    Tensor scores = singa::LinearForward(flat, w2_, b2_);
    std::vector<Tensor> loss = singa::SoftmaxCrossEntropyForward(scores, batch.labels);

    Tensor dscores = singa::SoftmaxCrossEntropyBackward(one_, loss[1], batch.labels);
    std::vector<Tensor> linear =
        singa::LinearBackward(dscores, flat, w2_, false, true, true, true);  // dx, dW, db
    Tensor dpooled = linear[0].Reshape(pooled[0].shape());
    Tensor dhidden = singa::PoolingBackward(pool_, dpooled, hidden, pooled[0], pooled[1]);
    Tensor dconv = singa::UnaryBackward(singa::UnaryOp::kRelu, dhidden, conv, hidden);
    Tensor dw1 = singa::ConvBackwardW(dconv, x, conv_);
    Tensor db1 = singa::ConvBackwardB(dconv, conv_);

    singa::SgdUpdate({w1_, b1_, w2_, b2_}, {dw1, db1, linear[1], linear[2]}, momentum_,
                     {0, 0, 0, 0}, lr, 0.9, 0, false, first_);
    first_ = false;
    return loss[0].Item();
  }

 private:
  static constexpr int64_t kPooled = kSide / 2;
  static constexpr int64_t kFeatures = kChannels * kPooled * kPooled;

  singa::ConvHandle conv_{Tensor({kBatch, 1, kSide, kSide}), {5, 5}, {1, 1}, {2, 2}, 1, kChannels};
  singa::PoolingHandle pool_{Tensor({kBatch, kChannels, kSide, kSide}), {2, 2}, {2, 2}, {0, 0}};
  Tensor w1_ = Normal({kChannels, 1, 5, 5}, 25), b1_ = singa::Full({kChannels}, 0);
  Tensor w2_ = Normal({kFeatures, kClasses}, kFeatures), b2_ = singa::Full({kClasses}, 0);
  std::vector<Tensor> momentum_{Tensor(w1_.shape()), Tensor(b1_.shape()), Tensor(w2_.shape()),
                                Tensor(b2_.shape())};
  Tensor one_ = singa::Full({}, 1);  // the gradient of the loss for itself
  bool first_ = true;
};

int Train(int steps) {
  std::mt19937 random(1);
  singa::DefaultDevice()->SetRandSeed(1);
  Network network;
  double first = 0, mean = 0;
  for (int step = 0; step < steps; ++step) {
    const double loss = network.TrainOneBatch(MakeBatch(random), 0.005);
    mean = step == 0 ? loss : 0.9 * mean + 0.1 * loss;
    if (step == 0) first = loss;
    if (step % 20 == 0 || step == steps - 1) {
      std::printf("step %3d  loss %.4f  running mean %.4f\n", step, loss, mean);
    }
  }
  const auto plans = singa::GetPlanCacheStats();
  std::printf("plans: %llu made, %llu times found\n", static_cast<unsigned long long>(plans.misses),
              static_cast<unsigned long long>(plans.hits));
  if (!(mean < 0.5 * first)) {
    std::fprintf(stderr, "the loss did not fall: %.4f at first, %.4f at the end\n", first, mean);
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int steps = argc == 2 ? std::atoi(argv[1]) : argc == 1 ? 100 : 0;
  if (steps < 1) {
    std::fprintf(stderr, "usage: %s [STEPS]    trains for that many steps (100)\n", argv[0]);
    return 2;
  }
  try {
    return Train(steps);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// What becomes part of convolutions in graphs of inference.

#include <algorithm>
#include <map>

#include "model/passes/recorded.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/indexing.h"
#include "singa/operation/reduce.h"

namespace singa::test {
namespace {

using Names = std::vector<std::string>;

/// A convolution of images of two axes with random filters, and biases by chance.
struct Conv {
  Conv(Random& random, const Shape& x, int64_t filters, int64_t kernel, int64_t group = 1,
       const std::vector<int64_t>& padding = {0, 0, 0, 0}, DType dtype = kFloat32,
       int64_t stride = 1)
      : handle(ConvRecorder("Conv", x, {kernel, kernel}, {stride, stride}, padding, filters, true,
                            {1, 1}, group)),
        W(RandomTensor(random, handle.recorder.weight_shape(), dtype)),
        b(random.Coin() ? RandomTensor(random, {filters}, dtype) : Tensor()) {}

  Tensor operator()(const Tensor& x) const { return ConvForward(x, W, b, handle); }
  Shape y_shape() const { return handle.recorder.output_shape(); }

  /// In float64, from the definition, with zeros around the image besides its own padding.
  Vector Expected(const Vector& x, const Shape& shape, int64_t top = 0, int64_t left = 0) const {
    const Recorder& g = handle.recorder;
    const Vector ws = Values(W), bs = b.empty() ? Vector(g.out_channels) : Values(b);
    const int64_t depth = g.in_channels / g.group, filters = g.out_channels / g.group;
    Vector ys;
    ForEachIndex(y_shape(), [&](const Index& i) {
      double sum = bs[static_cast<size_t>(i[1])];
      ForEachIndex({depth, g.kernel_h(), g.kernel_w()}, [&](const Index& k) {
        const int64_t h = i[2] * g.stride_h() - g.pad_top() - top + k[1];
        const int64_t w = i[3] * g.stride_w() - g.pad_left() - left + k[2];
        if (h < 0 || h >= shape[2] || w < 0 || w >= shape[3]) return;
        sum += x[Flat(shape, {i[0], i[1] / filters * depth + k[0], h, w})] *
               ws[Flat(W.shape(), {i[1], k[0], k[1], k[2]})];
      });
      ys.push_back(sum);
    });
    return ys;
  }

  ConvHandle handle;
  Tensor W, b;
};

/// A graph of a step, and what it computes from other images of the same shape.
struct Inference {
  Inference(const Step& step, const Tensor& first, const Tensor& second) {
    std::vector<Tensor> recorded;
    const RecordingPtr recording = Recorded(step, {first}, PassOptions{}, &recorded);
    const RecordedStep& nodes = recording->step();
    for (const Node& node : nodes.NodesForGraph(0, nodes.nodes().size()))
      if (!node.prepares && node.op != std::string("Reorder")) names.push_back(node.op);
    Graph graph(recording);
    const auto replayed = graph.Replay({second});
    EXPECT_TRUE(replayed);
    if (replayed) results = *replayed;
  }
  Names names;  ///< of the operations, without those that run once, and reorders
  std::vector<Tensor> results;
};

void ExpectClose(const Tensor& got, const Vector& want, const std::string& what) {
  double largest = 1;
  for (double v : want) largest = std::max(largest, std::abs(v));
  const double error = 200 * Epsilon(got.data_type()) * largest;
  ExpectNear(got, want, Vector(want.size(), error), what);
}

TEST(Inference, ProductsAndSumsPerChannelAreFolded) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const std::string what = "seed " + std::to_string(seed);
    const DType dtype = seed % 4 ? kFloat32 : kFloat64;
    const int64_t group = random.Int(1, 3), filters = group * random.Int(1, 8);
    const Shape shape{2, group * random.Int(1, 8), 6, 7};
    const Conv conv(random, shape, filters, 3, group, {1, 1, 1, 1}, dtype);
    const bool strided = seed % 5 == 4;  // a product then reads a copy
    std::vector<std::pair<BinaryOp, Tensor>> steps;
    for (int64_t i = random.Int(1, 4); i > 0; --i) {
      const Shape shapes[] = {{filters, 1, 1}, {1, filters, 1, 1}, {1}, {}};
      const Shape of = shapes[random.Int(0, 3)];
      const Tensor whole = RandomTensor(random, {2 * of.Count() + 1}, dtype, 0.5, 2);
      const Tensor part =
          strided ? whole.SliceAxis(0, 1, whole.size(), 2) : whole.SliceAxis(0, 1, of.Count() + 1);
      const Tensor t = part.Reshape(of);
      steps.emplace_back(random.Coin() ? BinaryOp::kMul : BinaryOp::kAdd, t);
    }
    const bool relu = random.Coin();
    const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      Tensor y = conv(in[0]);
      for (const auto& [op, t] : steps) y = random.Coin() ? Binary(op, y, t) : Binary(op, t, y);
      return {relu ? Unary(UnaryOp::kRelu, y) : y};
    };
    const Tensor x = RandomTensor(random, shape, dtype);
    Vector want = conv.Expected(Values(x), shape);
    for (size_t i = 0; i < want.size(); ++i) {
      const size_t channel = i / 42 % static_cast<size_t>(filters);
      for (const auto& [op, t] : steps) {
        const double number = Values(t)[t.size() == 1 ? 0 : channel];
        want[i] = op == BinaryOp::kMul ? want[i] * number : want[i] + number;
      }
      if (relu) want[i] = std::max(want[i], 0.0);
    }
    const Inference found(step, RandomTensor(random, shape, dtype), x);
    EXPECT_TRUE(strided || found.names == Names{"ConvForward"}) << what;
    ExpectClose(found.results.at(0), want, what);
  }
}

TEST(Inference, ZerosAroundAnImageArePadding) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    const std::string what = "seed " + std::to_string(seed);
    const DType dtype = seed % 4 ? kFloat32 : kFloat64;
    const int64_t kernel = random.Int(2, 4), group = random.Coin() ? 1 : 16;
    const Shape shape{2, 16, 7, 8};
    // The image is the argument, or comes from another convolution in its layout.
    const Conv before(random, shape, 16, 1, 1, {0, 0, 0, 0}, dtype);
    const bool first = random.Coin();
    std::vector<int64_t> pads(8);
    for (size_t i : {2, 3, 6, 7}) pads[i] = random.Int(0, kernel - 1);
    std::vector<int64_t> own(4);
    for (size_t i = 0; i < 4; ++i) own[i] = random.Int(0, kernel - 1 - pads[i / 2 * 4 + 2 + i % 2]);
    const Shape padded{2, 16, 7 + pads[2] + pads[6], 8 + pads[3] + pads[7]};
    const Conv conv(random, padded, 16, kernel, group, own, dtype, random.Int(1, 2));
    const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
      const Tensor x = first ? in[0] : before(in[0]);
      return {Unary(UnaryOp::kRelu, conv(Pad(x, "constant", pads)))};
    };
    const Tensor x = RandomTensor(random, shape, dtype);
    const Vector image = first ? Values(x) : before.Expected(Values(x), shape);
    Vector want = conv.Expected(image, shape, pads[2], pads[3]);
    for (double& v : want) v = std::max(v, 0.0);
    const Inference found(step, RandomTensor(random, shape, dtype), x);
    EXPECT_EQ(found.names, first ? Names{"ConvForward"} : Names(2, "ConvForward")) << what;
    ExpectClose(found.results.at(0), want, what);
  }
}

TEST(Inference, ADepthwiseConvolutionAppliesTheActivationBeforeItsZeros) {
  Random random(3);
  const Shape shape{2, 16, 9, 8};
  const Conv first(random, shape, 16, 1), second(random, {2, 16, 11, 9}, 16, 3, 16);
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = Unary(UnaryOp::kHardTanh, first(in[0]), -1, 6);  // of 0 it is 0
    return {second(Pad(y, "constant", {0, 0, 1, 0, 0, 0, 1, 1}))};
  };
  const Tensor x = RandomTensor(random, shape);
  Vector image = first.Expected(Values(x), shape);
  for (double& v : image) v = std::clamp(v, -1.0, 6.0);
  const Inference found(step, x, x);
  EXPECT_FALSE(std::count(found.names.begin(), found.names.end(), "Pad"));
  ExpectClose(found.results.at(0), second.Expected(image, shape, 1, 0), "y");
}

/// Steps of which an operation has to stay as it is: its name, and the step. Which operation a
/// product is depends on the layout.
std::map<std::string, std::pair<std::string, Step>> OthersThatStay() {
  static Random random(11);
  static const Shape shape{2, 16, 8, 8};
  static const Conv conv(random, shape, 16, 3, 1, {1, 1, 1, 1});
  static const Tensor scale = RandomTensor(random, {16, 1, 1});
  static const Tensor images = RandomTensor(random, {2, 16, 1, 1});
  static const Tensor rows = RandomTensor(random, {8, 1}),
                      pixels = RandomTensor(random, {16, 8, 8});
  using In = const std::vector<Tensor>&;
  using Out = std::vector<Tensor>;
  const auto padded = [](const char* mode, const std::vector<int64_t>& pads, double value = 0) {
    return [=](In in) -> Out {
      const Tensor x = Pad(in[0], mode, pads, value);
      return {ConvForward(x, conv.W, conv.b, conv.handle)};
    };
  };
  return {
      {"a factor for each image",
       {"product", [](In in) -> Out { return {Binary(BinaryOp::kMul, conv(in[0]), images)}; }}},
      {"a factor for each row",
       {"product", [](In in) -> Out { return {Binary(BinaryOp::kMul, conv(in[0]), rows)}; }}},
      {"a factor for each pixel",
       {"product", [](In in) -> Out { return {Binary(BinaryOp::kMul, conv(in[0]), pixels)}; }}},
      {"a computed factor",
       {"product",
        [](In in) -> Out {
          const Tensor mean = Reduce(ReduceOp::kMean, in[0], {2, 3}, true);
          return {Binary(BinaryOp::kMul, conv(in[0]), mean)};
        }}},
      {"a square",
       {"product",
        [](In in) -> Out {
          const Tensor y = conv(in[0]);
          return {Binary(BinaryOp::kMul, y, y)};
        }}},
      {"a result that is read twice",
       {"product",
        [](In in) -> Out {
          const Tensor y = conv(in[0]);
          return {Binary(BinaryOp::kMul, y, scale), Unary(UnaryOp::kExp, y)};
        }}},
      {"a result that is returned",
       {"product",
        [](In in) -> Out {
          const Tensor y = conv(in[0]);
          return {Binary(BinaryOp::kMul, y, scale), y};
        }}},
      {"a factor behind a residual",
       {"product",
        [](In in) -> Out {
          return {Binary(BinaryOp::kMul, Binary(BinaryOp::kAdd, conv(in[0]), in[0]), scale)};
        }}},
      {"padding with ones", {"Pad", padded("constant", {0, 0, 1, 1, 0, 0, 1, 1}, 1)}},
      {"padding by edges", {"Pad", padded("edge", {0, 0, 1, 1, 0, 0, 1, 1})}},
      {"padding that takes away", {"Pad", padded("constant", {0, 0, 1, 1, 0, 0, -1, 1})}},
      {"padding of images", {"Pad", padded("constant", {1, 0, 1, 1, 0, 0, 1, 1})}},
      {"padding of one pixel more than windows",
       {"Pad", padded("constant", {0, 0, 2, 0, 0, 0, 0, 0})}},
      {"zeros that others read",
       {"Pad",
        [](In in) -> Out {
          const Tensor x = Pad(in[0], "constant", {0, 0, 1, 1, 0, 0, 1, 1});
          return {conv(x), Unary(UnaryOp::kExp, x)};
        }}},
      {"zeros that are also filters",
       {"Pad",
        [](In in) -> Out {
          const Tensor x = Pad(in[0], "constant", {0, 0, 0, 0, 0, 0, 1, 1});
          const ConvHandle handle(x, {9, 9}, {1, 1}, {0, 0}, 16, 2, false);
          return {ConvForward(x, x, Tensor(), handle)};
        }}},
  };
}

TEST(Inference, OtherStepsStayAsTheyAre) {
  Random random(12);
  const Shape shape{2, 16, 8, 8};
  const Tensor first = RandomTensor(random, shape), x = RandomTensor(random, shape);
  for (const auto& [what, other] : OthersThatStay()) {
    const auto& [name, step] = other;
    const std::vector<Tensor> want = step({x});
    const Inference found(step, first, x);
    EXPECT_TRUE(std::any_of(found.names.begin(), found.names.end(), [&](const std::string& each) {
      return each == name || (name == "product" && (each == "Mul" || each == "ChannelScale"));
    })) << what;
    ASSERT_EQ(found.results.size(), want.size()) << what;
    for (size_t i = 0; i < want.size(); ++i) ExpectClose(found.results[i], Values(want[i]), what);
  }
}

/// The chain runs where its last operation was. What is written before that must not reach it.
TEST(Inference, WritesInPlaceStayInOrder) {
  Random random(13);
  const Shape shape{2, 16, 8, 8};
  const Conv conv(random, shape, 16, 3, 1, {1, 1, 1, 1});
  const Tensor state = RandomTensor(random, shape), more = RandomTensor(random, shape);
  const Tensor x = RandomTensor(random, shape);
  const auto relu = [](Vector values) {
    for (double& v : values) v = std::max(v, 0.0);
    return values;
  };

  const auto reads_a_state = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = conv(state);
    BinaryInto(BinaryOp::kAdd, state, in[0], state);
    return {Unary(UnaryOp::kRelu, y)};
  };
  const Vector before = Values(state), added = Values(x);
  const Inference later(reads_a_state, x, x);
  Vector once = before;
  for (size_t i = 0; i < once.size(); ++i) once[i] += added[i];
  ExpectClose(later.results.at(0), relu(conv.Expected(once, shape)), "an image that changes");

  const auto adds_in_place = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = conv(in[0]);
    BinaryInto(BinaryOp::kAdd, y, more, y);
    return {Unary(UnaryOp::kRelu, y)};
  };
  Vector sum = conv.Expected(Values(x), shape);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += Values(more)[i];
  const Inference in_place(adds_in_place, state, x);
  ExpectClose(in_place.results.at(0), relu(sum), "a result that changes");

  const Tensor wide = RandomTensor(random, {2, 32, 8, 8});
  const auto writes_a_part = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    BinaryInto(BinaryOp::kAdd, conv(in[0]), more, wide.SliceAxis(1, 16, 32));
    return {Unary(UnaryOp::kNegative, wide)};
  };
  Vector want = Values(wide);
  for (size_t i = 0; i < sum.size(); ++i) want[i / 1024 * 2048 + 1024 + i % 1024] = sum[i];
  for (double& v : want) v = -v;
  const Inference part(writes_a_part, state, x);
  ExpectClose(part.results.at(0), want, "a part of a tensor");
}

}  // namespace
}  // namespace singa::test

// Batch norm, pooling, LRN and softmax on oneDNN's layouts: the results are those on plain tensors,
// they stay in the layout, no reorder happens, and what fills up blocks stays zero.

#include <cstring>

#include "backend/onednn/engine.h"
#include "model/operation/batchnorm_spec.h"
#include "model/operation/kernel.h"
#include "model/operation/lrn_spec.h"
#include "model/operation/pooling_spec.h"
#include "model/operation/softmax_spec.h"
#include "singa/core/device.h"
#include "singa/core/stats.h"
#include "singa/core/threads.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/lrn.h"
#include "singa/operation/pooling.h"
#include "singa/operation/softmax.h"
#include "support.h"

namespace singa {
namespace {

using test::ExpectNear;
using test::PreferenceScope;
using test::Random;
using test::RandomTensor;
using test::Values;
using Tag = dnnl::memory::format_tag;
using Vector = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr Tag kTags[] = {Tag::nhwc, Tag::nChw16c, Tag::nChw8c};

LayoutPtr LayoutOf(const Shape& shape, DType dtype, Tag tag) {
  const dnnl::memory::desc desc(onednn::Dims(shape), onednn::DataTypeOf(dtype), tag);
  return onednn::FromDesc(desc, shape, dtype);
}

Tensor In(const Tensor& t, Tag tag) { return t.ToLayout(LayoutOf(t.shape(), t.data_type(), tag)); }

/// The layout's tag: whether t lies in it, and whether its padding is zero.
void ExpectIn(const Tensor& t, Tag tag, const char* what) {
  const LayoutPtr want = LayoutOf(t.shape(), t.data_type(), tag);
  EXPECT_TRUE(SameLayout(t.layout(), want))
      << what << " lies in " << LayoutName(t.layout()) << ", expected " << LayoutName(want);
  if (!t.layout()) return;
  // Packing writes zeros into the padding; nothing else may differ.
  const Tensor plain = t.Plain();
  std::vector<char> packed(t.layout()->bytes());
  t.layout()->Pack(plain.raw_data(), packed.data());
  EXPECT_EQ(std::memcmp(packed.data(), t.raw_data(), packed.size()), 0)
      << what << ": padding is not zero";
}

Vector Bound(const Vector& values, double relative) {
  double most = 0;
  for (double v : values)
    if (std::isfinite(v)) most = std::max(most, std::abs(v));
  return Vector(values.size(), relative * most);
}

/// Same values up to `relative` of the largest one, beyond the rounding to the type itself.
void ExpectSame(const Tensor& got, const Tensor& want, double relative, const char* what) {
  Vector values = Values(want), tolerance = Bound(values, relative);
  for (size_t i = 0; i < values.size(); ++i)
    tolerance[i] += 0.5 * test::Epsilon(want.data_type()) * std::abs(values[i]);
  ExpectNear(got, values, tolerance, what);
}

/// On older CPUs (or under ONEDNN_MAX_CPU_ISA) oneDNN lacks some kernels, and ours then take the
/// tensor as a plain one: the results are checked all the same.
bool HasAvx512() { return onednn::RefusesFloat(kBFloat16).empty(); }

DType AnyType(Random& random) {
  return random.Int(0, 3) == 0 && HasAvx512() ? kBFloat16 : kFloat32;
}

template <class Spec>
std::string Refusal(const Spec& spec) {
  return Registry<Spec>::Get().Find("onednn")->Refuses(spec);
}

uint64_t Reorders() { return GetReorderStats().count; }

/// One call of everything that batch norm has, on x, dy and z (which may be empty) as they lie.
struct BatchNormCalls {
  const BatchNormHandle& handle;
  const Tensor& scale;
  const Tensor& bias;
  bool relu;

  std::vector<Tensor> operator()(const Tensor& x, const Tensor& dy, const Tensor& z,
                                 const Tensor& mean, const Tensor& var) const {
    std::vector<Tensor> results;
    const auto add = [&](const std::vector<Tensor>& more) {
      results.insert(results.end(), more.begin(), more.end());
      results.resize((results.size() + 3) / 4 * 4);
    };
    const bool has_add = !z.empty();
    const Tensor y = BatchNormForwardInference(handle, x, scale, bias, mean, var, z, relu);
    add({y});
    add(BatchNormBackwardInference(handle, dy, x, scale, mean, var, true, true, relu, bias,
                                   has_add ? y : Tensor(), has_add));
    const auto out = BatchNormForwardTraining(handle, x, scale, bias, mean, var, z, relu);
    add(out);
    add(BatchNormBackward(handle, dy, x, scale, out[1], out[2], true, true, relu, bias,
                          has_add ? out[0] : Tensor(), has_add));
    add({mean, var});
    return results;
  }
};

constexpr const char* kBatchNormResults[] = {"frozen y",
                                             "",
                                             "",
                                             "",
                                             "frozen dx",
                                             "frozen dscale",
                                             "frozen dbias",
                                             "frozen dadd",
                                             "y",
                                             "mean",
                                             "var",
                                             "",
                                             "dx",
                                             "dscale",
                                             "dbias",
                                             "dadd",
                                             "running mean",
                                             "running var"};

/// The results of the layout's kernel are those of the reference. ReLU decides on values around
/// zero, where the two differ in the last bit, so dy is zero wherever they disagree.
void CheckBatchNorm(Random& random, const Shape& shape, DType dtype, Tag tag, bool has_add,
                    bool relu, bool affine) {
  SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)) +
               (has_add ? " add" : "") + (relu ? " relu" : ""));
  const Tensor x = RandomTensor(random, shape, dtype, -1, 3);
  const Tensor z = has_add ? RandomTensor(random, shape, dtype) : Tensor();
  const Tensor scale = affine ? RandomTensor(random, {shape[1]}, kFloat32, 0.5, 2) : Tensor();
  const Tensor bias = random.Coin() ? RandomTensor(random, {shape[1]}) : Tensor();
  const BatchNormHandle handle(0.3, x);
  const Tensor mean = RandomTensor(random, {shape[1]});
  const Tensor var = RandomTensor(random, {shape[1]}, kFloat32, 0.5, 2);
  const Tensor mean_b = mean.Clone(), var_b = var.Clone();
  const Tensor xb = In(x, tag), zb = has_add ? In(z, tag) : z;
  const BatchNormCalls run{handle, scale, bias, relu};

  Vector dy_values(static_cast<size_t>(shape.Count()));
  for (double& v : dy_values) v = random.Real();
  if (relu) {
    const auto y = [&](Preference preference, bool training, const Tensor& x, const Tensor& z) {
      PreferenceScope scope(preference);
      return Values(training
                        ? BatchNormForwardTraining(handle, x, scale, bias, {}, {}, z, relu)[0]
                        : BatchNormForwardInference(handle, x, scale, bias, mean, var, z, relu));
    };
    for (bool training : {true, false}) {
      const Vector a = y(Preference::kReference, training, x, z);
      const Vector b = y(Preference::kFastest, training, xb, zb);
      for (size_t i = 0; i < a.size(); ++i)
        if ((a[i] > 0) != (b[i] > 0)) dy_values[i] = 0;
    }
  }
  const Tensor dy = test::FromValues(shape, dy_values, dtype), dyb = In(dy, tag);

  PreferenceScope reference(Preference::kReference);
  const auto want = run(x, dy, z, mean, var);
  PreferenceScope fastest(Preference::kFastest);
  const uint64_t reorders = Reorders();
  const auto got = run(xb, dyb, zb, mean_b, var_b);
  EXPECT_EQ(Reorders(), reorders);
  for (size_t k = 0; k < std::size(kBatchNormResults); ++k) {
    const char* name = kBatchNormResults[k];
    ASSERT_EQ(got[k].empty(), want[k].empty()) << name;
    if (got[k].empty()) continue;
    ExpectSame(got[k], want[k], 64 * 0x1p-23, name);
    if (got[k].rank() == 4) ExpectIn(got[k], tag, name);
  }
}

TEST(OnednnLayouts, BatchNorm) {
  Random random(91);
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Int(0, 3) == 0 ? kBFloat16 : kFloat32;
    const Shape shape{random.Int(1, 5), random.Int(2, 40), random.Int(1, 9), random.Int(1, 9)};
    CheckBatchNorm(random, shape, dtype, tag, random.Coin(), random.Coin(), random.Int(0, 3) > 0);
  }
}

// Several pieces of rows, several panels of channels, a single pixel, results that are written past
// the caches: every road through the kernel.
TEST(OnednnLayouts, BatchNormOfEveryKindOfShape) {
  Random random(98);
  for (Tag tag : kTags) {
    for (bool relu : {true, false}) {
      CheckBatchNorm(random, {7, 70, 13, 17}, kFloat32, tag, true, relu, true);
      CheckBatchNorm(random, {3, 2100, 2, 3}, kFloat32, tag, relu, true, true);
      CheckBatchNorm(random, {1, 24, 1, 1}, kFloat32, tag, true, relu, true);
      CheckBatchNorm(random, {130, 20, 1, 1}, kFloat32, tag, true, relu, true);
      CheckBatchNorm(random, {5, 2100, 1, 1}, kFloat32, tag, true, relu, true);
      CheckBatchNorm(random, {9, 50, 11, 7}, kBFloat16, tag, true, relu, true);
    }
    CheckBatchNorm(random, {2, 66, 179, 181}, kFloat32, tag, true, true, true);
  }
  if (HasAvx512())  // elsewhere the reorders take long
    CheckBatchNorm(random, {4, 66, 179, 181}, kBFloat16, Tag::nChw16c, true, true, true);
}

/// `got` is `want`, converted to its type.
void ExpectEqual(const Tensor& got, const Tensor& want, const char* what) {
  const Vector a = Values(got), b = Values(want.Plain().AsType(got.data_type()));
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
        << what << "[" << i << "] is " << a[i] << ", expected " << b[i];
}

// NaN and infinity too.
TEST(OnednnLayouts, BatchNormOfBFloat16IsThatOfFloat32Rounded) {
  Random random(97);
  const auto wide = [](const Tensor& t, Tag tag) { return In(t.Plain().AsType(kFloat32), tag); };
  for (Tag tag : kTags) {
    // Rows of whole blocks of columns, of parts of them, and of odd numbers; one row; few channels.
    for (const Shape& shape :
         {Shape{3, 21, 5, 7}, Shape{2, 40, 9, 11}, Shape{2, 70, 1, 1}, Shape{1, 33, 1, 1},
          Shape{2, 1, 6, 7}, Shape{3, 3, 9, 9}, Shape{2, 17, 3, 3}, Shape{2, 33, 5, 2},
          Shape{1, 100, 5, 13}, Shape{2, 64, 3, 23}, Shape{1, 2051, 3, 1}}) {
      for (bool strange : {false, true}) {
        if (strange && (shape[0] < 2 || shape[1] < 6)) continue;
        SCOPED_TRACE(shape.ToString() + " tag " + std::to_string(int(tag)));
        const auto images = [&](double low, double high) {
          const Tensor t = RandomTensor(random, shape, kFloat32, low, high);
          if (strange) {
            t.SliceAxis(1, 1, 2).SliceAxis(0, 1, 2).Fill(kInf);
            t.SliceAxis(1, 2, 3).SliceAxis(0, 0, 1).Fill(-kInf);
            t.SliceAxis(1, 5, 6).Fill(std::nan(""));
          }
          return In(t.AsType(kBFloat16), tag);
        };
        const Tensor x = images(-1, 3), z = images(-1, 1), dy = images(-1, 1);
        const Tensor scale = RandomTensor(random, {shape[1]}),
                     bias = RandomTensor(random, {shape[1]});
        const Tensor mean = RandomTensor(random, {shape[1]});
        const Tensor var = RandomTensor(random, {shape[1]}, kFloat32, 0.5, 2);
        const BatchNormHandle handle(0.3, x);
        for (bool add : {false, true}) {
          const BatchNormCalls run{handle, scale, bias, true};
          const auto got = run(x, dy, add ? z : Tensor(), mean.Clone(), var.Clone());
          const auto want = run(wide(x, tag), wide(dy, tag), add ? wide(z, tag) : Tensor(),
                                mean.Clone(), var.Clone());
          for (size_t k = 0; k < std::size(kBatchNormResults); ++k)
            if (!got[k].empty()) ExpectEqual(got[k], want[k], kBatchNormResults[k]);
        }
      }
    }
  }
}

// Larger results than caches hold are written past them.
TEST(OnednnLayouts, BatchNormOfMuchBFloat16IsThatOfFloat32Rounded) {
  Random random(96);
  const Shape shape{4, 72, 179, 181};
  const Tensor x = RandomTensor(random, shape).AsType(kBFloat16).AsType(kFloat32);
  const Tensor one = Full({72}, 1), none = Full({72}, 0);
  const BatchNormCalls run{BatchNormHandle(0.1, x), one, none, true};
  for (Tag tag : kTags) {
    SCOPED_TRACE("tag " + std::to_string(int(tag)));
    const Tensor wide = In(x, tag), low = wide.AsType(kBFloat16);
    const auto want = run(wide, wide, wide, none.Clone(), one.Clone());
    const auto got = run(low, low, low, none.Clone(), one.Clone());
    for (size_t k = 0; k < std::size(kBatchNormResults); ++k) {
      if (got[k].empty()) continue;
      const Tensor rounded = want[k].AsType(got[k].data_type());
      ASSERT_TRUE(SameLayout(got[k].layout(), rounded.layout())) << kBatchNormResults[k];
      const size_t bytes = got[k].layout() ? got[k].layout()->bytes() : size_t(got[k].bytes());
      EXPECT_EQ(std::memcmp(got[k].raw_data(), rounded.raw_data(), bytes), 0)
          << kBatchNormResults[k];
    }
  }
}

TEST(OnednnLayouts, BatchNormDoesNotDependOnTheNumberOfThreads) {
  Random random(99);
  const int before = NumThreads();
  for (Tag tag : kTags) {
    for (int64_t channels : {16, 120}) {
      const Shape shape{5, channels, 40, 30};
      const Tensor x = In(RandomTensor(random, shape), tag),
                   z = In(RandomTensor(random, shape), tag);
      const Tensor dy = In(RandomTensor(random, shape), tag);
      const Tensor none = Full({channels}, 0), one = Full({channels}, 1);
      const BatchNormCalls run{BatchNormHandle(0.1, x), one, none, true};
      std::vector<std::vector<Vector>> results;
      for (int threads : {1, 2, 3, 8}) {
        SetNumThreads(threads);
        results.emplace_back();
        for (const Tensor& t : run(x, dy, z, none.Clone(), one.Clone()))
          results.back().push_back(t.empty() ? Vector() : Values(t));
        EXPECT_EQ(results.back(), results.front()) << threads << " threads";
      }
    }
  }
  SetNumThreads(before);
}

// Data far from zero, where an implementation that sums squares has no variance left.
TEST(OnednnLayouts, BatchNormOfDataFarFromZero) {
  Random random(92);
  for (double deviation : {0.01, 1.7}) {
    const Tensor x =
        RandomTensor(random, {16, 24, 16, 16}, kFloat32, 1000 - deviation, 1000 + deviation);
    const BatchNormHandle handle(0.1, x, 1e-12);
    PreferenceScope reference(Preference::kReference);
    const auto want = BatchNormForwardTraining(handle, x, {}, {}, {}, {});
    PreferenceScope fastest(Preference::kFastest);
    const double mean_error = 0.5 * 1000 * 0x1p-23;  // of rounding the mean to float32
    for (Tag tag : kTags) {
      const auto got = BatchNormForwardTraining(handle, In(x, tag), {}, {}, {}, {});
      const Vector mean = Values(want[1]), var = Values(want[2]);
      ExpectNear(got[1], mean, Vector(mean.size(), mean_error), "mean");
      Vector tolerance(var.size());
      for (size_t c = 0; c < var.size(); ++c) tolerance[c] = 8 * 0x1p-23 * var[c];
      ExpectNear(got[2], var, tolerance, "var");
      ExpectNear(got[0], Values(want[0]),
                 Vector(static_cast<size_t>(x.size()), 2 * mean_error / std::sqrt(var[0])), "y");
    }
  }
}

// Every 64 rows are summed around the first of them. The worst that can be: all others far from it.
TEST(OnednnLayouts, BatchNormWhereTheFirstValueIsFarFromTheOthers) {
  Random random(90);
  const Shape shape{4, 16, 16, 16};
  Vector values(static_cast<size_t>(shape.Count()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = (i % 256) % 64 == 0 ? -3e5 : random.Real(-1, 1);
  const Tensor x = test::FromValues(shape, values);
  const BatchNormHandle handle(0.1, x);
  PreferenceScope reference(Preference::kReference);
  const auto want = BatchNormForwardTraining(handle, x, {}, {}, {}, {});
  PreferenceScope fastest(Preference::kFastest);
  for (Tag tag : kTags) {
    const auto got = BatchNormForwardTraining(handle, In(x, tag), {}, {}, {}, {});
    for (int k : {1, 2}) {
      Vector tolerance = Values(want[k]);
      for (double& v : tolerance) v = 64 * 0x1p-23 * std::abs(v);
      ExpectNear(got[k], Values(want[k]), tolerance, k == 1 ? "mean" : "var");
    }
  }
}

TEST(OnednnLayouts, BatchNormAddsUpTwoGradients) {
  Random random(90);
  // The last is large enough to be written past the caches.
  for (const Shape& shape : {Shape{3, 20, 7, 5}, Shape{2, 64, 9, 8}, Shape{4, 64, 130, 130}}) {
    const Shape channels{shape[1]};
    const auto values = [&] { return RandomTensor(random, channels, kFloat32, 0.5, 2); };
    for (DType dtype : {kFloat32, kBFloat16}) {
      for (Tag tag : kTags) {
        const bool large = shape.Count() > (1 << 20);
        if (large && (dtype != kFloat32 || tag != Tag::nChw8c)) continue;
        const LayoutPtr layout = LayoutOf(shape, dtype, tag);
        BatchNormBackwardSpec spec{.shape = shape,
                                   .dtype = dtype,
                                   .has_y = true,
                                   .relu = true,
                                   .need_add = true,
                                   .x_layout = layout};
        const auto image = [&] { return In(RandomTensor(random, shape, dtype), tag); };
        const Tensor dy = image(), dy2 = image();
        const std::vector<Tensor> others = {image(), values(), values(), values(), {}, image()};
        const auto run = [&](const Tensor& gradient, const Tensor& second) {
          std::vector<Tensor> in = others;
          in.insert(in.begin(), gradient);
          in.push_back(second);
          std::vector<Tensor> out = {Tensor(DefaultDevice(), layout), Tensor(channels),
                                     Tensor(channels), Tensor(DefaultDevice(), layout)};
          const auto* kernel = Registry<BatchNormBackwardSpec>::Get().Find("onednn");
          DefaultDevice()->Exec(spec.op(), kernel->MakePlan(spec), in, out);
          std::vector<Vector> results;
          for (const Tensor& t : out) results.push_back(Values(t));
          return results;
        };
        const auto want = run(Binary(BinaryOp::kAdd, dy, dy2), Tensor());
        spec.has_dy2 = true;
        const std::string what = shape.ToString() + DTypeName(dtype) + LayoutName(layout);
        EXPECT_TRUE(run(dy, dy2) == want) << what;
      }
    }
  }
}

// The outputs that a plan says may take over an input's memory really may.
void CheckBatchNormInPlace(const Shape& shape, DType dtype) {
  Random random(89);
  const Shape channels{shape[1]};
  const auto data = [&] { return RandomTensor(random, shape, dtype); };
  const auto values = [&] { return RandomTensor(random, channels, kFloat32, 0.5, 2); };
  const auto check = [&](const auto& spec, const std::vector<Tensor>& inputs, size_t outputs) {
    const auto* kernel = Registry<std::decay_t<decltype(spec)>>::Get().Find("onednn");
    const PlanPtr plan = kernel->MakePlan(spec);
    const auto execute = [&](bool in_place) {
      std::vector<Tensor> in, out;
      for (size_t i = 0; i < inputs.size(); ++i) {
        const LayoutPtr layout = inputs[i].empty() ? nullptr : plan->input_layout(i);
        const Tensor own = inputs[i].empty() ? Tensor() : inputs[i].Clone();
        in.push_back(layout ? own.ToLayout(layout) : own);
      }
      for (size_t i = 0; i < outputs; ++i) {
        const int from = plan->inplace_input(i);
        const LayoutPtr layout = plan->output_layout(i);
        if (in_place && from >= 0) {
          out.push_back(in[static_cast<size_t>(from)]);
        } else if (layout) {
          out.emplace_back(DefaultDevice(), layout);
        } else {
          out.emplace_back(channels);
        }
      }
      in.resize(8);
      out.resize(5);
      DefaultDevice()->Exec(spec.op(), plan, in, out);
      out.resize(outputs);
      std::vector<Vector> results;
      for (const Tensor& t : out) results.push_back(Values(t));
      return results;
    };
    EXPECT_GE(plan->inplace_input(0), 0);
    EXPECT_EQ(execute(true), execute(false)) << plan->Describe();
  };
  for (Tag tag : kTags) {
    const LayoutPtr layout = LayoutOf(shape, dtype, tag);
    for (bool add : {true, false}) {
      for (bool training : {true, false}) {
        const BatchNormForwardSpec forward{.shape = shape,
                                           .dtype = dtype,
                                           .training = training,
                                           .has_add = add,
                                           .relu = true,
                                           .x_layout = layout};
        check(forward,
              {data(), values(), values(), training ? Tensor() : values(),
               training ? Tensor() : values(), add ? data() : Tensor()},
              training ? 3 : 1);
        const BatchNormBackwardSpec backward{.shape = shape,
                                             .dtype = dtype,
                                             .training = training,
                                             .has_bias = !add,
                                             .has_y = add,
                                             .relu = true,
                                             .need_add = add,
                                             .has_dy2 = add && training,
                                             .x_layout = layout};
        check(backward,
              {data(), data(), values(), values(), values(), add ? Tensor() : values(),
               add ? data() : Tensor(), backward.has_dy2 ? data() : Tensor()},
              add ? 4 : 3);
      }
    }
  }
}

TEST(OnednnLayouts, BatchNormInPlace) {
  for (DType dtype : {kFloat32, kBFloat16})
    for (int64_t channels : {20, 51, 104}) CheckBatchNormInPlace({3, channels, 7, 5}, dtype);
}

struct Pool {
  std::vector<int64_t> kernel, stride, padding, dilation;
  int mode;
  bool ceil_mode;
};

Pool RandomPool(Random& random, const Shape& shape) {
  for (;;) {
    Pool p;
    p.kernel = {random.Int(1, 4), random.Int(1, 4)};
    p.stride = {random.Int(1, 3), random.Int(1, 3)};
    p.dilation = random.Int(0, 4) ? std::vector<int64_t>{1, 1}
                                  : std::vector<int64_t>{random.Int(1, 2), random.Int(1, 2)};
    const int64_t h = p.dilation[0] * (p.kernel[0] - 1), w = p.dilation[1] * (p.kernel[1] - 1);
    p.padding = {random.Int(0, h), random.Int(0, w), random.Int(0, h), random.Int(0, w)};
    p.mode = static_cast<int>(random.Int(0, 2));
    p.ceil_mode = random.Coin();
    if (shape[2] + p.padding[0] + p.padding[2] > h && shape[3] + p.padding[1] + p.padding[3] > w)
      return p;
  }
}

TEST(OnednnLayouts, Pooling) {
  Random random(93);
  int averages = 0;
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Int(0, 3) == 0 ? kBFloat16 : kFloat32;
    const Shape shape{random.Int(1, 4), random.Int(2, 50), random.Int(2, 12), random.Int(1, 12)};
    const Pool p = RandomPool(random, shape);
    SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)) +
                 " mode " + std::to_string(p.mode));
    const Tensor x = RandomTensor(random, shape, dtype);
    const PoolingHandle handle(x, p.kernel, p.stride, p.padding, p.mode == 0, p.ceil_mode,
                               p.mode == 2, p.dilation);
    const Tensor dy = RandomTensor(random, handle.recorder.output_shape(), dtype);
    const Tensor xb = In(x, tag), dyb = In(dy, tag);
    const auto run = [&](const Tensor& x, const Tensor& dy) {
      const auto out = PoolingForward(handle, x);
      return std::vector<Tensor>{out[0], out[1], PoolingBackward(handle, dy, x, out[0], out[1]),
                                 PoolingBackward(handle, dy, x, {}, {})};
    };
    PreferenceScope reference(Preference::kReference);
    const auto want = run(x, dy);
    PreferenceScope fastest(Preference::kFastest);
    const uint64_t reorders = Reorders();
    const auto got = run(xb, dyb);
    const bool willing =
        Refusal(PoolingForwardSpec{handle.recorder, handle.mode, dtype, false, xb.layout()})
            .empty() &&
        Refusal(PoolingBackwardSpec{handle.recorder, handle.mode, dtype, true, xb.layout(),
                                    dyb.layout()})
            .empty();
    const double exact = p.mode == 0 ? 0 : 32 * 0x1p-23;
    const char* names[] = {"y", "saved", "dx", "dx, nothing saved"};
    EXPECT_TRUE(!willing || Reorders() == reorders);
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_EQ(got[k].empty(), want[k].empty()) << names[k];
      if (got[k].empty()) continue;
      ExpectSame(got[k], want[k], k < 2 ? exact : 32 * 0x1p-23, names[k]);
      if (willing) ExpectIn(got[k], tag, names[k]);
    }
    EXPECT_TRUE(willing || p.mode != 0) << "a maximum was refused";
    averages += willing && p.mode != 0;
  }
  EXPECT_TRUE(averages > 30 || !HasAvx512()) << averages;
}

TEST(OnednnLayouts, MaximumOfNanAndInfinity) {
  for (Tag tag : kTags) {
    Vector values(2 * 20 * 16, -kInf);
    for (size_t i = 5; i < values.size(); i += 16) values[i] = std::nan("");
    const Tensor x = In(test::FromValues({2, 20, 4, 4}, values), tag);
    const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
    const auto out = PoolingForward(handle, x);
    EXPECT_TRUE(out[0].is_blocked());
    const Vector y = Values(out[0]), saved = Values(out[1]);
    for (size_t o = 0; o < y.size(); ++o) {
      // Position 5 is in the first of four windows; the others find their first element.
      EXPECT_TRUE(o % 4 == 0 ? std::isnan(y[o]) : y[o] == -kInf) << y[o] << " at " << o;
      EXPECT_EQ(saved[o], Vector({5, 2, 8, 10})[o % 4]) << o;
    }
  }
}

// What forward saved is read even when a tensor has become plain in between.
TEST(OnednnLayouts, SavedOutlivesALayout) {
  Random random(94);
  const Tensor x = RandomTensor(random, {2, 32, 8, 8}), dy = RandomTensor(random, {2, 32, 4, 4});
  const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
  const auto plain = PoolingForward(handle, x);
  const Vector want = Values(PoolingBackward(handle, dy, x, plain[0], plain[1]));
  const Tensor xb = In(x, Tag::nChw16c);
  const auto out = PoolingForward(handle, xb);
  ASSERT_TRUE(out[1].is_blocked());
  EXPECT_EQ(Values(PoolingBackward(handle, dy, xb, out[0], out[1].Plain())), want);
  EXPECT_EQ(Values(PoolingBackward(handle, dy, xb.Plain(), out[0], out[1])), want);

  const Tensor g = RandomTensor(random, {2, 32, 8, 8});
  const auto lrn = LrnForward(x, 5, 1);
  const Tensor want_lrn = LrnBackward(g, x, lrn[0], lrn[1], 5, 1, 0.75, 1);
  const auto lrn_b = LrnForward(xb, 5, 1);
  for (const Tensor& at : {xb, xb.Plain()})
    for (const Tensor& saved : {lrn_b[1], lrn_b[1].Plain()})
      ExpectSame(LrnBackward(g, at, lrn_b[0], saved, 5, 1, 0.75, 1), want_lrn, 64 * 0x1p-23, "dx");
}

// Overlapping windows of a gradient of which every sum is exact in float32, and few in bfloat16: it
// is rounded once. NaN and infinity reach the pixels that their windows read, and no other.
TEST(OnednnLayouts, AverageGradientsOfBFloat16AreRoundedOnce) {
  Random random(99);
  for (Tag tag : kTags) {
    for (int64_t channels : {3, 16, 21, 40}) {
      for (bool strange : {false, true}) {
        SCOPED_TRACE("tag " + std::to_string(int(tag)) + " channels " + std::to_string(channels));
        const Shape shape{2, channels, 9, 11};
        const PoolingHandle handle(
            Tensor(shape), {4, 4}, {1, 2}, {3, 3, 2, 2}, false, false, true,
            random.Coin() ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{2, 1});
        const Shape output = handle.recorder.output_shape();
        Vector values(static_cast<size_t>(output.Count()));
        for (double& v : values) v = static_cast<double>(random.Int(-255, 255));
        if (strange) values[17] = std::nan(""), values[40] = kInf, values[61] = -kInf;
        const Tensor dy = test::FromValues(output, values, kBFloat16);
        PreferenceScope reference(Preference::kReference);
        const Tensor wide = PoolingBackward(handle, dy.AsType(kFloat32), Tensor(shape), {}, {});
        const Vector want = Values(wide.AsType(kBFloat16));
        PreferenceScope fastest(Preference::kFastest);
        const Tensor dyb = In(dy, tag);
        const uint64_t reorders = Reorders();
        const Tensor dx = PoolingBackward(handle, dyb, {}, {}, {});
        EXPECT_EQ(Reorders(), reorders);
        ExpectIn(dx, tag, "dx");
        const Vector got = Values(dx);
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
              << "dx[" << i << "] is " << got[i] << ", expected " << want[i];
      }
    }
  }
}

TEST(OnednnLayouts, MaxPoolingOfNaNAndInfinity) {
  Random random(94);
  const double strange[] = {std::nan(""), kInf, -kInf, 0, -0.0, 1};
  for (Tag tag : kTags) {
    for (DType dtype : {kFloat32, kBFloat16}) {
      for (int64_t channels : {3, 16, 33}) {
        const Shape shape{2, channels, 8, 6};
        SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)));
        const auto image = [&](const Shape& shape) {
          Vector values(static_cast<size_t>(shape.Count()));
          for (double& v : values) v = strange[random.Int(0, 5)];
          return test::FromValues(shape, values, dtype);
        };
        const Tensor x = image(shape);
        const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});  // no gradient is a sum
        const Tensor dy = image(handle.recorder.output_shape());
        const auto run = [&](const Tensor& x, const Tensor& dy, Preference preference) {
          PreferenceScope scope(preference);
          const auto out = PoolingForward(handle, x);
          return std::vector<Tensor>{out[0], PoolingBackward(handle, dy, x, out[0], out[1])};
        };
        const auto want = run(x, dy, Preference::kReference);
        const auto got = run(In(x, tag), In(dy, tag), Preference::kFastest);
        ExpectEqual(got[0], want[0], "y");
        ExpectEqual(got[1], want[1], "dx");
      }
    }
  }
}

TEST(OnednnLayouts, GlobalAveragePool) {
  Random random(95);
  for (Tag tag : kTags) {
    for (int64_t channels : {17, 64}) {
      const Tensor x = RandomTensor(random, {3, channels, 7, 7});
      const Tensor dy = RandomTensor(random, {3, channels, 1, 1});
      const uint64_t reorders = Reorders();
      const Tensor xb = In(x, tag);
      const Tensor y = GlobalAveragePoolForward(xb);
      EXPECT_TRUE(Reorders() == reorders + 1 || !HasAvx512());
      ExpectSame(y, GlobalAveragePoolForward(x), 32 * 0x1p-23, "y");
      const PoolingHandle handle(x, {7, 7}, {1, 1}, {0, 0}, false);
      const Tensor dx = PoolingBackward(handle, dy, xb, {}, {});
      const Tensor beside_x = GlobalAveragePoolBackward(dy, x.shape(), xb);
      if (HasAvx512()) ExpectIn(dx, tag, "dx"), ExpectIn(beside_x, tag, "dx");
      ExpectSame(dx, GlobalAveragePoolBackward(dy, x.shape()), 8 * 0x1p-23, "dx");
      ExpectSame(beside_x, dx, 0, "dx");
    }
  }
}

TEST(OnednnLayouts, Lrn) {
  Random random(96);
  int taken = 0;
  for (int i = 0; i < 100 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = AnyType(random);
    const int64_t channels = random.Coin() ? 16 * random.Int(1, 4) : random.Int(2, 70);
    const Shape shape{random.Int(1, 3), channels, random.Int(2, 9), random.Int(1, 9)};
    const int64_t size = random.Coin() ? 5 : random.Int(1, 9);
    const double alpha = random.Coin() ? 1e-4 : 1, beta = random.Int(0, 3) ? 0.75 : 0.5;
    const double k = random.Coin() ? 1 : 2;
    SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)) +
                 " size " + std::to_string(size));
    const Tensor x = RandomTensor(random, shape, dtype, -2, 2);
    const Tensor dy = RandomTensor(random, shape, dtype);
    const Tensor xb = In(x, tag), dyb = In(dy, tag);
    PreferenceScope reference(Preference::kReference);
    const auto want = LrnForward(x, size, alpha, beta, k);
    const Tensor dx = LrnBackward(dy, x, want[0], want[1], size, alpha, beta, k);
    PreferenceScope fastest(Preference::kFastest);
    const uint64_t reorders = Reorders();
    const auto got = LrnForward(xb, size, alpha, beta, k);
    const Tensor dxb = LrnBackward(dyb, xb, got[0], got[1], size, alpha, beta, k);
    const bool willing =
        Refusal(LrnForwardSpec{shape, dtype, size, alpha, beta, k, true, xb.layout()}).empty();
    if (willing) {
      EXPECT_EQ(Reorders(), reorders);
      ExpectIn(got[0], tag, "y");
      ExpectIn(dxb, tag, "dx");
      ++taken;
    }
    ExpectSame(got[0], want[0], 64 * 0x1p-23, "y");
    ExpectSame(dxb, dx, 64 * 0x1p-23, "dx");
    ExpectSame(LrnForward(xb, size, alpha, beta, k, false)[0], want[0], 64 * 0x1p-23, "inference");
  }
  EXPECT_TRUE(taken > 12 || !HasAvx512()) << taken;
}

TEST(OnednnLayouts, SoftmaxOfABlockedTensor) {
  Random random(97);
  const Tensor x = RandomTensor(random, {2, 20, 3, 4});
  for (int axis = 0; axis < 4; ++axis)
    EXPECT_EQ(Values(Softmax(In(x, Tag::nChw16c), axis)), Values(Softmax(x, axis)));
}

TEST(OnednnLayouts, KernelsRefuseWithAReason) {
  const Shape shape{2, 16, 4, 4};
  EXPECT_NE(Refusal(BatchNormForwardSpec{.shape = shape}).find("row-major"), std::string::npos);
  EXPECT_NE(Refusal(BatchNormForwardSpec{.shape = shape, .dtype = kFloat64}).find("float64"),
            std::string::npos);
  EXPECT_NE(Refusal(LrnForwardSpec{.shape = shape, .size = 4}).find("even"), std::string::npos);
  EXPECT_NE(Refusal(LrnBackwardSpec{.shape = shape}).find("another implementation"),
            std::string::npos);
  EXPECT_NE(Refusal(SoftmaxSpec{.outer = 2, .axis = 3, .inner = 4}).find("innermost"),
            std::string::npos);
  if (HasAvx512()) {
    EXPECT_EQ(Refusal(SoftmaxSpec{.outer = 2, .axis = 300}), "");
    EXPECT_EQ(Refusal(BatchNormForwardSpec{.shape = {8, 64}}), "");
  }
}

}  // namespace
}  // namespace singa

#include "backend/onednn/engine.h"

#include <omp.h>

#include <cstring>
#include <thread>

#include "model/dispatch/dispatch.h"
#include "model/operation/conv/spec.h"
#include "model/operation/layout/reorder_spec.h"
#include "singa/core/stats.h"
#include "singa/operation/conv.h"
#include "support.h"

namespace singa::onednn {
namespace {

using namespace test;

using dnnl::memory;
using Tag = memory::format_tag;

memory::desc Desc(const Shape& shape, Tag tag) {
  return memory::desc(Dims(shape), memory::data_type::f32, tag);
}

LayoutPtr Layout(const Shape& shape, Tag tag, const char* letters = nullptr) {
  return FromDesc(Desc(shape, tag), shape, kFloat32, letters);
}

TEST(BlockedLayout, Tags) {
  const Shape x = {2, 20, 5, 7}, w = {32, 20, 3, 3}, grouped = {4, 8, 5, 3, 3};
  EXPECT_EQ(LayoutName(Layout(x, Tag::nChw16c)), "nChw16c");
  EXPECT_EQ(LayoutName(Layout(x, Tag::nChw8c)), "nChw8c");
  EXPECT_EQ(LayoutName(Layout(x, Tag::nhwc)), "nhwc");
  EXPECT_EQ(LayoutName(Layout({2, 20, 7}, Tag::nCw16c)), "nCw16c");
  EXPECT_EQ(LayoutName(Layout({2, 20}, Tag::ba)), "cn");
  EXPECT_EQ(LayoutName(Layout(w, Tag::OIhw16i16o, "oihw")), "OIhw16i16o");
  EXPECT_EQ(LayoutName(Layout(w, Tag::Ohwi16o, "oihw")), "Ohwi16o");
  EXPECT_EQ(LayoutName(Layout(grouped, Tag::gOIhw8i8o, "goihw")), "gOIhw8i8o");
  EXPECT_STREQ(Layout(x, Tag::nhwc)->backend(), "cpu");
}

TEST(BlockedLayout, PlainIsNull) {
  EXPECT_EQ(Layout({2, 20, 5, 7}, Tag::nchw), nullptr);
  // With one channel or one pixel, channels-last is row-major whatever its strides.
  EXPECT_EQ(Layout({2, 1, 5, 7}, Tag::nhwc), nullptr);
  EXPECT_EQ(Layout({2, 20, 1, 1}, Tag::nhwc), nullptr);
  EXPECT_NE(Layout({2, 20, 1, 2}, Tag::nhwc), nullptr);
  // An empty descriptor is plain, too.
  EXPECT_EQ(FromDesc(memory::desc(), {0}, kFloat32), nullptr);
}

TEST(BlockedLayout, EqualityAndHash) {
  const Shape x = {2, 20, 5, 7};
  const LayoutPtr a = Layout(x, Tag::nChw16c), b = Layout(x, Tag::nChw16c);
  EXPECT_TRUE(SameLayout(a, b));
  EXPECT_EQ(a->hash(), b->hash());
  EXPECT_FALSE(SameLayout(a, Layout(x, Tag::nhwc)));
  EXPECT_FALSE(SameLayout(a, Layout(x, Tag::nChw8c)));
  EXPECT_FALSE(SameLayout(a, Layout({2, 32, 5, 7}, Tag::nChw16c)));
  EXPECT_FALSE(SameLayout(a, nullptr));
  // Strides of axes of length 1 do not matter.
  const Shape one = {1, 20, 5, 7};
  const memory::desc odd(Dims(one), memory::data_type::f32, memory::dims{12345, 1, 140, 20});
  EXPECT_TRUE(SameLayout(Layout(one, Tag::nhwc), FromDesc(odd, one, kFloat32)));
}

TEST(BlockedLayout, CastsKeepIt) {
  Random random(12);
  const Shape x = {2, 20, 5, 7}, w = {40, 20, 3, 3}, grouped = {4, 8, 5, 3, 3};
  for (const LayoutPtr& layout :
       {Layout(x, Tag::nChw16c), Layout(x, Tag::nChw8c), Layout(x, Tag::nhwc),
        Layout(w, Tag::OIhw16i16o, "oihw"), Layout(w, Tag::OIhw8i16o2i, "oihw"),
        Layout(w, Tag::Ohwi8o, "oihw"), Layout(grouped, Tag::gOIhw8i8o, "goihw")}) {
    SCOPED_TRACE(LayoutName(layout));
    const Tensor plain = RandomTensor(random, layout->shape()), there = plain.ToLayout(layout);
    const uint64_t reorders = GetReorderStats().count;
    const Tensor low = there.AsType(kBFloat16), back = low.AsType(kFloat32);
    EXPECT_EQ(GetReorderStats().count, reorders);
    ASSERT_TRUE(low.layout());
    EXPECT_EQ(low.layout()->dtype(), kBFloat16);
    EXPECT_EQ(LayoutName(low.layout()), LayoutName(layout));
    EXPECT_TRUE(SameLayout(back.layout(), layout)) << LayoutName(back.layout());
    const Tensor rounded = plain.AsType(kBFloat16);
    EXPECT_EQ(Values(low), Values(rounded));
    EXPECT_EQ(Values(back), Values(rounded));
    std::vector<char> packed(low.layout()->bytes());
    low.layout()->Pack(rounded.raw_data(), packed.data());
    EXPECT_EQ(std::memcmp(packed.data(), low.raw_data(), packed.size()), 0)
        << "padding is not zero";
    EXPECT_EQ(Values(low.AsType(kFloat32).SliceAxis(1, 1, 5)), Values(rounded.SliceAxis(1, 1, 5)));
    for (DType other : {kFloat64, kFloat16, kInt32}) {
      EXPECT_FALSE(there.AsType(other).layout());
      EXPECT_EQ(Values(there.AsType(other)), Values(plain.AsType(other)));
    }
  }
}

TEST(BlockedLayout, PackAndUnpackKeepValuesAndPadWithZeros) {
  Random random(1);
  const Shape shape = {2, 20, 3, 5};
  const Tensor plain = RandomTensor(random, shape);
  for (Tag tag : {Tag::nChw16c, Tag::nhwc, Tag::nChw8c}) {
    const LayoutPtr layout = Layout(shape, tag);
    std::vector<float> packed(layout->bytes() / sizeof(float), 1e30f);
    layout->Pack(plain.raw_data(), packed.data());
    double sum = 0;
    for (float v : packed) sum += v;
    double expected = 0;
    for (double v : Values(plain)) expected += v;
    EXPECT_NEAR(sum, expected, 1e-3) << "padding is not zero";
    Tensor back(shape);
    layout->Unpack(packed.data(), back.raw_data());
    EXPECT_EQ(Values(back), Values(plain));
  }
}

TEST(BlockedLayout, TensorsReorderBetweenAnyTwo) {
  Random random(2);
  const Shape shape = {3, 18, 4, 6};
  const Tensor plain = RandomTensor(random, shape);
  const LayoutPtr layouts[] = {nullptr, Layout(shape, Tag::nChw16c), Layout(shape, Tag::nhwc),
                               Layout(shape, Tag::nChw8c)};
  for (const LayoutPtr& from : layouts)
    for (const LayoutPtr& to : layouts) {
      const Tensor t = plain.ToLayout(from).ToLayout(to);
      EXPECT_TRUE(SameLayout(t.layout(), to));
      EXPECT_EQ(Values(t), Values(plain)) << LayoutName(from) << " to " << LayoutName(to);
    }
}

TEST(Reorder, DirectWhereAxesAgreeElseThroughPlain) {
  const Shape w = {8, 4, 3, 3};
  const LayoutPtr ungrouped = Layout(w, Tag::OIhw4i4o, "oihw");
  const LayoutPtr grouped = FromDesc(
      memory::desc({2, 4, 4, 3, 3}, memory::data_type::f32, Tag::gOIhw4i4o), w, kFloat32, "goihw");
  const DevicePtr device = DefaultDevice();
  const LayoutPtr nhwc = Layout(w, Tag::nhwc);
  auto implementation = [&](const LayoutPtr& from, const LayoutPtr& to) {
    return std::string(FindPlan(*device, ReorderSpec{from, to, w, kFloat32})->implementation());
  };
  EXPECT_NE(implementation(ungrouped, nhwc), "reference");
  EXPECT_NE(implementation(nullptr, grouped), "reference");
  EXPECT_EQ(implementation(ungrouped, grouped), "reference");
  Random random(3);
  const Tensor plain = RandomTensor(random, w);
  EXPECT_EQ(Values(plain.ToLayout(ungrouped).ToLayout(grouped)), Values(plain));
}

TEST(Reorder, PlansAreReused) {
  Random random(4);
  const Shape shape = {1, 17, 3, 3};
  const Tensor plain = RandomTensor(random, shape);
  const LayoutPtr layout = Layout(shape, Tag::nChw16c);
  plain.ToLayout(layout).Plain();
  const uint64_t misses = GetPlanCacheStats().misses;
  for (int i = 0; i < 5; ++i)  // an equal layout in another object
    EXPECT_EQ(Values(plain.ToLayout(Layout(shape, Tag::nChw16c)).Plain()), Values(plain));
  EXPECT_EQ(GetPlanCacheStats().misses, misses);
}

/// A convolution of 18 to 20 channels, with its plan from the cache.
struct Example {
  Example() {
    Random random(5);
    const Recorder g =
        ConvRecorder("test", {2, 18, 9, 9}, {3, 3}, {2, 2}, {1, 1}, 20, true, {1, 1}, 1);
    handle = std::make_unique<ConvHandle>(g, size_t{1} << 30, "fastest");
    x = RandomTensor(random, g.input_shape());
    w = RandomTensor(random, g.weight_shape());
    b = RandomTensor(random, {20});
    dy = RandomTensor(random, g.output_shape());
    spec.geometry = g;
    plan = FindPlan(*x.device(), spec);
  }
  Tensor x, w, b, dy;
  std::unique_ptr<ConvHandle> handle;
  ConvSpec spec = CurrentSpec<ConvSpec>();
  PlanPtr plan;
};

TEST(DnnlConv, IsNoReferenceAndSaysWhatItIs) {
  const Example e;
  EXPECT_STREQ(e.plan->implementation(), "onednn");
  EXPECT_EQ(e.plan->Describe().find("onednn "), 0u) << e.plan->Describe();
  EXPECT_EQ(e.plan->Describe().find("ref"), std::string::npos) << e.plan->Describe();
  EXPECT_GT(e.plan->bytes(), 0u);
}

TEST(DnnlConv, RefusesWithReasons) {
  const Kernel* kernel = FindKernel<ConvSpec>("onednn");
  ASSERT_NE(kernel, nullptr);
  ConvSpec spec = Example().spec;
  EXPECT_EQ(kernel->Make(spec).reason(), "");
  spec.dtype = kFloat64;
  EXPECT_EQ(kernel->Make(spec).reason(), "float64 is not supported");
  spec.dtype = kFloat32;
  spec.pass = ConvPass::kBackwardB;
  EXPECT_NE(kernel->Make(spec).reason(), "");
}

TEST(DnnlConv, TheBiasGradientAloneIsSummedWhereDyLies) {
  Random random(8);
  // Many pixels; more channels than a row holds; one pixel; a partial block. Odd numbers of
  // channels matter for bfloat16.
  for (const Shape& shape : {Shape{3, 20, 31, 17}, Shape{1, 300, 5, 7}, Shape{4, 2100, 6, 6},
                             Shape{3, 21, 31, 17}, Shape{5, 33, 1, 1}, Shape{200, 3, 1, 1}}) {
    const Recorder g =
        ConvRecorder("test", shape, {1, 1}, {1, 1}, {0, 0}, shape[1], true, {1, 1}, 1);
    const ConvHandle handle(g);
    const DType dtype = shape[1] % 2 == 0 ? kFloat32 : kBFloat16;
    const Tensor dy = RandomTensor(random, shape, dtype);
    const Vector values = Values(dy);
    const size_t pixels = static_cast<size_t>(shape[2] * shape[3]);
    Vector sums(static_cast<size_t>(shape[1]), 0.0);
    for (size_t i = 0; i < values.size(); ++i) sums[i / pixels % sums.size()] += values[i];
    const double terms = static_cast<double>(shape[0]) * static_cast<double>(pixels);
    const Vector tolerance(sums.size(), 8 * 0x1p-23 * terms);
    for (Tag tag : {Tag::nhwc, Tag::nChw8c, Tag::nChw16c}) {
      const dnnl::memory::desc desc(onednn::Dims(shape), onednn::DataTypeOf(dtype), tag);
      const Tensor there = dy.ToLayout(onednn::FromDesc(desc, shape, dtype));
      const uint64_t reorders = GetReorderStats().count;
      const Tensor db = ConvBackwardB(there, handle);
      EXPECT_EQ(GetReorderStats().count, reorders);
      ExpectNear(db, sums, tolerance, LayoutName(there.layout()));
      const ThreadCount one(1);
      EXPECT_EQ(Values(ConvBackwardB(there, handle)), Values(db)) << "on one thread";
    }
  }
}

TEST(DnnlConv, PaddingOfResultsIsZero) {
  const Example e;
  const Tensor y = ConvForward(e.x, e.w, e.b, *e.handle);
  if (!y.is_blocked()) GTEST_SKIP() << "this CPU's kernel works on plain tensors";
  // Packing the plain values again writes zeros to the padding.
  std::vector<char> again(y.layout()->bytes());
  y.layout()->Pack(y.Plain().raw_data(), again.data());
  EXPECT_EQ(std::memcmp(again.data(), y.raw_data(), again.size()), 0);
}

TEST(DnnlConv, NeighboursPassTheLayoutOn) {
  const Example e;
  const Recorder g =
      ConvRecorder("test", {2, 20, 9, 9}, {3, 3}, {1, 1}, {1, 1}, 33, false, {1, 1}, 1);
  const ConvHandle second(g, size_t{1} << 30, "fastest");
  Random random(6);
  const Tensor w2 = RandomTensor(random, g.weight_shape());
  const Tensor y1 = ConvForward(e.x, e.w, e.b, *e.handle);
  RecordReorders(true);
  TakeReorders();
  const Tensor y2 = ConvForward(y1, w2, Tensor(), second);
  const std::vector<Tensor> gradients = ConvBackward(y2, y1, w2, second, true, true, false);
  const std::vector<ReorderRecord> reorders = TakeReorders();
  RecordReorders(false);
  if (!y1.is_blocked()) GTEST_SKIP() << "this CPU's kernel works on plain tensors";
  // W twice and dW once; no activation.
  EXPECT_LE(reorders.size(), 3u);
  for (const ReorderRecord& r : reorders) EXPECT_EQ(r.bytes, w2.bytes()) << r.from << " " << r.to;
  EXPECT_TRUE(SameLayout(gradients[0].layout(), y1.layout()));
}

TEST(DnnlConv, OnePlanServesSeveralThreads) {
  const Example e;
  const Vector expected = Values(ConvForward(e.x, e.w, e.b, *e.handle));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i)
        if (Values(ConvForward(e.x, e.w, e.b, *e.handle)) != expected) ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(DnnlConv, WithAndWithoutThePlanCacheTheSameBits) {
  const Example e;
  const Vector cached = Values(ConvForward(e.x, e.w, e.b, *e.handle));
  EXPECT_EQ(dnnl::get_primitive_cache_capacity(), 0);
  EnablePlanCache(false);
  const Vector fresh = Values(ConvForward(e.x, e.w, e.b, *e.handle));
  const int capacity = dnnl::get_primitive_cache_capacity();
  EnablePlanCache(true);
  EXPECT_EQ(fresh, cached);
  if (!std::getenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY")) {
    EXPECT_GT(capacity, 0);
  }
}

TEST(DnnlConv, WorkspaceLimitIsKept) {
  const Example e;
  for (ConvPass pass : {ConvPass::kForward, ConvPass::kBackwardX, ConvPass::kBackwardW}) {
    ConvSpec spec = e.spec;
    spec.pass = pass;
    for (size_t limit : {size_t{0}, size_t{1} << 12, size_t{1} << 30}) {
      PlanPtr plan;
      try {
        plan = FindPlan(*e.x.device(), spec, {Preference::kLimitedWorkspace, limit});
      } catch (const Unavailable&) {
        continue;  // nothing fits, which is reported
      }
      EXPECT_LE(plan->workspace_bytes(), limit);
    }
  }
}

TEST(DnnlErrors, BecomeOurs) {
  EXPECT_ERROR(std::runtime_error, "[Op] oneDNN: no",
               Rethrow("Op", dnnl::error(dnnl_unimplemented, "no")));
  EXPECT_ERROR(OutOfMemory, "[Op] oneDNN: full",
               Rethrow("Op", dnnl::error(dnnl_out_of_memory, "full")));
  EXPECT_THROW(Guarded("Op",
                       [] {
                         return memory::desc({-1, -7}, memory::data_type::f32, Tag::nc).get_size();
                       }),
               std::runtime_error);
}

TEST(ThreadScope, SaysOurNumberAndRestoresTheOther) {
  const int before = omp_get_max_threads();
  {
    const ThreadScope scope(before + 3);
    EXPECT_EQ(omp_get_max_threads(), before + 3);
  }
  EXPECT_EQ(omp_get_max_threads(), before);
}

}  // namespace
}  // namespace singa::onednn

#include "core/tensor/kept_copy.h"

#include <utility>

#include "core/graph/recorded_step.h"
#include "core/layout/blocked_layout.h"
#include "singa/core/device.h"
#include "singa/core/stats.h"
#include "support.h"

namespace singa::test {
namespace {

LayoutPtr Named(const char* name, const Shape& shape) {
  return BlockedLayoutNamed(name, shape, kFloat32);
}
const Shape kShape{4, 6, 3, 3};
constexpr size_t kBytes = 4 * 6 * 9 * sizeof(float);

/// A tensor of which a copy in this layout is kept.
Tensor Kept(const LayoutPtr& layout) {
  const Tensor t = Iota(kShape);
  InKeptLayout(t, layout);
  InKeptLayout(t, layout);
  return t;
}

TEST(KeptCopy, TheSecondCopyIsKept) {
  const Tensor t = Iota(kShape);
  const LayoutPtr first = Named("nhwc", kShape), second = Named("Ihwo2i", kShape);
  ASSERT_TRUE(first);
  ASSERT_TRUE(second);
  const uint64_t reorders = GetReorderStats().count;
  EXPECT_NE(InKeptLayout(t, first).block(), InKeptLayout(t, first).block());
  InKeptLayout(t, second);
  EXPECT_EQ(t.block()->copied_bytes(), kBytes);
  EXPECT_EQ(GetReorderStats().count, reorders + 3);
  const Tensor kept = InKeptLayout(t, first);
  EXPECT_EQ(kept.block(), InKeptLayout(t, Named("nhwc", kShape)).block());
  EXPECT_EQ(kept.layout()->ToString(), "nhwc");
  EXPECT_EQ(GetReorderStats().count, reorders + 3);
  EXPECT_EQ(Floats(kept), Floats(t));
  InKeptLayout(t, second);
  EXPECT_EQ(t.block()->copied_bytes(), 2 * kBytes);
  EXPECT_EQ(InKeptLayout(t, nullptr).block(), t.block());
}

TEST(KeptCopy, ARowMajorCopyOfAnOpaqueTensorIsKept) {
  const Tensor t = Iota(kShape), opaque = t.ToLayout(Named("nhwc", kShape));
  InKeptLayout(opaque, nullptr);
  InKeptLayout(opaque, nullptr);
  EXPECT_EQ(InKeptLayout(opaque, nullptr).block(), InKeptLayout(opaque, nullptr).block());
  EXPECT_EQ(Floats(InKeptLayout(opaque, nullptr)), Floats(t));
}

TEST(KeptCopy, WritesAndMovesDropIt) {
  const LayoutPtr layout = Named("nhwc", kShape);
  const std::vector<std::pair<const char*, std::function<void(const Tensor&)>>> changes = {
      {"fill", [](const Tensor& t) { Tensor(t).Fill(3); }},
      {"fill with zeros", [](const Tensor& t) { Tensor(t).Fill(0); }},
      {"copy", [](const Tensor& t) { Tensor(t).CopyFrom(Full(kShape, 2)); }},
      {"view", [](const Tensor& t) { t.SliceAxis(0, 1, 2).Fill(5); }},
      {"host",
       [](const Tensor& t) {
         const float value = 9;
         Tensor(t).CopyFromHost(&value, sizeof(value), 8);
       }},
      {"exported",
       [](const Tensor& t) {
         t.block()->Pin();
         static_cast<float*>(t.raw_data())[7] = -1;
         t.block()->Unpin();
       }},
      {"the user's function",
       [](const Tensor& t) {
         t.device()->Exec(
             [](const BlockPointers& pointers) { static_cast<float*>(pointers.writes[0])[3] = -4; },
             {}, {t.block()});
       }},
      {"another layout", [](const Tensor& t) { t.block()->MakeLayout(Named("Ihwo2i", kShape)); }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    const Tensor t = Kept(layout);
    EXPECT_EQ(t.block()->copied_bytes(), kBytes);
    change(t);
    EXPECT_EQ(t.block()->copied_bytes(), 0u);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Floats(InKeptLayout(t, layout)), Floats(t));
    EXPECT_EQ(t.block()->copied_bytes(), kBytes);
  }
}

TEST(KeptCopy, NothingIsKeptOfWhatOthersMayWrite) {
  const LayoutPtr layout = Named("nhwc", kShape);
  std::vector<float> memory(kBytes / sizeof(float), 1.0f);
  const auto wrapped = std::make_shared<Block>(DefaultDevice(), memory.data(), kBytes, [] {});
  const Tensor pinned = Iota(kShape), lent = Iota(kShape), twice = Iota({8, 6, 3, 3});
  pinned.block()->Pin();
  lent.block()->Bind(memory.data());
  for (const Tensor& t : {Tensor(wrapped, kShape, ContiguousStrides(kShape), 0, kFloat32), pinned,
                          lent, twice.SliceAxis(0, 0, 4), twice.SliceAxis(0, 4, 8)}) {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Floats(InKeptLayout(t, layout)), Floats(t));
    EXPECT_EQ(t.block()->copied_bytes(), 0u);
  }
  memory[5] = 7;
  EXPECT_EQ(Floats(InKeptLayout(Tensor(wrapped, kShape, ContiguousStrides(kShape), 0, kFloat32),
                                layout))[5],
            7);
  pinned.block()->Unpin();
}

TEST(KeptCopy, RecordedStepsKeepNothing) {
  const LayoutPtr layout = Named("nhwc", kShape);
  const Tensor t = Kept(layout);
  RecordedStep step(nullptr, nullptr);
  step.Start({});
  const Tensor copy = InKeptLayout(t, layout);
  EXPECT_NE(copy.block(), Tensor(InKeptLayout(t, layout)).block());
  step.Finish({copy}, true);
  EXPECT_EQ(step.nodes().size(), 2u);
  EXPECT_EQ(Floats(copy), Floats(t));
}

TEST(KeptCopy, AFewLayoutsAreKept) {
  const Tensor t = Iota(kShape);
  for (const char* name : {"nhwc", "Ihwo2i", "Ohwi2o", "hwio", "Nchw2n", "Nchw4n"}) {
    const LayoutPtr layout = Named(name, kShape);
    for (int i = 0; layout && i < 3; ++i)
      EXPECT_EQ(Floats(InKeptLayout(t, layout)), Floats(t)) << name;
  }
  EXPECT_LE(t.block()->copied_bytes(), 4 * kBytes);
}

TEST(KeptCopy, ABlockMovesWhereItWasWantedLast) {
  const Tensor t = Iota(kShape);
  const std::vector<float> values = Floats(t);
  t.block()->MoveAsWanted();
  EXPECT_FALSE(t.is_blocked());
  InKeptLayout(t, Named("nhwc", kShape));
  InKeptLayout(t, Named("Ihwo2i", kShape));
  t.block()->Pin();
  t.block()->MoveAsWanted();  // it was wanted before it was pinned
  EXPECT_FALSE(t.is_blocked());
  t.block()->Unpin();
  InKeptLayout(t, Named("Ihwo2i", kShape));
  InKeptLayout(t, Named("nhwc", kShape));
  t.block()->MoveAsWanted();
  EXPECT_EQ(t.layout()->ToString(), "nhwc");
  EXPECT_EQ(t.block()->copied_bytes(), 0u);
  EXPECT_EQ(Floats(t), values);
}

}  // namespace
}  // namespace singa::test

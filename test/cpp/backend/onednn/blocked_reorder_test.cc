#include "core/layout/blocked_reorder.h"

#include <algorithm>
#include <cstring>

#include "backend/onednn/engine.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/layout/reorder_spec.h"
#include "singa/core/device.h"
#include "support.h"

namespace singa::onednn {
namespace {

using namespace test;

using dnnl::memory;
using Tag = memory::format_tag;

/// All tags with this many axes that have no blocks, or only blocks of filters' channels.
std::vector<Tag> FilterTags(int rank) {
  std::vector<Tag> tags;
  const memory::dims dims(static_cast<size_t>(rank), 3);
  for (int i = static_cast<int>(Tag::any) + 1; i < dnnl_format_tag_last; ++i) {
    const auto tag = static_cast<Tag>(i);
    const memory::desc desc(dims, memory::data_type::f32, tag, true);
    if (!desc || desc.get_ndims() != rank) continue;
    const memory::dims axes = desc.get_inner_idxs();
    if (std::all_of(axes.begin(), axes.end(), [&](int64_t axis) { return axis < rank - 2; }))
      tags.push_back(tag);
  }
  return tags;
}

void CheckAgainstOneDnn(Random& random, const memory::desc& from, const memory::desc& to) {
  const memory::dims dims = from.get_dims();
  const memory::desc plain(dims, from.get_data_type(), Dims(ContiguousStrides(Shape(dims))));
  std::vector<char> values(plain.get_size());
  // No subnormal numbers: oneDNN's reference flushes some of them to zero.
  for (char& byte : values) byte = static_cast<char>(random.Int(1, 60));
  const ThreadScope one(1);  // two threads would wait longer for each other than they work
  memory source(from, Engine()), want(to, Engine());
  dnnl::memory in_plain(plain, Engine(), values.data());
  dnnl::reorder(in_plain, source).execute(Stream(), in_plain, source);
  dnnl::reorder(source, want).execute(Stream(), source, want);
  std::vector<char> got(to.get_size(), 77);
  const size_t element = memory::data_type_size(from.get_data_type());
  BlockedReorder(PlacementOf(from), PlacementOf(to), element)
      .Move(source.get_data_handle(), got.data());
  EXPECT_EQ(std::memcmp(got.data(), want.get_data_handle(), got.size()), 0);
}

class BlockedReorders : public testing::TestWithParam<int> {};

TEST_P(BlockedReorders, AreOneDnnsBitForBit) {
  Random random(71);
  const int rank = GetParam();
  const std::vector<Tag> tags = FilterTags(rank);
  ASSERT_GT(tags.size(), 60u);
  const memory::data_type types[] = {memory::data_type::s8, memory::data_type::bf16,
                                     memory::data_type::f32};
  const auto check = [&](Tag a, Tag b, memory::data_type type) {
    memory::dims dims = {random.Int(1, 60), random.Int(1, 60), random.Int(1, 3), random.Int(1, 3)};
    if (random.Int(0, 3) == 0) dims[0] = 48 * random.Int(1, 2), dims[1] = 32 * random.Int(1, 3);
    if (rank == 5)
      dims = {random.Int(1, 3), random.Int(1, 34), random.Int(1, 50), dims[2], dims[3]};
    const memory::desc from(dims, type, a, true), to(dims, type, b, true);
    if (!from || !to) return;
    SCOPED_TRACE(LayoutName(FromDesc(from, Shape(dims), kFloat32)) + " to " +
                 LayoutName(FromDesc(to, Shape(dims), kFloat32)) + " of " + Shape(dims).ToString() +
                 " in " + std::to_string(memory::data_type_size(type)) + " bytes");
    CheckAgainstOneDnn(random, from, to);
  };
  for (Tag a : tags) {
    for (int i = 0; i < 4 && !testing::Test::HasFailure(); ++i) {
      const auto last = static_cast<int64_t>(tags.size()) - 1;
      const Tag b = tags[static_cast<size_t>(random.Int(0, last))];
      check(a, b, types[random.Int(0, 2)]);
    }
  }
  if (rank != 4) return;
  // Each pair of the tags that convolutions use.
  const Tag usual[] = {Tag::OIhw16i16o2i, Tag::OIhw16i16o,   Tag::OIhw16o16i,   Tag::OIhw16o16i2o,
                       Tag::AcdB16b16a2b, Tag::AcdB16b32a2b, Tag::AcdB16b48a2b, Tag::AcdB16b64a2b,
                       Tag::BcdA16a16b2a, Tag::BcdA16a32b2a, Tag::BcdA16a48b2a, Tag::BcdA16a64b2a,
                       Tag::BcdA32b2a,    Tag::Acdb16a};
  for (Tag a : usual)
    for (Tag b : usual)
      for (const memory::data_type type : types)
        if (!testing::Test::HasFailure()) check(a, b, type);
}

INSTANTIATE_TEST_SUITE_P(Axes, BlockedReorders, testing::Values(4, 5));

TEST(BlockedReorder, IsChosenWhereOneDnnHasOnlyItsReference) {
  const Shape w = {96, 96, 3, 3};
  const auto layout = [&](Tag tag) {
    return FromDesc(memory::desc(Dims(w), memory::data_type::bf16, tag), w, kBFloat16, "oihw");
  };
  const Tag tags[] = {Tag::OIhw16i16o2i, Tag::BcdA16a32b2a, Tag::BcdA16a48b2a};
  for (Tag from : tags) {
    for (Tag to : tags) {
      if (from == to) continue;
      const LayoutPtr a = layout(from), b = layout(to);
      const dnnl::reorder::primitive_desc theirs(Engine(), ToDesc(a, w, kBFloat16), Engine(),
                                                 ToDesc(b, w, kBFloat16));
      const PlanPtr plan = FindPlan(*DefaultDevice(), ReorderSpec{a, b, w, kBFloat16});
      EXPECT_EQ(plan->implementation() == std::string("cpu"), IsReference(theirs.impl_info_str()))
          << LayoutName(a) << " to " << LayoutName(b) << " is " << plan->Describe();
    }
  }
}

}  // namespace
}  // namespace singa::onednn

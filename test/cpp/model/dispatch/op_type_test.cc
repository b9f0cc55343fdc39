#include "model/dispatch/op_type.h"

#include <typeinfo>

#include "core/layout/blocked_layout.h"
#include "model/dispatch/kernel.h"
#include "model/operation/conv/spec.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/linalg/spec.h"
#include "model/operation/rnn/spec.h"
#include "model/operation/softmax/spec.h"
#include "support.h"

namespace singa::test {
namespace {

TEST(OpType, OptionalMembersAreNullWhereTheSpecLacksThem) {
  const OpType& conv = OpType::Of<ConvSpec>();
  EXPECT_TRUE(conv.linear);
  EXPECT_TRUE(conv.sum_length && conv.measured && conv.on_chosen && conv.multiply_adds);
  EXPECT_FALSE(conv.magnitudes || conv.make_reference || conv.reference_inputs);
  EXPECT_EQ(conv.measured_on, std::nullopt);
  const OpType& rnn = OpType::Of<RnnBackwardSpec>();
  EXPECT_TRUE(rnn.make_reference && rnn.reference_inputs && !rnn.linear && !rnn.measured);
  struct Unchecked : SoftmaxSpec {};  // an inherited VisitArguments does not count
  EXPECT_TRUE(OpType::Of<SoftmaxSpec>().check_call);
  EXPECT_FALSE(OpType::Of<Unchecked>().check_call);
}

TEST(OpType, FieldsAreWrittenAndReadWithoutTheType) {
  SoftmaxSpec spec{.outer = 2, .axis = 3, .inner = 5, .dtype = kFloat64, .log = true};
  const OpRef ref = spec;
  EXPECT_STREQ(ref.op(), spec.op());
  opcheck::Fields fields;
  opcheck::FieldWriter writer(&fields, opcheck::LayoutText);
  ref.op_type().write(ref.spec, writer);
  const std::shared_ptr<void> made = ref.op_type().make();
  opcheck::FieldReader reader(fields);
  ref.op_type().read(made.get(), reader);
  reader.Done();
  const auto signature = [](const OpRef& of) {
    OpSignature signature(of.op());
    of.op_type().sign(of.spec, signature);
    return signature;
  };
  EXPECT_TRUE(signature(OpRef(made.get(), ref.op_type())) == signature(spec));
  // A copy is another Spec.
  const std::shared_ptr<void> copy = ref.type->copy(ref.spec);
  spec.inner = 7;
  EXPECT_TRUE(signature(OpRef(copy.get(), ref.op_type())) ==
              signature(OpRef(made.get(), ref.op_type())));
  EXPECT_FALSE(signature(spec) == signature(OpRef(copy.get(), ref.op_type())));
}

TEST(OpType, MakePlainDropsLayouts) {
  ConvSpec spec;
  spec.geometry = ConvRecorder("test", {2, 16, 6, 5}, {3, 3}, {1, 1}, {1, 1}, 4, false, {1, 1}, 1);
  spec.x_layout = BlockedLayoutNamed("nhwc", {2, 16, 6, 5}, kFloat32);
  ASSERT_NE(spec.x_layout, nullptr);
  OpType::Of<ConvSpec>().make_plain(&spec);
  EXPECT_EQ(spec.x_layout, nullptr);
  EXPECT_EQ(spec.geometry.out_channels, 4);
}

TEST(CurrentSpec, FollowsTheSettingsThatASpecByItselfDoesNot) {
  const ThreadCount three(3);
  const SettingScope<GetLayoutMode, SetLayoutMode> plain(LayoutMode::kPlain);
  const ConvSpec constant;
  const auto current = CurrentSpec<ConvSpec>();
  EXPECT_EQ(CurrentSpec<MatMulSpec>().threads, 3);
  EXPECT_EQ(constant.threads, 1);
  EXPECT_FALSE(constant.plain);
  EXPECT_EQ(current.threads, 3);
  EXPECT_TRUE(current.plain);
}

TEST(OpType, AddedTypesAreFoundByName) {
  const Kernel* kernel = FindKernel<SoftmaxSpec>(kReference);  // registers all
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(*FindOpType(typeid(SoftmaxSpec).name())->id, typeid(SoftmaxSpec));
  EXPECT_EQ(FindOpType("nothing"), nullptr);
}

TEST(Kernel, RefusesSpecsOfAnotherType) {
  const Kernel* kernel = FindKernel<SoftmaxSpec>(kReference);
  ASSERT_NE(kernel, nullptr);
  EXPECT_TRUE(kernel->Make(SoftmaxSpec{}));
  EXPECT_THROW(kernel->Make(SoftmaxBackwardSpec{}), std::bad_cast);
  EXPECT_THROW(SpecRef(ConvSpec{}).As<SoftmaxSpec>(), std::bad_cast);
}

}  // namespace
}  // namespace singa::test

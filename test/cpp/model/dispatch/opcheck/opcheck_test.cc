// OPCHECK finds, reports and counts the errors of deliberately wrong kernels.

#include "model/dispatch/opcheck/opcheck.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/layout/blocked_layout.h"
#include "model/dispatch/dispatch.h"
#include "model/dispatch/field_text.h"
#include "model/dispatch/opcheck/replay_file.h"
#include "model/operation/conv/spec.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/indexing/spec.h"
#include "model/operation/softmax/spec.h"
#include "singa/core/stats.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/indexing.h"
#include "singa/operation/layout.h"
#include "singa/operation/softmax.h"
#include "support.h"
#include "wrong_kernel.h"

namespace singa::test {
namespace {

struct SpecWithoutCheck : SoftmaxSpec {};  // the inherited VisitArguments does not count
static_assert(opcheck::ChecksCalls<SoftmaxSpec>);
static_assert(!opcheck::ChecksCalls<SpecWithoutCheck>);

class OpcheckTest : public ::testing::Test {
 protected:
  OpcheckTest() {
    folder_ =
        std::filesystem::path(::testing::TempDir()) / ("opcheck_test_" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    Configure({});
  }
  ~OpcheckTest() override {
    SetCurrentLayer("");
    ResetOpcheckStats();
    std::filesystem::remove_all(folder_);
  }

  void Configure(OpcheckOptions options, int64_t every = 1) {
    options.every = every;
    options.replay_directory = folder_.string();
    SetOpcheck(options);
    ResetOpcheckStats();
  }
  static OpcheckOpStats StatsOf(const std::string& op) {
    for (const OpcheckOpStats& stats : GetOpcheckStats())
      if (stats.op == op) return stats;
    return {};
  }
  std::vector<std::filesystem::path> Files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      files.push_back(entry.path());
    return files;
  }

  const OpcheckScope scope_;
  std::filesystem::path folder_;
};

Tensor Input() { return FromValues({2, 2}, {1, 1, 1, 1}); }

TEST_F(OpcheckTest, NamesOperationLayerImplementationAndWorstElement) {
  const WrongKernelScope<SoftmaxSpec> wrong;
  SetCurrentLayer("classifier.softmax");
  try {
    Softmax(Input(), 1);
    ADD_FAILURE() << "nothing was found";
  } catch (const OpcheckMismatch& error) {
    const std::string text = error.what();
    for (const char* part :
         {"[Softmax] wrong ", " disagrees with reference in layer classifier.softmax: ",
          "output y at (0, 0) of (2, 2): 2, reference 0.5, allowed difference ",
          "; inputs x (2, 2) float32", "Run again: python -m singa replay "})
      EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks: " << part;
    ASSERT_EQ(Files().size(), 1u);
    EXPECT_NE(text.find(Files()[0].string()), std::string::npos) << text;
  }
  const OpcheckOpStats stats = StatsOf("Softmax");
  EXPECT_EQ(stats.checked, 1u);
  EXPECT_EQ(stats.failed, 1u);
  EXPECT_GT(stats.worst_ratio, 1e3);
}

TEST_F(OpcheckTest, TakesARightKernel) {
  const WrongKernelScope<SoftmaxSpec> right(Wrong::kNever);
  EXPECT_EQ(Values(Softmax(Input(), 1)), Vector(4, 0.5));
  EXPECT_EQ(StatsOf("Softmax").checked, 1u);
  EXPECT_EQ(StatsOf("Softmax").failed, 0u);
  EXPECT_TRUE(Files().empty());
}

TEST_F(OpcheckTest, WarnsAndGoesOnWithWhatWasComputed) {
  const WrongKernelScope<SoftmaxSpec> wrong;
  OpcheckOptions options;
  options.raise = false;
  Configure(options);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Values(Softmax(Input(), 1)), (Vector{2, 0.5, 0.5, 0.5}));
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(text.rfind("singa: [Softmax] wrong ", 0), 0u) << text;
  EXPECT_EQ(StatsOf("Softmax").failed, 1u);
  EXPECT_EQ(Files().size(), 1u);
}

TEST_F(OpcheckTest, OneInSoMany) {
  const WrongKernelScope<SoftmaxSpec> wrong;
  OpcheckOptions options;
  options.raise = false;
  Configure(options, 3);
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 7; ++i) Softmax(Input(), 1);
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(StatsOf("Softmax").checked, 3u);
  EXPECT_EQ(StatsOf("Softmax").failed, 3u);
}

TEST_F(OpcheckTest, OnlyTheNamedOperations) {
  const WrongKernelScope<SoftmaxSpec> wrong;
  OpcheckOptions options;
  options.ops = {"ConvForward"};
  Configure(options);
  EXPECT_NO_THROW(Softmax(Input(), 1));
  EXPECT_EQ(StatsOf("Softmax").checked, 0u);
}

TEST_F(OpcheckTest, IntegersAreComparedToo) {
  const Tensor x = FromValues({2, 2}, {1, 2, 3, 4}, kInt32);
  {
    const WrongKernelScope<BinarySpec> right(Wrong::kNever);
    Binary(BinaryOp::kAdd, x, x);
    EXPECT_EQ(StatsOf("Add").checked, 1u);
  }
  const WrongKernelScope<BinarySpec> wrong;
  EXPECT_ERROR(OpcheckMismatch, "output c at (0, 0) of (2, 2): 3, reference 2",
               Binary(BinaryOp::kAdd, x, x));
}

TEST_F(OpcheckTest, NothingToCompareDoesNotCountAsChecked) {
  const WrongKernelScope<SoftmaxSpec> wrong;
  EXPECT_NO_THROW(Softmax(Tensor(Shape{0, 3}), 1));
  EXPECT_EQ(StatsOf("Softmax").checked, 0u);
  EXPECT_EQ(StatsOf("Softmax").uncompared, 1u);
}

// An output that only shares its block with an input is not that input.
TEST_F(OpcheckTest, ViewsOfOneBlockAreNotInPlace) {
  const WrongKernelScope<BinarySpec> right(Wrong::kNever);
  const Tensor all = FromValues({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor a = all.SliceAxis(0, 0, 2), out = all.SliceAxis(0, 2, 4);
  BinaryInto(BinaryOp::kAdd, a, a, out);
  EXPECT_EQ(Values(all), (Vector{1, 2, 3, 4, 2, 4, 6, 8}));
  EXPECT_EQ(StatsOf("Add").checked, 1u);
  BinaryInto(BinaryOp::kAdd, out, a, out);
  EXPECT_EQ(Values(out), (Vector{3, 6, 9, 12}));
  EXPECT_EQ(StatsOf("Add").failed, 0u);
}

// With a Spec that does not match its call, a kernel could write out of bounds.
TEST_F(OpcheckTest, ACallThatIsNotTheSpecsIsRefused) {
  const WrongKernelScope<SoftmaxSpec> right(Wrong::kNever);
  const SoftmaxSpec spec{.outer = 2, .axis = 3};
  const DevicePtr device = DefaultDevice();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor x(Shape{2, 3}), y(Shape{2, 2});
  EXPECT_ERROR(std::invalid_argument, "[Softmax] y must have 6 elements, got (2, 2) float32",
               singa::Run(spec, device, plan, {x}, {y}));
  EXPECT_ERROR(std::invalid_argument, "[Softmax] the call has 2 inputs instead of 1",
               singa::Run(spec, device, plan, {x, x}, {x}));
}

TEST_F(OpcheckTest, TheFileIsNewAndWhole) {
  const WrongKernelScope<SoftmaxSpec> wrong;
  for (int i = 0; i < 2; ++i) EXPECT_THROW(Softmax(Input(), 1), OpcheckMismatch);
  const auto files = Files();
  ASSERT_EQ(files.size(), 2u) << "one each, and nothing else";
  for (const auto& file : files) {
    const std::string name = file.filename().string();
    EXPECT_EQ(name.rfind("opcheck-Softmax-", 0), 0u) << name;
    EXPECT_EQ(file.extension(), ".safetensors");
    std::ifstream in(file, std::ios::binary);
    uint64_t length = 0;
    in.read(reinterpret_cast<char*>(&length), sizeof(length));
    EXPECT_EQ(std::filesystem::file_size(file), 8 + length + 2 * 4 * sizeof(float));
  }
}

TEST_F(OpcheckTest, AFolderThatIsNotThere) {
  const WrongKernelScope<SoftmaxSpec> wrong;
  OpcheckOptions options;
  options.every = 1;
  options.replay_directory = (folder_ / "none").string();
  SetOpcheck(options);
  EXPECT_ERROR(OpcheckMismatch, "could not be written: No such file or directory",
               Softmax(Input(), 1));
}

// ---- texts

TEST(OpcheckDifference, RoundedFactorsAreAllowedInEachTerm) {
  const Tensor got[] = {FromValues({2}, {1 + 0x1p-11, 0})};
  opcheck::Expected expected{.results = {FromValues({2}, {1, 0})}, .bound = {Full({2}, 3)}};
  const auto ratio = [&](double factor_error) {
    return opcheck::FindDifference(got, expected, false, factor_error).ratio;
  };
  EXPECT_GT(ratio(0), 1);
  EXPECT_LT(ratio(0x1p-10), 1);
  EXPECT_GT(ratio(0x1p-13), 1);
}

TEST(ReplayTextTest, Shapes) {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 3}, Shape{0, -4, int64_t{1} << 62}})
    EXPECT_EQ(opcheck::ShapeFromText("shape", shape.ToString()), shape);
  for (const char* text :
       {"", "(", ")", "2, 3", "(2 3)", "(2,3)", "(,)", "(2, )", "(2, 3,)", "(2,, 3)", "(x)", "(5",
        "(99999999999999999999,)", "(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)", "(2, 3) "})
    EXPECT_THROW(opcheck::ShapeFromText("shape", text), std::invalid_argument) << text;
}

TEST(ReplayTextTest, Layouts) {
  EXPECT_EQ(opcheck::LayoutText(nullptr), "plain");
  EXPECT_EQ(opcheck::LayoutFromText("plain"), nullptr);
  // If this build has opaque layouts.
  const LayoutPtr blocked = ToBlocked(Tensor(Shape{2, 20, 3, 4})).layout();
  if (blocked) {
    EXPECT_TRUE(SameLayout(opcheck::LayoutFromText(opcheck::LayoutText(blocked)), blocked));
  }
  const LayoutPtr grouped = BlockedLayoutNamed("Goihw8g/20", {20, 1, 3, 3}, kFloat32);
  EXPECT_EQ(opcheck::LayoutText(grouped), "cpu float32 (20, 1, 3, 3) Goihw8g/20");
  EXPECT_TRUE(SameLayout(opcheck::LayoutFromText(opcheck::LayoutText(grouped)), grouped));
  for (const char* text :
       {"", "cpu", "cpu float32 (2, 3)", "cpu float99 (2, 3, 4, 4) nhwc",
        "cpu float32 (2, 3, 4, -4) nhwc", "cpu float32 (2, 3, 4) nhwc",
        "cpu float32 (2, 3, 4, 4) nothing", "cpu float32 (2, 3, 4, 4) nChw16",
        "cpu float32 (2, 3, 4, 4) nChw99999999c", "cpu float32 (2, 3, 4, 4) nchw16c",
        "nobody float32 (2, 3, 4, 4) nhwc", "onednn uint8 (8,) workspace of (2, 3, 4, 4) x",
        "cpu float32 (9000000000000000000, 9, 9, 9) nhwc",
        "cpu float32 (4000000000000000000, 1, 1, 1) Nchw64n"})
    EXPECT_THROW(opcheck::LayoutFromText(text), std::invalid_argument) << text;
}

TEST(ReplayTextTest, FieldsHaveTheValuesOfTheirType) {
  opcheck::Fields fields;
  const ConvSpec spec;
  opcheck::FieldWriter writer(&fields, opcheck::LayoutText);
  ConvSpec::VisitFields(spec, writer);
  const auto read = [&](const std::string& name, const std::string& value) {
    auto changed = fields;
    for (auto& field : changed)
      if (field.first == name) field.second = value;
    opcheck::FieldReader reader(changed);
    ConvSpec result;
    ConvSpec::VisitFields(result, reader);
    reader.Done();
    return result;
  };
  EXPECT_EQ(read("pass", "3").pass, ConvPass::kBackwardB);
  EXPECT_EQ(read("kernel_h", "7").geometry.kernel_h(), 7);
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, std::string>>{{"pass", "4"},
                                                        {"pass", "-1"},
                                                        {"dtype", "9"},
                                                        {"has_add", "2"},
                                                        {"activation", ""},
                                                        {"threads", "2147483648"},
                                                        {"threads", "1x"},
                                                        {"threads", " 1"},
                                                        {"kernel_h", "1.5"},
                                                        {"kernel_h", "9223372036854775808"},
                                                        {"x_layout", "blocked"}})
    EXPECT_THROW(read(name, value), std::invalid_argument) << name << " " << value;
  fields.emplace_back("more", "1");
  EXPECT_THROW(read("pass", "0"), std::invalid_argument);
  fields.resize(fields.size() - 2);
  EXPECT_THROW(read("pass", "0"), std::invalid_argument);
}

}  // namespace
}  // namespace singa::test

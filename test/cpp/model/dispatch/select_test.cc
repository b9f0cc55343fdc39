// Selection among kernels made for this test: order, reasons, limits, the table of choices,
// measuring.

#include "model/dispatch/select.h"

#include <chrono>
#include <thread>

#include "model/dispatch/dispatch.h"
#include "singa/dispatch/tuning.h"
#include "support.h"

namespace singa::test {
namespace {

/// An operation on one tensor of `size` elements, whose candidates can be measured.
struct ToySpec {
  int64_t size = 1;
  const char* op() const { return "Toy"; }
  static constexpr bool kMeasured = true;
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", {size}, kFloat32);
    visit.Output("y", {size}, kFloat32);
  }
  SINGA_FIELDS(size);
};

/// A plan that takes a while, or no time.
class ToyPlan final : public Plan {
 public:
  ToyPlan(const char* implementation, std::string name, int milliseconds, size_t workspace)
      : Plan(implementation),
        name_(std::move(name)),
        milliseconds_(milliseconds),
        workspace_(workspace) {}
  void Run(const Execution&) const override {
    ++runs;
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds_));
  }
  std::string Describe() const override { return name_; }
  size_t workspace_bytes() const override { return workspace_; }
  static inline int runs = 0;

 private:
  std::string name_;
  int milliseconds_;
  size_t workspace_;
};

PlanPtr Toy(const char* implementation, std::string name, int milliseconds, size_t workspace) {
  return std::make_shared<ToyPlan>(implementation, std::move(name), milliseconds, workspace);
}

// "shy" is fast but refuses as slower; "slow" comes first and has a candidate without workspace;
// "odd" supports odd sizes only.
PlanOrReason MakeShy(const ToySpec&) { return PlanOrReason::None("slow is faster"); }
std::vector<Candidate> ShyWays(const ToySpec&) {
  return {{"shy", [] { return Toy("shy", "shy", 0, 1 << 20); }, 0, "slow is faster"}};
}
std::string RefusesEven(const ToySpec& spec) {
  return spec.size % 2 == 0 ? "the size is even" : "";
}
// Asked where RefusesEven lets the Spec through, and nowhere else.
PlanOrReason MakeOdd(const ToySpec& spec) {
  EXPECT_EQ(spec.size % 2, 1);
  return Toy("odd", "odd", 0, 0);
}
std::vector<Candidate> OddWays(const ToySpec& spec) {
  EXPECT_EQ(spec.size % 2, 1);
  return {{"odd", [] { return Toy("odd", "odd", 0, 0); }}};
}
PlanOrReason MakeSlow(const ToySpec&) { return Toy("slow", "slow wide", 60, 4096); }
std::vector<Candidate> SlowWays(const ToySpec&) {
  return {{"slow wide", [] { return Toy("slow", "slow wide", 60, 4096); }},
          {"slow narrow", [] { return Toy("slow", "slow narrow", 15, 64); }}};
}
PlanOrReason MakeReference(const ToySpec&) { return Toy("reference", "reference", 60, 128); }

class Select : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Register<ToySpec>(DeviceKind::kCpu, "shy", {.make = MakeShy, .candidates = ShyWays});
    Register<ToySpec>(DeviceKind::kCpu, "odd",
                      {.refuses = RefusesEven, .make = MakeOdd, .candidates = OddWays});
    Register<ToySpec>(DeviceKind::kCpu, "slow", {.make = MakeSlow, .candidates = SlowWays});
    Register<ToySpec>(DeviceKind::kCpu, "reference", {.make = MakeReference});
  }
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    ClearTuningChoices();
    ForgetMeasurements();
    SetTuningScope("");
  }
  static std::string Find(int64_t size, const PlanOptions& options = {}) {
    return FindPlan(*DefaultDevice(), ToySpec{size}, options)->Describe();
  }
  static std::string Text(int64_t size) {
    return SignatureText(*DefaultDevice(), ToySpec{size}, PlanOptions{});
  }
};

TEST_F(Select, TheFirstThatDoesNotDecline) {
  EXPECT_EQ(Find(2), "slow wide");
  EXPECT_EQ(Find(3), "odd");
  EXPECT_EQ(Find(2, {Preference::kReference}), "reference");
}

TEST_F(Select, EveryReasonIsKept) {
  Selection selection;
  const ToySpec spec{4};
  const PlanOptions options;
  SelectPlan(*DefaultDevice(), spec, options, &selection);
  using Others = decltype(selection.others);
  EXPECT_EQ(selection.others, (Others{{"shy", "slow is faster"},
                                      {"odd", "the size is even"},
                                      {"reference", "comes later in order"}}));
  EXPECT_EQ(selection.signature, Text(4));
  EXPECT_NE(selection.why.find("first in order"), std::string::npos);
}

TEST_F(Select, LimitsHoldForEveryWay) {
  EXPECT_EQ(Find(6, {Preference::kLimitedWorkspace, 4096}), "slow wide");
  EXPECT_EQ(Find(6, {Preference::kLimitedWorkspace, 100}), "slow narrow");
  EXPECT_THROW(Find(6, {Preference::kLimitedWorkspace, 1}), Unavailable);
  EXPECT_EQ(Find(7, {Preference::kNoWorkspace}), "odd");
  EXPECT_EQ(Find(6, {Preference::kNoWorkspace}), "slow narrow") << "the nearest to none";
}

TEST_F(Select, AutotuneTakesTheFastestAndRemembers) {
  EXPECT_EQ(Find(8, {Preference::kFastest}), "slow wide");
  EXPECT_EQ(Find(8, {Preference::kAutotune}), "shy") << "whatever it declines";
  const auto choices = GetTuningChoices();
  ASSERT_EQ(choices.size(), 1u);
  EXPECT_EQ(choices[0].signature, Text(8));
  EXPECT_EQ(choices[0].candidate, "shy");
  EXPECT_EQ(choices[0].machine, TuningMachine());
  for (const char* name : {"shy", "slow wide", "slow narrow", "reference"})
    EXPECT_NE(choices[0].measured.find(name), std::string::npos) << name;
  const int runs = ToyPlan::runs;
  ClearPlanCache();
  EXPECT_EQ(Find(8, {Preference::kAutotune}), "shy");
  EXPECT_EQ(Find(8, {Preference::kFastest}), "shy") << "one table for both";
  EXPECT_EQ(ToyPlan::runs, runs) << "measured again";
}

TEST_F(Select, NobodyWaitsForTheReference) {
  EXPECT_EQ(Find(int64_t{2} << 20, {Preference::kAutotune}), "shy");
  ASSERT_EQ(GetTuningChoices().size(), 1u);
  EXPECT_EQ(GetTuningChoices()[0].measured.find("reference"), std::string::npos);
}

TEST_F(Select, AutotuneReplacesThePlanOfFastest) {
  EXPECT_EQ(Find(10, {Preference::kFastest}), "slow wide");
  EXPECT_EQ(Find(10, {Preference::kAutotune}), "shy");
  EXPECT_EQ(Find(10, {Preference::kFastest}), "shy");
}

TEST_F(Select, AutotuneKeepsTheLimit) {
  EXPECT_EQ(Find(12, {Preference::kAutotune, 4096}), "slow narrow");
  EXPECT_EQ(Find(14, {Preference::kAutotune, 1}), "slow wide") << "nothing keeps it";
}

TEST_F(Select, AutotuneOnlyNotesTheDefault) {
  SetTuningScope("default");
  const int runs = ToyPlan::runs;
  EXPECT_EQ(Find(16, {Preference::kAutotune}), "slow wide");
  EXPECT_EQ(ToyPlan::runs, runs);
  ASSERT_EQ(GetTuningChoices().size(), 1u);
  EXPECT_EQ(GetTuningChoices()[0].candidate, "slow wide");
  ClearTuningChoices();
  SetTuningScope("", 0);
  EXPECT_EQ(Find(16, {Preference::kAutotune}), "slow wide") << "there was no time";
  EXPECT_EQ(ToyPlan::runs, runs);
}

TEST_F(Select, TheTableIsFollowed) {
  EXPECT_EQ(Find(18), "slow wide");
  AddTuningChoices({{Text(18), "slow narrow", TuningMachine(), ""}});
  EXPECT_EQ(Find(18), "slow narrow");
  EXPECT_EQ(Find(20), "slow wide") << "another signature";
  EXPECT_EQ(Find(18, {Preference::kReference}), "reference");
  AddTuningChoices({{Text(18), "shy", TuningMachine(), ""}});
  EXPECT_EQ(Find(18), "shy");
  ClearTuningChoices();
  EXPECT_EQ(Find(18), "slow wide");
}

TEST_F(Select, TheTableCannotNameWhatIsNotThere) {
  AddTuningChoices({{Text(22), "odd", TuningMachine(), ""}});
  EXPECT_EQ(Find(22), "slow wide") << "it refuses even sizes";
  AddTuningChoices({{Text(22), "slow nonsense", TuningMachine(), ""}});
  EXPECT_EQ(Find(22), "slow wide");
  EXPECT_THROW(AddTuningChoices({{Text(22), "shy", TuningMachine(), ""}, {"", "shy", "", ""}}),
               std::invalid_argument);
  EXPECT_EQ(Find(22), "slow wide") << "nothing of it was added";
}

TEST_F(Select, ChoicesOfOtherMachinesAreKeptOnly) {
  AddTuningChoices({{Text(24), "shy", "another machine", ""}});
  EXPECT_EQ(Find(24), "slow wide");
  EXPECT_EQ(GetTuningChoices().size(), 1u);
  const std::string here = TuningMachine();
  AddTuningChoices({{Text(24), "shy", here, ""}});
  {
    const ThreadCount other(NumThreads() + 1);
    EXPECT_NE(TuningMachine(), here);
    EXPECT_EQ(Find(24), "slow wide") << "other threads";
  }
  EXPECT_EQ(Find(24), "shy");
}

}  // namespace
}  // namespace singa::test

#include <gtest/gtest.h>

#include <string>

#include "model/dispatch/dispatch.h"
#include "singa/core/error.h"

namespace singa {
namespace {

struct RegistryTestSpec {
  const char* op() const { return "RegistryTest"; }
  template <class Self, class Visitor>
  static void VisitFields(Self&, Visitor&) {}
};

struct NoPlan final : Plan {
  explicit NoPlan(const char* name) : Plan(name) {}
  void Run(const Execution&) const override {}
};
PlanOrReason MakeCpu(const RegistryTestSpec&) { return std::make_shared<NoPlan>("for cpu"); }
PlanOrReason MakeCuda(const RegistryTestSpec&) { return std::make_shared<NoPlan>("for cuda"); }
PlanOrReason MakeNone(const RegistryTestSpec&) { return PlanOrReason::None("it is Sunday"); }

/// A device that executes nothing.
class Pretended final : public Device {
 public:
  explicit Pretended(DeviceKind kind) : Device(kind, 7, "pretended:7") {}
  void* Allocate(size_t) override { return nullptr; }
  void Free(void*, size_t) noexcept override {}
  MemoryStats memory() const override { return {}; }
  void ResetPeak() override {}
  void EmptyCache() override {}
  void CopyFromHost(void*, const void*, size_t) override {}
  void CopyToHost(void*, const void*, size_t) override {}
  void CopyElements(const Tensor&, const Tensor&) override {}
  void FillElements(const Tensor&, double) override {}
  void CopyBytes(void*, const void*, size_t) override {}
  void ZeroBytes(void*, size_t) override {}

 protected:
  void ReleaseAll() noexcept override {}
};

std::string* registered = nullptr;

TEST(Registry, KernelsComeInTheOrderOfTheirFilesHoweverTheCompilerNamedThem) {
  std::string order;
  registered = &order;
  const Registrar last("registry test", "/root/src/backend/b/a.cc", [] { *registered += "3"; });
  const Registrar first("registry test", "../../src/backend/a/b.cc", [] { *registered += "1"; });
  const Registrar second("registry test", "/root/src/backend/a/c.cc", [] { *registered += "2"; });
  RegisterBackend("registry test");
  EXPECT_EQ(order, "123");
}

TEST(Registry, KernelsBelongToAKindOfDevice) {
  const auto cpu = std::make_shared<Pretended>(DeviceKind::kCpu);
  const auto cuda = std::make_shared<Pretended>(DeviceKind::kCuda);
  const auto error = [&](const Device& device) {
    try {
      FindPlan(device, RegistryTestSpec{});
    } catch (const Unavailable& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(error(*cuda),
            "[RegistryTest] no implementation takes this on pretended:7: none was written for such "
            "devices");
  Register<RegistryTestSpec>(DeviceKind::kCuda, "lazy", {.make = MakeNone});
  EXPECT_EQ(error(*cuda),
            "[RegistryTest] no implementation takes this on pretended:7:\n  lazy: it is Sunday");
  Register<RegistryTestSpec>(DeviceKind::kCuda, "cuda", {.make = MakeCuda});
  Register<RegistryTestSpec>(DeviceKind::kCpu, "cpu", {.make = MakeCpu});
  EXPECT_STREQ(FindPlan(*cuda, RegistryTestSpec{})->implementation(), "for cuda");
  EXPECT_STREQ(FindPlan(*cpu, RegistryTestSpec{})->implementation(), "for cpu");
  EXPECT_EQ(KernelsOf<RegistryTestSpec>(DeviceKind::kCuda).size(), 2u);
  EXPECT_EQ(FindKernel<RegistryTestSpec>("cuda"), nullptr);
}

}  // namespace
}  // namespace singa

#include <gtest/gtest.h>

#include "model/operation/dispatch.h"
#include "singa/core/error.h"

namespace singa {
namespace {

struct RegistryTestSpec {
  const char* op() const { return "RegistryTest"; }
  template <class Self, class Visitor>
  static void VisitFields(Self&, Visitor&) {}
};

std::string Able(const RegistryTestSpec&) { return {}; }
std::string Unable(const RegistryTestSpec&) { return "it is Sunday"; }

struct NoPlan final : Plan {
  explicit NoPlan(const char* name) : Plan(name) {}
  void Run(const Execution&) const override {}
};
PlanPtr MakeCpu(const RegistryTestSpec&) { return std::make_shared<NoPlan>("for cpu"); }
PlanPtr MakeCuda(const RegistryTestSpec&) { return std::make_shared<NoPlan>("for cuda"); }

/// A device that never computes.
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
  Register<RegistryTestSpec>("lazy", Unable, MakeCuda, nullptr, nullptr, DeviceKind::kCuda);
  EXPECT_EQ(error(*cuda),
            "[RegistryTest] no implementation takes this on pretended:7:\n  lazy: it is Sunday");
  Register<RegistryTestSpec>("cuda", Able, MakeCuda, nullptr, nullptr, DeviceKind::kCuda);
  Register<RegistryTestSpec>("cpu", Able, MakeCpu);
  EXPECT_STREQ(FindPlan(*cuda, RegistryTestSpec{})->implementation(), "for cuda");
  EXPECT_STREQ(FindPlan(*cpu, RegistryTestSpec{})->implementation(), "for cpu");
  EXPECT_EQ(Registry<RegistryTestSpec>::Get(DeviceKind::kCuda).kernels().size(), 2u);
  EXPECT_EQ(Registry<RegistryTestSpec>::Get().Find("cuda"), nullptr);
}

}  // namespace
}  // namespace singa

#pragma once

// Deliberately wrong kernels, to test that OPCHECK and spot checks find them. Each runs the kernel
// that would otherwise be chosen, and then changes one element of the first result.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/dispatch/kernel.h"
#include "singa/core/half.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::test {

enum class Wrong : int {
  kAlways = 0,
  kWhereOpaque = 1,  ///< only if an argument has an opaque layout
  kNever = 2,        ///< a correct kernel, which OPCHECK compares
  kLastCorner = 3,   ///< only in the last element, if the result is row-major
  kWhereLarge = 4,   ///< only if the first number of the first input is above 100
  kNothing = 5,      ///< writes nothing
  kMiddle = 6,       ///< only in an element in the middle, as it lies in memory
  kWhenTold = 7,     ///< only in the first run after TellWrongKernel
};

inline constexpr char kWrong[] = "wrong";

inline std::atomic<bool> told{false};
inline void TellWrongKernel() { told = true; }

/// Address of the last element; of the first one, if the layout is opaque.
inline void* LastOf(const Tensor& t) {
  int64_t last = 0;
  if (!t.layout())
    for (int i = 0; i < t.rank(); ++i) last += (t.shape(i) - 1) * t.strides()[i];
  return static_cast<char*>(t.raw_data()) + last * static_cast<int64_t>(SizeOf(t.data_type()));
}

/// Address of an element in the middle of a result without gaps.
inline void* MiddleOf(const Tensor& t) {
  return static_cast<char*>(t.raw_data()) +
         t.size() / 2 * static_cast<int64_t>(SizeOf(t.data_type()));
}

inline bool IsLarge(const Tensor& t) {
  if (t.data_type() != kFloat32) return false;
  float first = 0;
  t.device()->CopyToHost(&first, t.raw_data(), sizeof(first));
  return first > 100;
}

inline void Spoil(const Tensor& t, void* first) {
  const auto change = [&]<class T>(T value, const auto& changed) {
    t.device()->CopyToHost(&value, first, sizeof(T));
    value = changed(value);
    t.device()->CopyFromHost(first, &value, sizeof(T));
  };
  const auto larger = [](auto value) {
    const auto right = static_cast<float>(value);
    return static_cast<decltype(value)>(2 * right + (right < 0 ? -1.f : 1.f));
  };
  switch (t.data_type()) {
    case kFloat32:
      return change(float{}, larger);
    case kFloat64:
      return change(double{}, larger);
    case kFloat16:
      return change(Float16{}, larger);
    case kBFloat16:
      return change(BFloat16{}, larger);
    case kInt8:
    case kUInt8:  // more than rounding allows
      return change(uint8_t{}, [](uint8_t value) { return static_cast<uint8_t>(value ^ 64); });
    default:
      return change(uint8_t{}, [](uint8_t value) { return static_cast<uint8_t>(value ^ 1); });
  }
}

/// Another plan with a changed result.
class WrongPlan final : public Plan {
 public:
  WrongPlan(PlanPtr right, Wrong wrong) : Plan(kWrong), right_(std::move(right)), wrong_(wrong) {}
  std::string Describe() const override { return "wrong " + right_->Describe(); }
  size_t workspace_bytes() const override { return right_->workspace_bytes(); }
  LayoutPtr input_layout(size_t i) const override { return right_->input_layout(i); }
  LayoutPtr output_layout(size_t i) const override { return right_->output_layout(i); }
  int inplace_input(size_t i) const override { return right_->inplace_input(i); }
  size_t private_bytes(size_t i) const override { return right_->private_bytes(i); }
  bool spreads_error() const override { return right_->spreads_error(); }

  void Run(const Execution& execution) const override {
    if (wrong_ == Wrong::kNothing) return;
    right_->Run(execution);
    const auto opaque = [](const Tensor& t) { return t.layout() != nullptr; };
    if (wrong_ == Wrong::kWhereLarge && !IsLarge(execution.inputs[0])) return;
    if (wrong_ == Wrong::kWhenTold && !told.exchange(false)) return;
    if (wrong_ == Wrong::kNever ||
        (wrong_ == Wrong::kWhereOpaque &&
         std::none_of(execution.inputs.begin(), execution.inputs.end(), opaque) &&
         std::none_of(execution.outputs.begin(), execution.outputs.end(), opaque)))
      return;
    for (const Tensor& t : execution.outputs)
      if (!t.empty() && t.size() > 0)
        return Spoil(t, wrong_ == Wrong::kLastCorner ? LastOf(t)
                        : wrong_ == Wrong::kMiddle   ? MiddleOf(t)
                                                     : t.raw_data());
  }

 private:
  PlanPtr right_;
  Wrong wrong_;
};

/// Supports the Specs of this type that one of the kernels behind it supports.
inline Kernel WrongKernel(const std::string& spec_type, Wrong wrong, DeviceKind kind) {
  return {.implementation = kWrong,
          .make = [=](const SpecRef& spec) -> PlanOrReason {
            for (const Kernel& kernel : KernelsOf(spec_type.c_str(), kind))
              if (std::string_view(kernel.implementation) != kWrong)
                if (const PlanOrReason made = kernel.Make(spec))
                  return std::make_shared<WrongPlan>(made.plan(), wrong);
            return PlanOrReason::None("no kernel takes this");
          },
          .priority = 1};
}

inline KernelList& KernelsToChange(const std::string& spec_type,
                                   DeviceKind kind = DeviceKind::kCpu) {
  return const_cast<KernelList&>(KernelsOf(spec_type.c_str(), kind));
}

/// Makes it the first kernel to be asked, replacing an earlier wrong one. Existing plans are kept.
inline void AddWrongKernel(const std::string& spec_type, Wrong wrong,
                           DeviceKind kind = DeviceKind::kCpu) {
  KernelList& kernels = KernelsToChange(spec_type, kind);
  std::erase_if(kernels, [](const Kernel& kernel) {
    return std::string_view(kernel.implementation) == kWrong;
  });
  kernels.insert(kernels.begin(), WrongKernel(spec_type, wrong, kind));
}

/// Makes the kernels of an implementation wrong in the last element. "": those of all.
inline void SpoilKernels(const std::string& spec_type, std::string_view implementation) {
  for (Kernel& kernel : KernelsToChange(spec_type)) {
    if (!implementation.empty() && kernel.implementation != implementation) continue;
    if (std::string_view(kernel.implementation) == kWrong) continue;
    kernel.candidates = {};
    kernel.make = [make = kernel.make](const SpecRef& spec) -> PlanOrReason {
      PlanOrReason made = make(spec);
      if (!made) return made;
      return std::make_shared<WrongPlan>(made.plan(), Wrong::kLastCorner);
    };
  }
}

/// Adds a wrong kernel during its lifetime.
template <class Spec>
class WrongKernelScope {
 public:
  explicit WrongKernelScope(Wrong wrong = Wrong::kAlways) {
    ClearPlanCache();
    AddWrongKernel(typeid(Spec).name(), wrong);
  }
  ~WrongKernelScope() {
    ClearPlanCache();
    KernelList& kernels = KernelsToChange(typeid(Spec).name());
    kernels.erase(kernels.begin());
  }
  WrongKernelScope(const WrongKernelScope&) = delete;
  WrongKernelScope& operator=(const WrongKernelScope&) = delete;
};

}  // namespace singa::test

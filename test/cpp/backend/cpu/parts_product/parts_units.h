#pragma once

// What tests of float32 products by bfloat16 parts run on: AMX and its plain model, with three
// parts and with two.

#include <string>

#include "backend/cpu/batch_blocked/product.h"
#include "support.h"

namespace singa::test {

inline std::string UnitName(const cpu::batch_blocked::PartsUnit& by) {
  return std::string(cpu::batch_blocked::NameOf(by.unit)) +
         (by.parts == cpu::batch_blocked::kLeastParts ? "_high" : "");
}

/// Runs on every unit that this CPU has.
class PartsTest : public testing::TestWithParam<cpu::batch_blocked::PartsUnit> {
 public:
  static auto Units() {
    using cpu::batch_blocked::kLeastParts;
    using cpu::batch_blocked::PartsUnit;
    using cpu::batch_blocked::Unit;
    return testing::Values(PartsUnit{Unit::kPlain}, PartsUnit{Unit::kAmx},
                           PartsUnit{Unit::kPlain, kLeastParts},
                           PartsUnit{Unit::kAmx, kLeastParts});
  }

 protected:
  void SetUp() override {
    if (!cpu::batch_blocked::IsThere(GetParam().unit)) GTEST_SKIP() << "this CPU has none";
  }
};

}  // namespace singa::test

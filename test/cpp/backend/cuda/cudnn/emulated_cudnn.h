#pragma once

#include <gtest/gtest.h>

#include "backend/cuda/test_gpu.h"
#include "emulated_gpu/library/libraries.h"
#include "singa/core/layout.h"
#include "singa/dispatch/plan_cache.h"
#include "singa/dispatch/tuning.h"

namespace singa::cudnn {

/// Tests of the emulated cuDNN begin and end with its usual engines and settings, and without plans
/// and measurements.
class EmulatedCudnn : public testing::Test {
 protected:
  void SetUp() override { Clear(); }
  void TearDown() override { Clear(); }
  static void Clear() {
    emulated::Reset();
    ClearPlanCache();
    ClearTuningChoices();
    ForgetMeasurements();
    SetTuningScope("");
    SetTf32(false);
    SetDeterministic(true);
    SetStrict(false);
    SetLayoutMode(LayoutMode::kAuto);
  }

  DevicePtr gpu_ = test::Gpu();
};

}  // namespace singa::cudnn

#pragma once

// Operations of the ranks' devices, such as GPUs. They are described and compared like all
// collectives, then queued on the device; captured ones are compared before each launch.

#include <string>
#include <vector>

#include "distributed/collectives/bucket.h"

namespace singa {

// The parts of a Reduction.
PlanPtr DeviceSumStart(const BucketPtr& bucket);
PlanPtr DeviceSumWait(const BucketPtr& bucket);
PlanPtr DeviceSum(const BucketPtr& bucket);

/// Executes or records the collection of `own` in `all`, (world_size, ...).
void GatherOnDevices(const CommunicatorPtr& communicator, const Tensor& own, const Tensor& all);
/// Executes or records copies of rank `root`'s tensors, which are contiguous.
void BroadcastOnDevices(const CommunicatorPtr& communicator, const std::vector<Tensor>& tensors,
                        int root, const std::vector<std::string>& names);
/// The same for UpdateStatistics. `text` is what ranks agree about; `inputs` the running
/// statistics, then those of batches.
void UpdateStatisticsOnDevices(const Norms& norms, const std::string& text,
                               const std::vector<Tensor>& inputs,
                               const std::vector<Tensor>& running);

}  // namespace singa

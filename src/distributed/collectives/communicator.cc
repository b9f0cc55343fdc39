#include "distributed/collectives/communicator.h"

#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <sstream>
#include <utility>

#include "core/graph/capture.h"
#include "core/statistics/profile.h"
#include "distributed/collectives/collectives.h"
#include "distributed/collectives/device_collectives.h"
#include "distributed/collectives/ordered_sum.h"
#include "distributed/meeting/mpi.h"
#include "distributed/meeting/rendezvous.h"
#include "singa/core/device.h"
#include "singa/core/error.h"
#include "singa/dispatch/spot_check.h"

namespace singa {

using distributed::ByteStream;
using distributed::Nodes;
using distributed::RankGroup;

namespace {

constexpr const char* kLaunch = "launch";  // see RankGroup::kLaunch
constexpr size_t kMostWaits = 4096;        // names of collectives, by rank
constexpr auto kBeat = std::chrono::milliseconds(200);
/// Seconds in which a GPU finishes what a rank that has ended has left it.
constexpr double kAfterwards = 0.5;

/// Whether a device has still to run collectives.
bool HasWork(DeviceGroup& devices) {
  try {
    return !devices.oldest().where.empty();
  } catch (const std::exception&) {
    return false;  // it has failed
  }
}

void CheckTensors(const char* op, const std::vector<Tensor>& tensors,
                  const std::vector<std::string>& names) {
  Check(names.empty() || names.size() == tensors.size(), op, tensors.size(), " tensors have ",
        names.size(), " names");
  for (const Tensor& t : tensors) {
    Check(!t.empty(), op, "a tensor is empty (None)");
    Check(t.device() == tensors[0].device(), op, "tensors must be on one device, got ", tensors[0],
          " and ", t);
  }
}

/// Contiguous tensors in row-major order, and the way back to those that were not.
class Dense {
 public:
  explicit Dense(const std::vector<Tensor>& tensors) : tensors_(tensors) {
    for (const Tensor& t : tensors) {
      dense_.push_back(t.Plain().Contiguous());
      if (dense_.back().bytes() > 0)
        stream_.Add(dense_.back().raw_data(), static_cast<size_t>(dense_.back().bytes()));
    }
  }
  const ByteStream& stream() const { return stream_; }
  void CopyBack() const {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (dense_[i].block() != tensors_[i].block()) {
        Tensor(tensors_[i]).CopyFrom(dense_[i]);
      } else {
        tensors_[i].block()->Touch();
      }
    }
  }

 private:
  const std::vector<Tensor>& tensors_;
  std::vector<Tensor> dense_;
  ByteStream stream_;
};

}  // namespace

std::string DescribeTensors(const std::vector<Tensor>& tensors,
                            const std::vector<std::string>& names, size_t count) {
  std::ostringstream text;
  for (size_t i = 0; i < count; ++i) {
    if (i < names.size()) {
      text << names[i];
    } else {
      text << "tensor " << i;
    }
    text << ' ' << tensors[i].shape().ToString() << ' ' << DTypeName(tensors[i].data_type())
         << '\n';
  }
  return text.str();
}

uint64_t HashLayouts(std::span<const Tensor> tensors) {
  uint64_t hash = 0;
  for (const Tensor& t : tensors)
    hash =
        hash * 0x9e3779b97f4a7c15u +
        (t.layout() ? std::hash<std::string>()(LayoutName(t.layout())) + t.layout()->bytes() : 1);
  return hash;
}

Communicator::Impl::Impl(const std::string& job, const distributed::Nodes& nodes, double timeout,
                         const std::function<distributed::Meeting()>& meet)
    : process_(getpid()) {
  if (nodes.world_size() == 1) return;
  distributed::Meeting meeting;
  if (nodes.count() > 1) meeting = meet();
  group = std::make_unique<RankGroup>(job, nodes, timeout, std::move(meeting));
  thread_ = std::thread([this] { Loop(); });
}

Communicator::Impl::~Impl() {
  if (!group) return;
  // The thread gives up what waits for ranks that have failed.
  for (const DeviceGroupPtr& devices : DeviceGroupsNow())
    while (HasWork(*devices)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  {
    const std::lock_guard<std::mutex> lock(mutex);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  devices_.clear();  // not before, since the thread watches them
}

bool Communicator::Impl::InOwnProcess() const { return getpid() == process_; }

void Communicator::Impl::CheckProcess() const {
  Check<std::logic_error>(InOwnProcess(), "Communicator",
                          "it belongs to the process that forked this one; make one in each rank");
}

void Communicator::Impl::Loop() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    if (busy_ || queue_.empty()) {
      if (stopping_ && queue_.empty() && !busy_) return;
      changed_.wait_for(lock, kBeat);
      group->Beat();
      lock.unlock();
      WatchDevices();
      lock.lock();
      continue;
    }
    const Collective collective = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    std::string error;
    double start = IsProfiling() ? ProfileClock() : 0;
    try {
      Execute(collective, start > 0 ? &start : nullptr);
    } catch (const std::exception& caught) {
      error = caught.what();
    }
    if (start > 0)
      RecordProfile(collective.op, std::to_string(group->world_size()) + " ranks", collective.name,
                    collective.bytes, start);
    lock.lock();
    if (error_.empty()) error_ = error;
    busy_ = false;
    ++finished_;
    changed_.notify_all();
  }
}

uint64_t Communicator::Impl::Execute(const Collective& collective, double* start) {
  group->ThrowIfFailed();
  const uint64_t number = ++number_;
  const std::string where = collective.op + " " + std::to_string(number) +
                            (collective.name.empty() ? "" : " (" + collective.name + ")");
  group->Describe(number, collective.op + "\n" + collective.text, collective.layouts,
                  RefusedPlansHash());
  try {
    const RankGroup::Comparison found = group->CompareDescriptions(number, where);
    refusals_differ.store(!found.same_refused, std::memory_order_relaxed);
    if (found.last >= 0) NoteWait(collective, found);
    if (found.last >= 0 && start) {
      RecordProfile("wait for rank " + std::to_string(found.last),
                    std::to_string(group->world_size()) + " ranks", collective.name, 0, *start);
      *start = ProfileClock();
    }
    const bool launches = collective.op == kLaunch;
    if (found.mixed && !launches) return Execute(collective, start);
    if (launches && (found.mixed || !found.same_layouts)) return 0;
    if (collective.run) collective.run(*group, found.same_layouts, where);
    group->Finish();
    return number;
  } catch (const std::exception& error) {
    throw std::runtime_error(group->Fail(error.what()));  // the others wait for this rank
  }
}

void Communicator::Impl::NoteWait(const Collective& collective,
                                  const RankGroup::Comparison& found) {
  const std::string name = collective.op + (collective.name.empty() ? "" : " " + collective.name);
  const std::lock_guard<std::mutex> lock(mutex);
  const bool full = waits_.size() >= kMostWaits && !waits_.contains({found.last, name});
  auto& [times, seconds] = waits_[{found.last, full ? "" : name}];
  ++times;
  seconds += found.waited;
}

std::vector<CollectiveWait> Communicator::Impl::Waits() {
  const std::lock_guard<std::mutex> lock(mutex);
  std::vector<CollectiveWait> found;
  for (const auto& [place, wait] : waits_)
    found.push_back({place.first, place.second, wait.first, wait.second});
  return found;
}

uint64_t Communicator::Impl::Start(Collective collective) {
  CheckProcess();
  const std::lock_guard<std::mutex> lock(mutex);
  collective.text = context + collective.text;
  queue_.push_back(std::move(collective));
  changed_.notify_all();
  return ++started_;
}

void Communicator::Impl::Wait(uint64_t ticket) {
  CheckProcess();
  std::unique_lock<std::mutex> lock(mutex);
  changed_.wait(lock, [&] { return finished_ >= ticket; });
  if (!error_.empty()) throw std::runtime_error(error_);
}

uint64_t Communicator::Impl::Run(Collective collective) {
  CheckProcess();
  {
    std::unique_lock<std::mutex> lock(mutex);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
    if (!error_.empty()) throw std::runtime_error(error_);
    collective.text = context + collective.text;
    busy_ = true;
  }
  std::string error;
  std::exception_ptr thrown;
  uint64_t number = 0;
  group->SetPatience(true);
  try {
    number = Execute(collective);
  } catch (const std::exception& caught) {
    error = caught.what();
    thrown = std::current_exception();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (error_.empty()) error_ = error;
    group->SetPatience(false);
    busy_ = false;
  }
  changed_.notify_all();
  if (thrown) std::rethrow_exception(thrown);
  return number;
}

uint64_t Communicator::Impl::AgreeToLaunch(const std::string& text, uint64_t state) {
  if (!group) return 1;
  return Run({.op = kLaunch, .name = "recorded step", .text = text, .layouts = state});
}

// Devices.

std::vector<DeviceGroupPtr> Communicator::Impl::DeviceGroupsNow() {
  const std::lock_guard<std::mutex> lock(devices_mutex_);
  std::vector<DeviceGroupPtr> found;
  for (const auto& [device, devices] : devices_) found.push_back(devices);
  return found;
}

DeviceGroupPtr Communicator::Impl::GroupOn(Device& device) {
  CheckProcess();
  {
    const std::lock_guard<std::mutex> lock(devices_mutex_);
    const auto found = devices_.find(&device);
    if (found != devices_.end()) return found->second;
  }
  auto* maker = dynamic_cast<DeviceGroups*>(&device);
  Check<Unavailable>(maker, "Communicator", device.name(), " has no collectives");
  DeviceGroupPtr made;
  if (!group) {
    made = maker->JoinGroup("", 0, 1, {});
  } else {
    Run({.op = "join_devices", .run = [&](RankGroup& ranks, bool, const std::string& where) {
           std::string id(DeviceGroups::kGroupId, '\0');
           if (ranks.rank() == 0) id = maker->NewGroupId();
           ByteStream bytes;
           bytes.Add(id.data(), id.size());
           distributed::Broadcast(ranks, bytes, 0, where);
           // The group's calls wait for other ranks as long as this class does.
           made = maker->JoinGroup(id, ranks.rank(), ranks.world_size(), [&ranks](double waited) {
             ranks.CheckOthers("a call of NCCL", waited);
           });
         }});
  }
  const std::lock_guard<std::mutex> lock(devices_mutex_);
  return devices_[&device] = made;
}

/// Gives up work that waits for ranks that have failed, and tells them of errors.
void Communicator::Impl::WatchDevices() {
  for (const DeviceGroupPtr& devices : DeviceGroupsNow()) {
    try {
      const std::string problem = devices->Problem();
      Check<std::runtime_error>(problem.empty(), "distributed", "rank ", group->rank(), ": ",
                                problem);
      const DeviceGroup::Oldest oldest = devices->oldest();
      if (oldest.seconds > kAfterwards) group->CheckOthers(oldest.where, oldest.seconds);
    } catch (const std::exception& error) {
      const std::string text = group->Fail(error.what());
      devices->Abort(text);
      const std::lock_guard<std::mutex> lock(mutex);
      if (error_.empty()) error_ = text;
    }
  }
}

void Communicator::Impl::Drain() noexcept {
  if (!InOwnProcess()) return;
  if (group) {
    std::unique_lock<std::mutex> lock(mutex);
    changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  }
  for (const DeviceGroupPtr& devices : DeviceGroupsNow()) devices->AwaitAll();
}

// The public class.

Communicator::Communicator(const distributed::Nodes& nodes, std::unique_ptr<Impl> impl)
    : world_size(nodes.world_size()),
      global_rank(nodes.rank()),
      local_rank(nodes.local_rank()),
      local_size(nodes.local_size()),
      impl_(std::move(impl)) {}

CommunicatorPtr Communicator::Join(const std::string& job, int rank, int world_size,
                                   double timeout) {
  Nodes::CheckPlace(rank, world_size);
  std::vector<std::string> machines;
  for (int r = 0; r < world_size; ++r) machines.push_back(distributed::NodeName("", r));
  const Nodes nodes(rank, machines);
  auto impl = std::make_unique<Impl>(job, nodes, timeout, [&] {
    return distributed::Meet(nodes, job, "", true,
                             distributed::ExchangeOnMachine(job, rank, world_size, timeout));
  });
  return CommunicatorPtr(new Communicator(nodes, std::move(impl)));
}

CommunicatorPtr Communicator::JoinMpi(const std::vector<std::string>& libraries, double timeout) {
  const distributed::MpiJob job = distributed::AskMpi(libraries, timeout);
  return JoinBy(job.exchange, job.rank, timeout, "", false, &job);
}

CommunicatorPtr Communicator::JoinAt(const std::string& meeting, const std::string& job, int rank,
                                     int world_size, double timeout, const std::string& secret) {
  Nodes::CheckPlace(rank, world_size);
  const distributed::Place place = distributed::PlaceOf(meeting);
  return JoinBy(distributed::ExchangeAt(place, job, secret, rank, world_size, timeout), rank,
                timeout, secret, distributed::IsInside(place.host));
}

CommunicatorPtr Communicator::JoinBy(const distributed::Exchange& exchange, int rank,
                                     double timeout, const std::string& secret, bool inside,
                                     const distributed::MpiJob* mpi) {
  const std::string job = exchange(distributed::NewJobName())[0];
  const Nodes nodes(rank, exchange(distributed::NodeName(distributed::ThisMachine(), rank)));
  auto impl = std::make_unique<Impl>(job, nodes, timeout, [&] {
    distributed::Meeting meeting = distributed::Meet(nodes, job, secret, inside, exchange);
    const auto role = mpi ? mpi->role : distributed::MpiRole::kNone;
    if (distributed::UsesMpi(exchange, role)) meeting.messages = mpi->messages();
    return meeting;
  });
  return CommunicatorPtr(new Communicator(nodes, std::move(impl)));
}

void Communicator::LeaveMpi(const CommunicatorPtr& communicator) {
  Check(communicator != nullptr, "LeaveMpi", "there is no communicator");
  const Impl& impl = *communicator->impl_;
  // After a failure MPI_Finalize would wait for ranks that are gone.
  if (impl.InOwnProcess() && (!impl.group || impl.group->Leave())) distributed::FinalizeMpi();
}

Communicator::~Communicator() {
  // A child that was forked is not the rank, and has no thread that it could wait for.
  if (!impl_->InOwnProcess()) (void)impl_.release();
}

void Communicator::AllReduce(const std::vector<Tensor>& tensors,
                             const std::vector<std::string>& names, double factor) {
  CheckTensors("all_reduce", tensors, names);
  for (size_t i = 0; i < tensors.size();) {  // runs of equal types
    const DType dtype = tensors[i].data_type();
    std::vector<Tensor> run;
    std::vector<std::string> run_names;
    for (; i < tensors.size() && tensors[i].data_type() == dtype; ++i) {
      run.push_back(tensors[i].is_contiguous() ? tensors[i] : tensors[i].Plain().Contiguous());
      run_names.push_back(names.empty() ? "tensor " + std::to_string(i) : names[i]);
    }
    Reduction reduction(shared_from_this(), run, run_names, 1, factor);
    reduction.Run();
    for (size_t k = 0; k < run.size(); ++k) {
      Tensor t = tensors[i - run.size() + k];
      if (t.block() != run[k].block()) t.CopyFrom(run[k]);
    }
  }
}

Tensor Communicator::AllGather(const Tensor& tensor) {
  CheckTensors("all_gather", {tensor}, {});
  Shape shape{world_size};
  for (int64_t length : tensor.shape()) shape.push_back(length);
  const Tensor result(shape, tensor.device(), tensor.data_type());
  if (tensor.device()->kind() != DeviceKind::kCpu) {
    GatherOnDevices(shared_from_this(), tensor.Plain().Contiguous(), result);
    return result;
  }
  const std::vector<Tensor> own{tensor};
  const Dense dense(own);
  char* to = static_cast<char*>(result.raw_data());
  const size_t bytes = dense.stream().bytes();
  if (!impl_->group) {
    dense.stream().Read(0, bytes, to);
    return result;
  }
  Collective collective{.op = "all_gather", .text = DescribeTensors(own, {}, 1)};
  collective.run = [&](RankGroup& group, bool, const std::string& where) {
    distributed::AllGather(
        group, dense.stream(),
        [&](int rank, size_t begin, size_t end, const char* data) {
          std::memcpy(to + static_cast<size_t>(rank) * bytes + begin, data, end - begin);
        },
        where);
  };
  impl_->Run(std::move(collective));
  return result;
}

void Communicator::Broadcast(const std::vector<Tensor>& tensors, int root,
                             const std::vector<std::string>& names) {
  CheckTensors("broadcast", tensors, names);
  Check(root >= 0 && root < world_size, "broadcast", "root must be from 0 to ", world_size - 1,
        ", got ", root);
  if (!impl_->group || tensors.empty()) return;
  if (tensors[0].device()->kind() != DeviceKind::kCpu) {
    std::vector<Tensor> dense;
    for (const Tensor& t : tensors) dense.push_back(t.Plain().Contiguous());
    BroadcastOnDevices(shared_from_this(), dense, root, names);
    for (size_t i = 0; global_rank != root && i < dense.size(); ++i)
      if (dense[i].block() != tensors[i].block()) Tensor(tensors[i]).CopyFrom(dense[i]);
    return;
  }
  const Dense dense(tensors);
  Collective collective{.op = "broadcast",
                        .name = "from rank " + std::to_string(root),
                        .text = "from rank " + std::to_string(root) + "\n" +
                                DescribeTensors(tensors, names, tensors.size())};
  collective.run = [&](RankGroup& group, bool, const std::string& where) {
    distributed::Broadcast(group, dense.stream(), root, where);
  };
  impl_->Run(std::move(collective));
  if (global_rank != root) dense.CopyBack();
}

void Communicator::Barrier() {
  if (impl_->group) impl_->Run({.op = "barrier"});
}

void Communicator::CheckEqual(const std::string& text) {
  if (impl_->group) impl_->Run({.op = "check", .text = text});
}

void Communicator::SetContext(const std::string& text) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  impl_->context = text.empty() ? "" : text + "\n";
}

void Communicator::Abort(const std::string& text) {
  if (impl_->group) impl_->group->Fail(text);
}

std::vector<CollectiveWait> Communicator::Waits() const { return impl_->Waits(); }

bool Communicator::RefusalsDiffer() const {
  return impl_->refusals_differ.load(std::memory_order_relaxed);
}

void Communicator::Drain() noexcept { impl_->Drain(); }

}  // namespace singa

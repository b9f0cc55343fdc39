#include "backend/cuda/kernels/scalar_argument.h"

#include <utility>

#include "core/graph/capture.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa::cuda {
namespace {

constexpr size_t kWords = ReplayScalars::kBytes / sizeof(uint4);  // of a slot
constexpr int kThreads = 256;
static_assert(kWords * ReplayScalars::kMaxSlots <= kThreads);

struct Slots {
  uint4 words[kWords * ReplayScalars::kMaxSlots];
};

__global__ void __launch_bounds__(kThreads)
    StoreSlots(SINGA_CONSTANT(Slots) slots, uint32_t words, uint4* to) {
  if (threadIdx.x < words) *VectorAt<uint4>(to + threadIdx.x) = slots.words[threadIdx.x];
}

/// The arguments of Follow, while it runs.
struct Following {
  const Scalars* scalars = nullptr;
  ReplayScalars* target = nullptr;
};
thread_local Following t_following;

class FollowingScope {
 public:
  explicit FollowingScope(const Following& following)
      : before_(std::exchange(t_following, following)) {}
  ~FollowingScope() { t_following = before_; }
  FollowingScope(const FollowingScope&) = delete;
  FollowingScope& operator=(const FollowingScope&) = delete;

 private:
  Following before_;
};

}  // namespace

bool ReplayScalars::Follow(const Scalars& scalars, const std::function<void()>& queue) {
  const size_t before = makers_.size();
  const FollowingScope scope({&scalars, this});
  queue();
  return makers_.size() > before;
}

ReplayScalars* ReplayScalars::Of(const Scalars& scalars) {
  return t_following.scalars == &scalars ? t_following.target : nullptr;
}

const void* ReplayScalars::Add(std::function<void(void*)> make) {
  Check<NotCapturable>(makers_.size() < kMaxSlots, CurrentOp(), "a captured graph has ", kMaxSlots,
                       " slots for scalars, and this operation needs one more");
  makers_.push_back(std::move(make));
  return static_cast<const char*>(memory_.data()) + (makers_.size() - 1) * kBytes;
}

void ReplayScalars::Send(Stream stream) const {
  if (makers_.empty()) return;
  Slots slots{};
  for (size_t i = 0; i < makers_.size(); ++i) makers_[i](&slots.words[i * kWords]);
  LaunchIndependent(StoreSlots, 1, kThreads, stream, slots,
                    static_cast<uint32_t>(makers_.size() * kWords),
                    static_cast<uint4*>(memory_.data()));
}

}  // namespace singa::cuda

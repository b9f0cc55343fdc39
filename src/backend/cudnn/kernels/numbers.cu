#include "backend/cudnn/kernels/numbers.h"

#include <utility>

#include "core/capture.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa::cuda {
namespace {

constexpr size_t kWords = LiveNumbers::kBytes / sizeof(uint4);  // of a place
constexpr int kThreads = 256;
static_assert(kWords * LiveNumbers::kMostPlaces <= kThreads);

struct Places {
  uint4 words[kWords * LiveNumbers::kMostPlaces];
};

__global__ void __launch_bounds__(kThreads)
    StorePlaces(SINGA_CONSTANT(Places) places, uint32_t words, uint4* to) {
  if (threadIdx.x < words) *VectorAt<uint4>(to + threadIdx.x) = places.words[threadIdx.x];
}

/// What a thread follows.
struct Following {
  const Scalars* scalars = nullptr;
  LiveNumbers* numbers = nullptr;
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

bool LiveNumbers::Follow(const Scalars& scalars, const std::function<void()>& queue) {
  const size_t before = makers_.size();
  const FollowingScope scope({&scalars, this});
  queue();
  return makers_.size() > before;
}

LiveNumbers* LiveNumbers::Of(const Scalars& scalars) {
  return t_following.scalars == &scalars ? t_following.numbers : nullptr;
}

const void* LiveNumbers::Add(std::function<void(void*)> make) {
  Check<NotCapturable>(makers_.size() < kMostPlaces, CurrentOp(), "captured work keeps ",
                       kMostPlaces, " operations' numbers of each step, and this is one more");
  makers_.push_back(std::move(make));
  return static_cast<const char*>(memory_.data()) + (makers_.size() - 1) * kBytes;
}

void LiveNumbers::Send(Stream stream) const {
  if (makers_.empty()) return;
  Places places{};
  for (size_t i = 0; i < makers_.size(); ++i) makers_[i](&places.words[i * kWords]);
  LaunchIndependent(StorePlaces, 1, kThreads, stream, places,
                    static_cast<uint32_t>(makers_.size() * kWords),
                    static_cast<uint4*>(memory_.data()));
}

}  // namespace singa::cuda

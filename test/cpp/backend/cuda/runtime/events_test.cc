// Events of the emulated GPU, as a thread sees them that does not wait.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "backend/cuda/runtime/runtime.h"
#include "emulated_gpu/queue.h"

namespace singa::cuda {
namespace {

void Sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

TEST(EmulatedEvents, AreReachedWhenTheWorkBeforeThemHasEnded) {
  const Stream stream = runtime::NewStream();
  const Event event = runtime::NewEvent();
  std::atomic<bool> runs{false}, may_end{false};
  emulated::EnqueueShared(stream, [&] {
    runs = true;
    while (!may_end) Sleep();
  });
  while (!runs) Sleep();
  runtime::Record(event, stream);
  EXPECT_FALSE(runtime::Reached(event));
  may_end = true;
  runtime::Synchronize(stream);
  EXPECT_TRUE(runtime::Reached(event));
  runtime::DeleteEvent(event);
  runtime::DeleteStream(stream);
}

}  // namespace
}  // namespace singa::cuda

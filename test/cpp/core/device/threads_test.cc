#include "singa/core/threads.h"

#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "support.h"

namespace singa::test {
namespace {

/// Whether a process that was forked here has one thread and refuses to have more. The regions of
/// more would wait for threads that only its parent has.
bool OneThreadAfterFork() {
  const pid_t child = fork();
  if (child == 0) {
    bool good = NumThreads() == 1;
    try {
      SetNumThreads(2);
      good = false;
    } catch (const std::invalid_argument&) {
    }
    SetNumThreads(1);
    _exit(good && NumThreads() == 1 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status == 0;
}

TEST(NumThreads, IsOneInAProcessThatWasForked) {
  const ThreadCount scope(2);
  EXPECT_TRUE(OneThreadAfterFork());
  EXPECT_EQ(NumThreads(), 2);
  SetNumThreads(3);
  EXPECT_EQ(NumThreads(), 3);
}

}  // namespace
}  // namespace singa::test

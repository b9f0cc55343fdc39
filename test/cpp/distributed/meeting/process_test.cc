#include "distributed/meeting/process.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singa::distributed {
namespace {

/// A child that does nothing, and is killed if a test fails.
class Child {
 public:
  Child() : id_(fork()) {
    if (id_ == 0)
      while (true) pause();
  }
  ~Child() {
    kill(id_, SIGKILL);
    waitpid(id_, nullptr, 0);
  }
  /// Its number, and when it was started, as it tells others.
  Process Told() const { return Process::Of(id_); }
  pid_t id() const { return id_; }

 private:
  pid_t id_;
};

TEST(Process, KillInEndsWhatIsStopped) {
  const Child child;
  kill(child.id(), SIGSTOP);
  child.Told().KillIn(0);
  int status = 0;
  ASSERT_EQ(waitpid(child.id(), &status, 0), child.id());
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(Process, KillInSparesAnotherProcessOfTheSameNumber) {
  const Child child;
  Process earlier = child.Told();
  earlier.start -= 1;
  EXPECT_FALSE(earlier.Lives());
  earlier.KillIn(0);
  usleep(200'000);
  EXPECT_TRUE(child.Told().Lives());
}

}  // namespace
}  // namespace singa::distributed

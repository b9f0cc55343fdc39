#pragma once

// Runs a function as the ranks of a job, each in a process of its own.

#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "singa/distributed/communicator.h"

namespace singa::test {

inline std::string JobName() {
  static int jobs = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(jobs++);
}

/// Forks `world` processes that call body(rank), and returns what each of them returned, or the
/// text of its exception. A process that was killed gives "killed".
inline std::vector<std::string> InProcesses(int world,
                                            const std::function<std::string(int)>& body) {
  std::vector<int> pipes;
  std::vector<pid_t> children;
  for (int r = 0; r < world; ++r) {
    int ends[2];
    if (pipe(ends) != 0) return {};
    const pid_t child = fork();
    if (child == 0) {
      std::string text;
      try {
        text = body(r);
      } catch (const std::exception& error) {
        text = error.what();
      }
      if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
      _exit(0);
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
    children.push_back(child);
  }
  std::vector<std::string> texts;
  for (int r = 0; r < world; ++r) {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(pipes[r], buffer, sizeof(buffer))) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    close(pipes[r]);
    int status = 0;
    waitpid(children[r], &status, 0);
    texts.push_back(WIFSIGNALED(status) ? "killed" : text);
  }
  return texts;
}

/// The same with a Communicator of the job.
inline std::vector<std::string> InRanks(int world,
                                        const std::function<std::string(Communicator&)>& body,
                                        double timeout = 20) {
  const std::string job = JobName();
  return InProcesses(
      world, [&](int rank) { return body(*Communicator::Join(job, rank, world, timeout)); });
}

}  // namespace singa::test

#pragma once

// Runs a function as the ranks of a job, each in a process of its own.

#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>

#include "singa/distributed/communicator.h"
#include "support.h"

namespace singa::test {

inline std::string JobName() {
  static int jobs = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(jobs++);
}

using Texts = std::vector<std::string>;

/// What body() returns, "right" if that is nothing, or the text of its exception.
template <class Body>
std::string TextOf(const Body& body) {
  try {
    if constexpr (!std::is_void_v<decltype(body())>)
      return body();
    else
      body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "right";
}

/// Raises what is wrong, where expectations would not be seen.
inline void Require(bool right, const std::string& what) {
  if (!right) throw std::runtime_error("wrong " + what);
}

inline void ExpectAll(const Texts& texts, const std::string& want) {
  for (const std::string& text : texts) EXPECT_EQ(text, want);
}

/// The tensor that `rank` contributes; all ranks can compute it.
inline Tensor Term(int rank, int trial, const Shape& shape, DType dtype = kFloat32) {
  Random random(static_cast<uint64_t>(1000 * trial + rank + 1));
  return RandomTensor(random, shape, dtype, -5, 5);
}
inline std::vector<float> Term(int rank, size_t count) {
  return Floats(Term(rank, 0, {static_cast<int64_t>(count)}));
}

/// Forks `world` processes that call body(rank), and returns TextOf each. A process that was killed
/// gives "killed".
template <class Body>
Texts InProcesses(int world, const Body& body) {
  std::vector<int> pipes;
  std::vector<pid_t> children;
  for (int r = 0; r < world; ++r) {
    int ends[2];
    if (pipe(ends) != 0) return {};
    const pid_t child = fork();
    if (child == 0) {
      const std::string text = TextOf([&] { return body(r); });
      if (write(ends[1], text.data(), text.size()) < 0) _exit(1);
      _exit(0);
    }
    close(ends[1]);
    pipes.push_back(ends[0]);
    children.push_back(child);
  }
  Texts texts;
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
template <class Body>
Texts InRanks(int world, const Body& body, double timeout = 20) {
  const std::string job = JobName();
  return InProcesses(
      world, [&](int rank) { return body(*Communicator::Join(job, rank, world, timeout)); });
}

}  // namespace singa::test

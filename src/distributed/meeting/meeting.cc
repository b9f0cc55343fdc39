#include "distributed/meeting/meeting.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "distributed/meeting/hmac.h"
#include "distributed/meeting/process.h"
#include "distributed/meeting/shared_segment.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr const char* kOp = "Communicator";
constexpr auto kLook = std::chrono::milliseconds(1);

struct Entry {
  std::atomic<int32_t> written;  // the size of the rank's world, when its text is there
  char text[kExchangedText + 1];
};

struct Board {
  std::atomic<int32_t> readers;
  Entry entries[1];  // of each rank
};

}  // namespace

Meeting Meet(const Nodes& nodes, const std::string& job, const std::string& secret, bool inside,
             const Exchange& exchange) {
  Meeting meeting;
  const int own = nodes.own();
  if (nodes.is_first() && own + 1 < nodes.count())
    meeting.listener = std::make_unique<Listener>(inside);
  const std::string address = meeting.listener ? meeting.listener->address() : "";
  // Rank 0's secret, where nobody has given one.
  const std::string proposed = secret.empty() ? NewSecret() : "";
  const std::vector<std::string> all = exchange(proposed + "\n" + address);
  const auto part = [&](int rank, bool second) {
    const std::string& text = all[static_cast<size_t>(rank)];
    const size_t end = std::min(text.find('\n'), text.size());
    return second ? text.substr(std::min(end + 1, text.size())) : text.substr(0, end);
  };
  if (nodes.is_first() && own > 0) meeting.before = part(nodes.first(own - 1), true);
  meeting.pass = {secret.empty() ? part(0, false) : secret, "nodes\n" + job};
  return meeting;
}

bool UsesMpi(const Exchange& exchange, MpiRole role) {
  const std::string own = EnvironmentValue("SINGA_TRANSPORT", kOp);
  const std::string by_default = "+";
  bool all_by_default = true;
  for (const std::string& text : exchange((role == MpiRole::kByDefault ? by_default : "-") + own)) {
    const std::string other = text.substr(1);
    Check(other == own, kOp, "all ranks must have one SINGA_TRANSPORT, got ", own, " and ", other);
    all_by_default = all_by_default && text.starts_with(by_default);
  }
  if (own == "auto") return all_by_default;
  if (own != "mpi") return false;
  Check(role != MpiRole::kNone, kOp,
        "SINGA_TRANSPORT=mpi is for ranks that an MPI has started (mpiexec, mpirun, or srun with a "
        "PMI)");
  return true;
}

Exchange ExchangeOnMachine(const std::string& job, int rank, int world_size, double timeout) {
  return [=](const std::string& text) {
    const auto world = static_cast<size_t>(world_size);
    SharedSegment segment(job + "-meeting", sizeof(Board) + world * sizeof(Entry));
    Board& board = *static_cast<Board*>(segment.data());
    Entry& own = board.entries[rank];
    std::strncpy(own.text, text.c_str(), kExchangedText);
    own.written.store(world_size);
    const uint64_t start = SharedClock();
    std::vector<std::string> all;
    try {
      for (int r = 0; r < world_size; ++r) {
        const Entry& other = board.entries[r];
        while (other.written.load() == 0) {
          std::this_thread::sleep_for(kLook);
          Check<std::runtime_error>(static_cast<double>(SharedClock() - start) * 1e-9 < timeout,
                                    kOp, "rank ", r, " has not joined the job; rank ", rank,
                                    " has waited for it for ", timeout, " s");
        }
        Check(other.written.load() == world_size, kOp, "rank ", rank, " has a world_size of ",
              world_size, ", another rank of ", other.written.load());
        all.emplace_back(other.text);
      }
    } catch (...) {
      segment.Unlink();
      throw;
    }
    if (board.readers.fetch_add(1) + 1 == world_size) segment.Unlink();
    return all;
  };
}

std::string NodeName(const std::string& machine, int rank) {
  const int64_t ranks = std::stoll(EnvironmentValue("SINGA_NODE_RANKS", kOp));
  return ranks == 0 ? machine : machine + "-" + std::to_string(rank / ranks);
}

std::string ThisMachine() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  // Copies of a virtual machine may have one boot_id.
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) id += std::string("-") + host.data();
  // Containers may have a /dev/shm, and numbers of processes, of their own.
  for (const char* path : {"/dev/shm", "/proc/self/ns/pid"}) {
    struct stat info {};
    if (stat(path, &info) == 0)
      id += "-" + std::to_string(info.st_dev) + "." + std::to_string(info.st_ino);
  }
  return id;
}

std::string NewJobName() {
  return "job-" + std::to_string(getpid()) + "-" + NewSecret().substr(0, 20);
}

}  // namespace singa::distributed

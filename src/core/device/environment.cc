#include "singa/core/environment.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include "singa/core/error.h"

namespace singa {
namespace {

enum class Kind { kChoice, kNumber, kText };

struct Row {
  const char* name;
  Kind kind;
  const char* values;  // for a choice: its words, separated by commas and "or"
  const char* unset;
  const char* meaning;
  int64_t low = 0, high = 0;  // range of a number
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr const char* kFlag = "0 or 1";
constexpr const char* kGlibc =
    "A setting of glibc; singa does not tune the heap if one of these four is set.";

constexpr Row kTable[] = {
    {"SINGA_PREFER", Kind::kChoice,
     "fastest, limited_workspace, no_workspace, autotune or reference", "fastest",
     "The default preference by which implementations are chosen."},
    {"SINGA_LAYOUT", Kind::kChoice, "auto or plain", "auto",
     "`plain` keeps all results row-major (`singa.set_layout`)."},
    {"SINGA_STRICT", Kind::kChoice, kFlag, "0",
     "`1` disables methods that round differently (Winograd, FFT, TF32) or let NaN spread to other "
     "groups of a convolution (`singa.set_strict`)."},
    {"SINGA_FLOAT32_PRECISION", Kind::kChoice, "highest or high", "highest",
     "`high` allows AMX and tensor cores to round float32 factors, to 16 and 11 bits "
     "(`singa.set_float32_precision`)."},
    {"SINGA_AMX_FLOAT32", Kind::kChoice, "on, off or plain", "on",
     "`off` multiplies float32 numbers as they are, not as sums of bfloat16 parts by AMX "
     "(`performance.md`). For tests: `plain` multiplies parts on any CPU, by a slow model of AMX."},
    {"SINGA_DETERMINISTIC", Kind::kChoice, kFlag, "1",
     "`0` allows GPU kernels whose order of summation varies (`singa.set_deterministic`)."},
    {"SINGA_TF32", Kind::kChoice, kFlag, "0",
     "`1` is another name for `SINGA_FLOAT32_PRECISION=high`."},
    {"SINGA_OPCHECK", Kind::kNumber, "a number from 0 on", "0",
     "Compares one operation in this many with `reference`; 0 compares none (`singa.opcheck`).", 0,
     kMost},
    {"SINGA_OPCHECK_DIR", Kind::kText, "a folder", "the working folder",
     "Where OPCHECK saves mismatches for `python -m singa replay`."},
    {"SINGA_SPOT_CHECKS", Kind::kChoice, kFlag, "1",
     "`0` believes implementations without checking sampled results (`singa.set_spot_checks`)."},
    {"SINGA_POISON", Kind::kChoice, kFlag, "0",
     "`1` fills results and workspaces with NaN before each operation on the CPU, which shows "
     "kernels that read memory before they write it."},
    {"SINGA_AUDIT", Kind::kChoice, kFlag, "1",
     "`0` turns audits of recorded steps off (`recorded_steps.md`)."},
    {"SINGA_PLAN_CACHE", Kind::kChoice, kFlag, "1", "`0` builds a plan for every call."},
    {"SINGA_ALLOCATOR", Kind::kChoice, "caching or system", "caching",
     "`system` allocates each tensor by the system, for address sanitizers."},
    {"SINGA_COMPAT", Kind::kChoice, kFlag, "0",
     "`1` follows SINGA where singa differs by default (`singa_compat.md`)."},
    {"SINGA_DEVICE", Kind::kChoice, "cpu", "",
     "`cpu` makes `create_cuda_gpu()` and the like give the CPU."},
    {"SINGA_FULL_TRACEBACK", Kind::kChoice, kFlag, "0",
     "`1` shows the lines of singa in the tracebacks of errors that end a program."},
    {"SINGA_JOB", Kind::kText, "a name", "",
     "Name of this start of a job of several processes, on one machine; `singa launch` sets it."},
    {"SINGA_RANK", Kind::kNumber, "a number from 0 on", "0", "This process's rank in the job.", 0,
     kMost},
    {"SINGA_WORLD_SIZE", Kind::kNumber, "a number from 1 on", "1", "Processes in the job.", 1,
     kMost},
    {"SINGA_LOCAL_RANK", Kind::kNumber, "a number from 0 on", "0",
     "This process's rank among those of its machine; unset, the ranks find it out when they meet.",
     0, kMost},
    {"SINGA_LOCAL_SIZE", Kind::kNumber, "a number from 1 on", "1",
     "Processes of the job on this machine; the same.", 1, kMost},
    {"SINGA_RESTART", Kind::kNumber, "a number from 0 on", "0",
     "How often `singa launch` has started the job again.", 0, kMost},
    {"SINGA_MEETING", Kind::kText, "host:port", "",
     "Where rank 0 listens, so that ranks on several machines find each other without MPI."},
    {"SINGA_SECRET", Kind::kText, "a text, at least 16 characters", "",
     "What the ranks of a job that is open to the network know each other by (`distributed.md`)."},
    {"SINGA_SECRET_FILE", Kind::kText, "a file", "",
     "A file that only its owner can read, with the secret."},
    {"SINGA_INSECURE", Kind::kChoice, kFlag, "0",
     "`1` lets a job meet without a secret, on a network that one trusts."},
    {"SINGA_INTERFACE", Kind::kText, "a name, such as eth0", "all",
     "The network interface by which the other machines of a job reach this one."},
    {"SINGA_TRANSPORT", Kind::kChoice, "auto, tcp or mpi", "auto",
     "What moves data between machines (`distributed.md`)."},
    {"SINGA_NODE_RANKS", Kind::kNumber, "a number from 0 on", "0",
     "For tests: every so many ranks of a machine exchange data with the others as if they were on "
     "a machine of their own; 0: none.",
     0, kMost},
    {"SINGA_WAITS", Kind::kText, "a folder", "",
     "Where each rank writes at its end which ranks it has waited for; `singa launch --report` "
     "sets "
     "it."},
    {"SINGA_TIMEOUT", Kind::kNumber, "seconds, from 1 on", "60",
     "How long a rank waits for another one before it raises an error.", 1, kMost},
    {"SINGA_CUDA_LIBRARY", Kind::kText, "a file", "`libsinga_cuda.so` beside `libsinga.so`",
     "The CUDA backend (`cuda.md`)."},
    {"SINGA_NVIDIA_PATH", Kind::kText, "folders, separated by `:`", "",
     "Where to look for cuDNN, cuBLASLt and NCCL, besides the usual folders."},
    {"SINGA_CUDA_GRAPHS", Kind::kChoice, kFlag, "1", "`0` disables CUDA graphs."},
    {"SINGA_CUDA_BRANCHES", Kind::kNumber, "a number from 1 to 16", "1",
     "The largest number of parallel branches of a CUDA graph.", 1, 16},
    {"SINGA_CUDA_BLOCKING", Kind::kChoice, kFlag, "0",
     "`1` waits for each GPU operation, so that errors name the operation that failed."},
    {"OMP_NUM_THREADS", Kind::kText, "a number",
     "the CPUs of the process, within its cgroup's quota",
     "Threads of OpenMP, oneDNN and BLAS (`singa.set_num_threads`)."},
    {"OMP_WAIT_POLICY", Kind::kText, "active or passive", "",
     "OpenMP's setting of how threads wait for each other. Where it is set, singa sets no "
     "GOMP_SPINCOUNT."},
    {"GOMP_SPINCOUNT", Kind::kText, "a number", "3000",
     "Turns that a waiting thread spins before it sleeps, where `import singa` loads GNU OpenMP."},
    {"MALLOC_MMAP_THRESHOLD_", Kind::kText, "bytes", "", kGlibc},
    {"MALLOC_TRIM_THRESHOLD_", Kind::kText, "bytes", "", kGlibc},
    {"MALLOC_TOP_PAD_", Kind::kText, "bytes", "", kGlibc},
    {"GLIBC_TUNABLES", Kind::kText, "glibc's", "", kGlibc},
};

bool IsNumber(std::string_view text, int64_t low, int64_t high) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && low <= number &&
         number <= high;
}

/// True if `text` is one of the words in a list such as "one, two or three".
bool IsChoice(const std::string& text, std::string words) {
  std::erase(words, ',');
  return text != "or" && text.find(' ') == text.npos &&
         (" " + words + " ").find(" " + text + " ") != words.npos;
}

}  // namespace

std::vector<EnvironmentVariable> EnvironmentVariables() {
  std::vector<EnvironmentVariable> all;
  for (const Row& row : kTable) all.push_back({row.name, row.values, row.unset, row.meaning});
  return all;
}

std::string EnvironmentValue(const std::string& name, const std::string& op) {
  const Row* row = std::ranges::find(kTable, name, &Row::name);
  Check(row != std::end(kTable), op.c_str(), name, " is no variable that singa reads");
  const char* text = std::getenv(row->name);
  if (!text || !*text) return row->kind == Kind::kText ? "" : row->unset;
  Check(
      row->kind == Kind::kText || (row->kind == Kind::kNumber ? IsNumber(text, row->low, row->high)
                                                              : IsChoice(text, row->values)),
      op.c_str(), name, " must be ", row->values, ", got '", text, "'");
  return text;
}

}  // namespace singa

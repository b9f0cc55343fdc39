#pragma once

#include <string>

namespace singa {

/// CPUs that the cgroups of this process allow it, of version 1 or 2; infinite without a limit.
/// `launcher/cores.py` reads the same. `root` is the folder of cgroups, `of_process` the file with
/// those of the process; tests have others.
double QuotaCpus(const std::string& root = "/sys/fs/cgroup",
                 const std::string& of_process = "/proc/self/cgroup");

}  // namespace singa

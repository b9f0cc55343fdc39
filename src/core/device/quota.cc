#include "core/device/quota.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

namespace singa {
namespace {

constexpr double kNone = std::numeric_limits<double>::infinity();

/// The limit in the files of one cgroup.
double LimitOf(const std::string& folder, bool is_version_2) {
  std::string most;  // "max" or -1: no limit
  double period = 0;
  if (is_version_2) {
    std::ifstream(folder + "/cpu.max") >> most >> period;
  } else {
    std::ifstream(folder + "/cpu.cfs_quota_us") >> most;
    std::ifstream(folder + "/cpu.cfs_period_us") >> period;
  }
  const double quota = std::strtod(most.c_str(), nullptr);
  return quota > 0 && period > 0 ? quota / period : kNone;
}

bool Contains(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

double QuotaCpus(const std::string& root, const std::string& of_process) {
  double least = kNone;
  std::ifstream lines(of_process);
  // A line is number:controllers:/path. Version 2 names no controllers.
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_version_2 = controllers.empty();
    if (!is_version_2 && !Contains(controllers, "cpu")) continue;
    std::string folder = is_version_2 ? root : root + "/cpu";
    least = std::min(least, LimitOf(folder, is_version_2));
    // In a container the path may be the host's, and the limit is in the root.
    std::istringstream parts(line.substr(second + 1));
    for (std::string part; std::getline(parts, part, '/');) {
      if (part.empty() || part == "..") continue;
      folder += "/" + part;
      least = std::min(least, LimitOf(folder, is_version_2));
    }
  }
  return least;
}

}  // namespace singa

#include "distributed/collectives/bucket.h"

#include <sstream>

#include "singa/core/error.h"

namespace singa {

std::string TitleOf(const std::vector<std::string>& names, size_t count) {
  if (names.empty()) return std::to_string(count) + " tensors";
  return names[0] + (count > 1 ? " and " + std::to_string(count - 1) + " more" : "");
}

void CheckOwners(const char* op, const std::vector<int64_t>& owners, size_t count, int world_size) {
  Check(owners.size() == count, op, count, " tensors have ", owners.size(), " owners");
  for (int64_t owner : owners)
    Check(owner >= 0 && owner < world_size, op, "owners must be from 0 to ", world_size - 1,
          ", got ", owner);
}

std::string DescribeOwners(const std::vector<int64_t>& owners) {
  std::ostringstream text;
  for (int64_t owner : owners) text << (text.tellp() == 0 ? ", to ranks " : " ") << owner;
  return text.str();
}

}  // namespace singa

#include "core/device/quota.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "support.h"

namespace singa::test {
namespace {

namespace fs = std::filesystem;

constexpr double kNone = std::numeric_limits<double>::infinity();

/// A folder with files of cgroups.
class Quota : public ::testing::Test {
 protected:
  Quota() { fs::create_directories(folder_); }
  ~Quota() override { fs::remove_all(folder_); }

  void Write(const std::string& file, const std::string& text) const {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }

  double Cpus() const {
    return QuotaCpus((folder_ / "root").string(), (folder_ / "process").string());
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("quota_test_" + std::to_string(getpid()));
};

TEST_F(Quota, IsTheLeastOfTheCgroupAndThoseAboveIt) {
  EXPECT_EQ(Cpus(), kNone);
  Write("process", "0::/system.slice/pets.service\n");
  EXPECT_EQ(Cpus(), kNone);
  Write("root/cpu.max", "max 100000\n");
  Write("root/system.slice/pets.service/cpu.max", "max 100000\n");
  EXPECT_EQ(Cpus(), kNone);
  Write("root/system.slice/cpu.max", "250000 100000\n");
  EXPECT_EQ(Cpus(), 2.5);
  Write("root/system.slice/pets.service/cpu.max", "75000 50000\n");
  EXPECT_EQ(Cpus(), 1.5);
}

TEST_F(Quota, OfAContainerWhoseFilesAreInTheRoot) {
  Write("process", "0::/../../docker/1234\n");
  Write("root/cpu.max", "150000 100000\n");
  EXPECT_EQ(Cpus(), 1.5);
}

TEST_F(Quota, OfVersion1) {
  Write("process", "5:cpuset:/b\n3:memory:/b\nnothing\n2:cpu,cpuacct:/a/b\n0::/c\n");
  Write("root/cpu/a/cpu.cfs_quota_us", "-1\n");
  Write("root/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cpus(), kNone);
  Write("root/cpu/a/b/cpu.cfs_quota_us", "300000\n");
  Write("root/cpu/a/b/cpu.cfs_period_us", "200000\n");
  EXPECT_EQ(Cpus(), 1.5);
  Write("root/cpu/cpu.cfs_quota_us", "50000\n");
  Write("root/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Cpus(), 0.5);
}

}  // namespace
}  // namespace singa::test

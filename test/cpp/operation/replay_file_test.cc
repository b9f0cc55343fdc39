// OPCHECK's replay files: they come back as they were, or are refused before anything is allocated.

#include "model/operation/replay_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support.h"

namespace singa {
namespace {

using opcheck::Call;
using opcheck::ReadReplayFile;
using test::Random;
using test::RandomTensor;
using test::Values;

class ReplayFileTest : public ::testing::Test {
 protected:
  ReplayFileTest() {
    Random random(7);
    call_.op = "Test";
    call_.family = "a family that no build has";
    call_.implementation = "onednn";
    call_.layer = "block1.conv";
    call_.fields = {{"kernel", "(3, 3)"}, {"eps", "1e-05"}, {"empty", ""}};
    call_.inputs = {RandomTensor(random, {2, 3, 4}), Tensor(), RandomTensor(random, {5}, kFloat64)};
    call_.outputs = {Tensor({7, 1}), call_.inputs[0], Tensor()};
    call_.aliases = {-1, 0, -1};
    call_.scalars.v = {0.1, -0.0, 1e300};
    call_.scalars.seed = ~uint64_t{0};
    call_.scalars.offset = 12;
    folder_ = std::filesystem::path(::testing::TempDir()) / "replay_file_test";
    std::filesystem::create_directories(folder_);
    path_ = opcheck::WriteReplayFile(call_, folder_.string());
    std::ifstream in(path_, std::ios::binary);
    content_.assign(std::istreambuf_iterator<char>(in), {});
  }
  ~ReplayFileTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& content) { std::ofstream(path_, std::ios::binary) << content; }

  /// Another text in the head, with a checksum that fits.
  void Replace(const std::string& from, const std::string& to) {
    std::string changed = content_.substr(0, content_.size() - sizeof(uint64_t));
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    changed.replace(at, from.size(), to);
    const uint64_t checksum = opcheck::ReplayChecksum(changed);
    Write(changed + std::string(reinterpret_cast<const char*>(&checksum), sizeof(checksum)));
  }

  void ExpectRefused(const std::string& reason) {
    try {
      ReadReplayFile(path_);
      ADD_FAILURE() << "was read";
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }

  Call call_;
  std::filesystem::path folder_;
  std::string path_, content_;
};

TEST_F(ReplayFileTest, ComesBack) {
  const Call read = ReadReplayFile(path_);
  EXPECT_EQ(read.family, call_.family);
  EXPECT_EQ(read.implementation, call_.implementation);
  EXPECT_EQ(read.layer, call_.layer);
  EXPECT_EQ(read.fields, call_.fields);
  EXPECT_EQ(read.aliases, call_.aliases);
  EXPECT_EQ(read.scalars.v, call_.scalars.v);
  EXPECT_TRUE(std::signbit(read.scalars.v[1]));
  EXPECT_EQ(read.scalars.seed, call_.scalars.seed);
  EXPECT_EQ(read.scalars.offset, call_.scalars.offset);
  ASSERT_EQ(read.inputs.size(), 3u);
  ASSERT_EQ(read.outputs.size(), 3u);
  for (size_t i : {0, 2}) {
    EXPECT_EQ(read.inputs[i].shape(), call_.inputs[i].shape());
    EXPECT_EQ(read.inputs[i].data_type(), call_.inputs[i].data_type());
    EXPECT_EQ(Values(read.inputs[i]), Values(call_.inputs[i]));
  }
  EXPECT_TRUE(read.inputs[1].empty());
  EXPECT_EQ(read.outputs[0].shape(), Shape({7, 1}));
  EXPECT_EQ(read.outputs[1].shape(), Shape({2, 3, 4}));
  EXPECT_TRUE(read.outputs[2].empty());
}

TEST_F(ReplayFileTest, EveryDamagedByteIsNoticed) {
  for (size_t i = 0; i < content_.size(); ++i) {
    std::string damaged = content_;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    Write(damaged);
    EXPECT_THROW(ReadReplayFile(path_), std::invalid_argument) << "byte " << i;
  }
}

TEST_F(ReplayFileTest, EveryLengthIsNoticed) {
  for (size_t size = 0; size < content_.size(); ++size) {
    Write(content_.substr(0, size));
    EXPECT_THROW(ReadReplayFile(path_), std::invalid_argument) << size << " bytes";
  }
  Write(content_ + '\0');
  ExpectRefused("is damaged");
}

TEST_F(ReplayFileTest, SizesAreComparedWithTheFile) {
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"in 0 -1 3 2 3 4", "in 0 -1 3 2 3 5"},
           {"in 0 -1 3 2 3 4", "in 0 -1 3 2 3 3"},
           {"in 0 -1 3 2 3 4", "in 0 -1 3 1000000 1000000 1000"},
           {"in 0 -1 3 2 3 4", "in 0 -1 3 2 -3 -4"},
           {"in 0 -1 3 2 3 4", "in 0 -1 3 4000000000000000000 4 4"},
           {"in 0 -1 3 2 3 4", "in 0 -1 3 99999999999999999999 1 1"},
           {"in 0 -1 3 2 3 4", "in 0 -1 13 2 3 4"},
           {"in 0 -1 3 2 3 4", "in 0 -1 -1 2 3 4"},
           {"in 0 -1 3 2 3 4", "in 4711 -1 3 2 3 4"},
           {"in 0 -1 3 2 3 4", "in -2 -1 3 2 3 4"},
           {"in 0 -1 3 2 3 4", "in x -1 3 2 3 4"},
           {"\n3 3\nin", "\n99999999999 3\nin"},
           {"\n3 3\nin", "\n-1 3\nin"},
           {"\n3 3\nin", "\n2 3\nin"},
           {"\n3\nkernel", "\n4000000000\nkernel"},
           {"out 0 0 3 2 3 4", "out 0 3 3 2 3 4"},
           {"out 0 0 3 2 3 4", "out 0 -2 3 2 3 4"},
           {"out 0 0 3 2 3 4", "out 0 1 3 2 3 4"},
           {"out 0 0 3 2 3 4", "out 0 2 3 2 3 4"},
           {"out 0 0 3 2 3 4", "out 0 0 3 2 3 400"},
           {"out 0 0 3 2 3 4", "out 0 0 3 4 3 2"}}) {
    Replace(from, to);
    EXPECT_THROW(ReadReplayFile(path_), std::invalid_argument) << to;
  }
  Replace("block1.conv", "block2.convolution");  // that the checksum here is the file's
  EXPECT_EQ(ReadReplayFile(path_).layer, "block2.convolution");
}

TEST_F(ReplayFileTest, OtherFiles) {
  Write("");
  ExpectRefused("is damaged");
  Replace("singa-replay 2", "singa-replay 1");
  ExpectRefused("is no replay file of this version");
  path_ = (folder_ / "none").string();
  ExpectRefused("cannot read " + path_);
  path_ = folder_.string();
  EXPECT_THROW(ReadReplayFile(path_), std::invalid_argument);
}

TEST_F(ReplayFileTest, OfAnotherBuild) {
  EXPECT_THROW(ReplayFile(path_), std::invalid_argument);
  opcheck::AddFamily(call_.family, {[](const Call& call) { return "Test in " + call.layer; }, {}});
  EXPECT_EQ(ReplayFile(path_), "Test in block1.conv agrees with reference");
}

TEST_F(ReplayFileTest, AFolderThatIsNotThere) {
  EXPECT_EQ(opcheck::WriteReplayFile(call_, "no/such/folder").rfind("(the replay file no/such", 0),
            0u);
}

}  // namespace
}  // namespace singa

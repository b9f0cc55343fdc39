#include "distributed/transport/mpi_transport.h"

#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "distributed/collectives/collectives.h"
#include "distributed/collectives/ordered_sum.h"
#include "distributed/collectives/rank_group.h"
#include "distributed/ranks.h"
#include "support.h"

namespace singa::test {
namespace {

using namespace distributed;

/// The sockets between all pairs of ranks, made before these are forked.
class Sockets {
 public:
  explicit Sockets(int world) : world_(world), files_(static_cast<size_t>(world * world), -1) {
    for (int a = 0; a < world; ++a)
      for (int b = 0; b < a; ++b) {
        int ends[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
        At(a, b) = ends[0];
        At(b, a) = ends[1];
      }
  }
  ~Sockets() {
    for (const int file : files_)
      if (file >= 0) close(file);
  }
  int& At(int own, int other) { return files_[static_cast<size_t>(own * world_ + other)]; }
  int world() const { return world_; }

 private:
  int world_;
  std::vector<int> files_;
};

/// What an MPI may do: it copies a short message, and says at once that it has been sent, though it
/// leaves only in a later Progress. Others have finished when they have left. What comes before it
/// is wanted is kept.
class FakeMessages final : public Messages {
 public:
  FakeMessages(int rank, Sockets& sockets, std::atomic<int>* calls = nullptr,
               int broken_after = 1 << 30)
      : rank_(rank),
        sockets_(sockets),
        peers_(static_cast<size_t>(sockets.world())),
        calls_(calls),
        broken_after_(broken_after) {}

  void Send(Id id, const char* data, size_t bytes, int rank, int tag) override {
    Count();
    const Head head{tag, bytes};
    std::string text(reinterpret_cast<const char*>(&head), sizeof(head));
    text.append(data, bytes);
    const bool copied = bytes < 60000;
    if (copied) finished_.push_back(id);
    peers_[static_cast<size_t>(rank)].out.push_back(
        {copied ? std::nullopt : std::optional(id), std::move(text)});
  }
  void Receive(Id id, char* data, size_t bytes, int rank, int tag) override {
    Count();
    peers_[static_cast<size_t>(rank)].wanted.push_back({id, data, bytes, tag});
  }
  std::vector<Id> Progress() override {
    Count();
    if (--broken_after_ < 0) throw std::runtime_error("MPI_Testsome: broken");
    for (int r = 0; r < sockets_.world(); ++r)
      if (r != rank_) Move(peers_[static_cast<size_t>(r)], sockets_.At(rank_, r));
    return std::exchange(finished_, {});
  }

 private:
  struct Head {
    int tag;
    size_t bytes;
  };
  struct Outgoing {
    std::optional<Id> id;
    std::string text;
    size_t written = 0;
  };
  struct Wanted {
    Id id;
    char* data;
    size_t bytes;
    int tag;
  };
  struct Peer {
    std::list<Outgoing> out;
    std::list<Wanted> wanted;
    std::string in;
  };

  void Count() {
    if (calls_) ++*calls_;
  }
  void Move(Peer& peer, int file) {
    while (!peer.out.empty()) {
      Outgoing& first = peer.out.front();
      const ssize_t n = send(file, first.text.data() + first.written,
                             first.text.size() - first.written, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0) break;
      first.written += static_cast<size_t>(n);
      if (first.written < first.text.size()) break;
      if (first.id) finished_.push_back(*first.id);
      peer.out.pop_front();
    }
    char buffer[1 << 16];
    for (ssize_t n; (n = recv(file, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0;)
      peer.in.append(buffer, static_cast<size_t>(n));
    // A receive gets the first whole message of its tag.
    for (auto want = peer.wanted.begin(); want != peer.wanted.end();) {
      size_t at = 0;
      bool found = false;
      while (!found && peer.in.size() >= at + sizeof(Head)) {
        Head head{};
        std::memcpy(&head, peer.in.data() + at, sizeof(head));
        const size_t whole = sizeof(head) + head.bytes;
        if (peer.in.size() < at + whole) break;
        found = head.tag == want->tag;
        if (!found) {
          at += whole;
          continue;
        }
        if (head.bytes != want->bytes) throw std::runtime_error("another size");
        std::memcpy(want->data, peer.in.data() + at + sizeof(head), head.bytes);
        peer.in.erase(at, whole);
      }
      if (!found) {
        ++want;
        continue;
      }
      finished_.push_back(want->id);
      want = peer.wanted.erase(want);
    }
  }

  int rank_;
  Sockets& sockets_;
  std::vector<Peer> peers_;
  std::vector<Id> finished_;
  std::atomic<int>* calls_;
  int broken_after_;
};

using Machines = Texts;

std::unique_ptr<RankGroup> Join(const std::string& job, int rank, const Machines& machines,
                                std::unique_ptr<Messages> messages, double timeout = 20) {
  const int world = static_cast<int>(machines.size());
  const Nodes nodes(rank, machines);
  Meeting meeting = Meet(nodes, job, "", true, ExchangeOnMachine(job, rank, world, timeout));
  meeting.messages = std::move(messages);
  return std::make_unique<RankGroup>(job, nodes, timeout, std::move(meeting));
}

ByteStream StreamOf(std::vector<float>& values) {
  ByteStream stream;
  if (!values.empty()) stream.Add(values.data(), values.size() * sizeof(float));
  return stream;
}

void Sum(RankGroup& group, uint64_t number, std::vector<float>& values) {
  const ByteStream stream = StreamOf(values);
  group.Describe(number, "sum");
  group.CompareDescriptions(number, "a test");
  AllReduce(group, {&stream, 1}, kFloat32, 0.3, stream, "a test");
  group.Finish();
}

void Work(RankGroup& group, size_t count, uint64_t* number) {
  const int world = group.world_size();
  std::vector<std::vector<float>> terms;
  std::vector<const void*> from;
  for (int r = 0; r < world; ++r) terms.push_back(Term(r, count));
  for (const std::vector<float>& term : terms) from.push_back(term.data());
  std::vector<float> own = terms[static_cast<size_t>(group.rank())], want(count);
  OrderedSum(kFloat32, 0.3, from.data(), world, static_cast<int64_t>(count), want.data());
  Sum(group, ++*number, own);
  Require(own == want, "sum of " + std::to_string(count));

  own = terms[static_cast<size_t>(group.rank())];
  std::vector<std::vector<float>> all(static_cast<size_t>(world), std::vector<float>(count));
  group.Describe(++*number, "gather");
  group.CompareDescriptions(*number, "a test");
  AllGather(
      group, StreamOf(own),
      [&](int rank, size_t begin, size_t end, const char* data) {
        char* to = reinterpret_cast<char*>(all[static_cast<size_t>(rank)].data());
        std::memcpy(to + begin, data, end - begin);
      },
      "a test");
  group.Finish();
  Require(all == terms, "list of " + std::to_string(count));

  group.Describe(++*number, "broadcast");
  group.CompareDescriptions(*number, "a test");
  Broadcast(group, StreamOf(own), world - 1, "a test");
  group.Finish();
  Require(own == terms.back(), "copy of " + std::to_string(count));
}

/// Parts of sums of 16-bit floats are wider than the floats.
void SumHalves(RankGroup& group, uint64_t number) {
  constexpr size_t kCount = 300001;
  std::vector<std::vector<uint16_t>> terms;
  std::vector<const void*> from;
  for (int r = 0; r < group.world_size(); ++r) {
    std::vector<uint16_t>& term = terms.emplace_back();
    for (const float value : Term(r, kCount))
      term.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  }
  for (const std::vector<uint16_t>& term : terms) from.push_back(term.data());
  std::vector<uint16_t> own = terms[static_cast<size_t>(group.rank())], want(kCount);
  OrderedSum(kBFloat16, 1, from.data(), group.world_size(), kCount, want.data());
  ByteStream stream;
  stream.Add(own.data(), kCount * sizeof(uint16_t));
  group.Describe(number, "sum");
  group.CompareDescriptions(number, "a test");
  AllReduce(group, {&stream, 1}, kBFloat16, 1, stream, "a test");
  group.Finish();
  Require(own == want, "sum of halves");
}

TEST(MpiTransport, MovesTheDataOfAllCollectives) {
  const std::vector<Machines> placements = {
      {"a", "b"}, {"a", "a", "b"}, {"a", "b", "b"}, {"a", "b", "c"}, {"a", "b", "a", "b"}};
  for (const Machines& machines : placements) {
    const std::string job = JobName();
    const int world = static_cast<int>(machines.size());
    Sockets sockets(world);
    const Texts texts = InProcesses(world, [&](int rank) {
      const auto group = Join(job, rank, machines, std::make_unique<FakeMessages>(rank, sockets));
      uint64_t number = 0;
      // One element, several chunks, and more than all buffers hold.
      for (const size_t count : {size_t{1}, size_t{50000}, size_t{600000}, size_t{3}})
        Work(*group, count, &number);
      SumHalves(*group, ++number);
      // Nobody leaves before the others have what it has sent.
      Require(group->Leave(), "end");
    });
    ExpectAll(texts, "right");
  }
}

TEST(MpiTransport, AnErrorOfMpiIsThatOfAllRanks) {
  const std::string job = JobName();
  Sockets sockets(2);
  const Texts texts = InProcesses(2, [&](int rank) {
    const int broken_after = rank == 1 ? 3 : 1 << 30;
    const auto group = Join(job, rank, {"a", "b"},
                            std::make_unique<FakeMessages>(rank, sockets, nullptr, broken_after));
    std::vector<float> values(600000);
    Sum(*group, 1, values);
  });
  ExpectAll(texts, "[Communicator] rank 1: MPI_Testsome: broken");
}

/// Gets nothing, and has a call that takes long, as on a busy machine, when it is told to.
class SlowMessages final : public Messages {
 public:
  SlowMessages(std::atomic<bool>& slow, bool& gone) : slow_(slow), gone_(gone) {}
  ~SlowMessages() override { gone_ = true; }
  void Send(Id, const char*, size_t, int, int) override {}
  void Receive(Id, char*, size_t, int, int) override {}
  std::vector<Id> Progress() override {
    if (slow_.exchange(false)) std::this_thread::sleep_for(std::chrono::seconds(1));
    return {};
  }

 private:
  std::atomic<bool>& slow_;
  bool& gone_;
};

TEST(MpiTransport, ACallThatTakesLongIsOverWhenAGoodJobEnds) {
  std::atomic<bool> slow = true;
  bool gone = false;
  NodeMemory memory(JobName(), Nodes(0, {"a", "b"}));
  memory.Unlink();
  {
    MpiTransport transport(memory, std::make_unique<SlowMessages>(slow, gone),
                           [](int, const Chunk&) {});
    transport.Expect(1, {.rank = 1, .bytes = 1, .data = memory.Slot(1, 0)});
    while (slow) std::this_thread::yield();
    transport.Close(20);
  }
  EXPECT_TRUE(gone);  // else the thread would have been left alone with it
}

TEST(MpiTransport, ARankThatEndsFirstSaysBeforeWhatHasCome) {
  const std::string job = JobName();
  Sockets sockets(2);
  constexpr double kTimeout = 20;
  const Texts texts = InProcesses(2, [&](int rank) {
    auto group =
        Join(job, rank, {"a", "b"}, std::make_unique<FakeMessages>(rank, sockets), kTimeout);
    std::vector<float> values(1000);
    for (uint64_t number = 1; number <= 2; ++number) {  // soon after each other
      group->Describe(number, "broadcast");
      group->CompareDescriptions(number, "a test");
      Broadcast(*group, StreamOf(values), 0, "a test");
      group->Finish();
    }
    const uint64_t start = SharedClock();
    group.reset();
    const double seconds = static_cast<double>(SharedClock() - start) * 1e-9;
    Require(seconds < 0.5 * kTimeout, "end at the deadline");
  });
  ExpectAll(texts, "right");
}

TEST(MpiTransport, NothingIsCalledAfterAFailure) {
  const std::string job = JobName();
  Sockets sockets(2);
  const Texts texts = InProcesses(2, [&](int rank) -> std::string {
    std::atomic<int> calls = 0;
    const auto group =
        Join(job, rank, {"a", "b"}, std::make_unique<FakeMessages>(rank, sockets, &calls));
    std::vector<float> values(600000);
    Sum(*group, 1, values);
    if (rank == 1) _exit(0);
    const std::string error = TextOf([&] { Sum(*group, 2, values); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the thread sees the failure
    const int before = calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (before == 0 || calls != before) return "calls: " + std::to_string(calls - before);
    return error;
  });
  ExpectPart(texts[0], "has ended; rank 0 has waited for it");
}

TEST(UsesMpi, ByDefaultWhereAllRanksMay) {
  // What the other rank, of that role and SINGA_TRANSPORT, would add to an exchange.
  const auto text_of = [](MpiRole role) {
    std::string text;
    UsesMpi([&](const std::string& own) { return std::vector{text = own}; }, role);
    return text;
  };
  const auto uses = [&](MpiRole role, MpiRole other) {
    const std::string theirs = text_of(other);
    return UsesMpi([&](const std::string& own) { return std::vector{own, theirs}; }, role);
  };
  EXPECT_TRUE(uses(MpiRole::kByDefault, MpiRole::kByDefault));
  EXPECT_FALSE(uses(MpiRole::kByDefault, MpiRole::kIfAsked));
  EXPECT_FALSE(uses(MpiRole::kIfAsked, MpiRole::kByDefault));
  EXPECT_FALSE(uses(MpiRole::kNone, MpiRole::kNone));
  const std::string theirs = text_of(MpiRole::kByDefault);
  setenv("SINGA_TRANSPORT", "mpi", 1);
  EXPECT_TRUE(uses(MpiRole::kIfAsked, MpiRole::kByDefault));
  EXPECT_ERROR(std::invalid_argument, "that an MPI has started", text_of(MpiRole::kNone));
  ExpectError<std::invalid_argument>(
      [&] {
        UsesMpi(
            [&](const std::string& own) {
              return std::vector{own, theirs};
            },
            MpiRole::kIfAsked);
      },
      "all ranks must have one SINGA_TRANSPORT, got mpi and auto");
  setenv("SINGA_TRANSPORT", "tcp", 1);
  EXPECT_FALSE(uses(MpiRole::kByDefault, MpiRole::kByDefault));
  unsetenv("SINGA_TRANSPORT");
}

}  // namespace
}  // namespace singa::test

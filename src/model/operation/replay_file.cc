#include "model/operation/replay_file.h"

#include <unistd.h>

#include <atomic>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "singa/core/error.h"

namespace singa::opcheck {
namespace {

constexpr const char* kMagic = "singa-replay 2";

void WriteTensorHead(std::ostream& out, const char* kind, const Tensor& t, int alias) {
  out << kind;
  if (t.empty()) {
    out << " -1";
  } else {
    out << ' ' << static_cast<int>(t.data_type()) << ' ' << alias << ' ' << t.rank();
    for (int64_t dim : t.shape()) out << ' ' << dim;
  }
  out << '\n';
}

std::string Head(const Call& call) {
  std::ostringstream out;
  out << kMagic << '\n' << call.family << '\n' << call.implementation << '\n' << call.layer << '\n';
  out << call.fields.size() << '\n';
  for (const auto& [name, value] : call.fields) out << name << '\n' << value << '\n';
  for (double v : call.scalars.v) out << std::bit_cast<uint64_t>(v) << ' ';
  out << call.scalars.seed << ' ' << call.scalars.offset << '\n';
  out << call.inputs.size() << ' ' << call.outputs.size() << '\n';
  for (const Tensor& t : call.inputs) WriteTensorHead(out, "in", t, -1);
  for (size_t i = 0; i < call.outputs.size(); ++i)
    WriteTensorHead(out, "out", call.outputs[i], call.aliases[i]);
  return out.str();
}

/// What the head says of a tensor.
struct TensorHead {
  bool empty = true;
  DataType dtype = kFloat32;
  int alias = -1;
  Shape shape;

  Tensor Make() const { return empty ? Tensor() : Tensor(shape, DefaultDevice(), dtype); }
  uint64_t bytes() const {
    return empty ? 0 : static_cast<uint64_t>(shape.Count()) * SizeOf(dtype);
  }
  bool operator==(const TensorHead& other) const {
    return empty == other.empty && dtype == other.dtype && shape == other.shape;
  }
};

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path), in_(path, std::ios::binary) {
    std::error_code error;
    size_ = std::filesystem::file_size(path, error);
    Check(in_ && !error, "replay", "cannot read ", path);
  }

  Call Read() {
    Call call;
    Check(Line() == kMagic, "replay", path_, " is no replay file of this version");
    call.family = Line();
    call.implementation = Line();
    call.layer = Line();
    const auto fields = Number<uint64_t>();
    EndOfLine();
    for (uint64_t i = 0; i < fields; ++i) {
      std::string name = Line();
      call.fields.emplace_back(std::move(name), Line());
    }
    for (double& v : call.scalars.v) v = std::bit_cast<double>(Number<uint64_t>());
    call.scalars.seed = Number<decltype(call.scalars.seed)>();
    call.scalars.offset = Number<decltype(call.scalars.offset)>();
    ReadTensors(call);
    return call;
  }

 private:
  void ReadTensors(Call& call) {
    const auto number_of_inputs = Number<uint64_t>(), number_of_outputs = Number<uint64_t>();
    std::vector<TensorHead> inputs, outputs;
    for (uint64_t i = 0; i < number_of_inputs; ++i) inputs.push_back(ReadHead("in"));
    for (uint64_t i = 0; i < number_of_outputs; ++i) outputs.push_back(ReadHead("out"));
    EndOfLine();

    const auto head_size = static_cast<uint64_t>(in_.tellg());
    uint64_t rest = size_ - head_size;
    for (const TensorHead& input : inputs) {
      Require(input.bytes() <= rest);
      rest -= input.bytes();
    }
    Require(rest == sizeof(uint64_t));
    for (const TensorHead& output : outputs)
      Require(output.alias == -1 || (output.alias >= 0 && output.alias < std::ssize(inputs) &&
                                     output == inputs[static_cast<size_t>(output.alias)]));

    in_.seekg(0);
    uint64_t checksum = ReplayChecksum(Bytes(head_size));
    for (const TensorHead& input : inputs) {
      call.inputs.push_back(input.Make());
      if (input.empty) continue;
      const std::string bytes = Bytes(input.bytes());
      checksum = ReplayChecksum(bytes, checksum);
      call.inputs.back().CopyFromHost(bytes.data(), bytes.size());
    }
    uint64_t expected = 0;
    std::memcpy(&expected, Bytes(sizeof(expected)).data(), sizeof(expected));
    Require(checksum == expected);
    for (const TensorHead& output : outputs) {
      call.outputs.push_back(output.Make());
      call.aliases.push_back(output.alias);
    }
  }

  TensorHead ReadHead(const char* kind) {
    TensorHead head;
    std::string word;
    Require(bool(in_ >> word) && word == kind);
    const int dtype = Number<int>();
    if (dtype == -1) return head;
    Require(dtype >= 0 && dtype < kNumDataType);
    head.empty = false;
    head.dtype = static_cast<DataType>(dtype);
    head.alias = Number<int>();
    const int rank = Number<int>();
    Require(rank >= 0 && rank <= kMaxRank);
    head.shape = Shape::Filled(rank, 0);
    for (int i = 0; i < rank; ++i) head.shape[i] = Number<int64_t>();
    CheckShape("replay", head.shape, SizeOf(head.dtype));
    return head;
  }

  std::string Line() {
    std::string line;
    std::getline(in_, line);
    Require(bool(in_));
    return line;
  }

  template <class T>
  T Number() {
    T value{};
    in_ >> value;
    Require(bool(in_));
    return value;
  }

  void EndOfLine() { Require(in_.get() == '\n'); }

  std::string Bytes(uint64_t count) {
    std::string bytes(count, '\0');
    in_.read(bytes.data(), static_cast<std::streamsize>(count));
    Require(bool(in_));
    return bytes;
  }

  void Require(bool sound) const { Check(sound, "replay", path_, " is damaged"); }

  std::string path_;
  std::ifstream in_;
  uint64_t size_ = 0;
};

}  // namespace

uint64_t ReplayChecksum(std::string_view bytes, uint64_t hash) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string WriteReplayFile(const Call& call, const std::string& directory) {
  std::filesystem::path folder = directory;
  if (folder.empty())
    if (const char* text = std::getenv("SINGA_OPCHECK_DIR")) folder = text;
  static std::atomic<int> number{0};
  const std::string name = std::string("opcheck-") + call.op + "-" + std::to_string(getpid()) +
                           "-" + std::to_string(++number) + ".replay";
  const std::string path = (folder / name).string(), temporary = path + ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary);
    const std::string head = Head(call);
    uint64_t checksum = ReplayChecksum(head);
    out << head;
    for (const Tensor& t : call.inputs) {
      if (t.empty()) continue;
      std::string bytes(static_cast<size_t>(t.bytes()), '\0');
      t.CopyToHost(bytes.data(), bytes.size());
      checksum = ReplayChecksum(bytes, checksum);
      out << bytes;
    }
    out.write(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
    out.close();
    if (!out) return "(the replay file " + path + " could not be written)";
  }
  return std::rename(temporary.c_str(), path.c_str()) == 0 ? path : temporary;
}

Call ReadReplayFile(const std::string& path) { return Reader(path).Read(); }

}  // namespace singa::opcheck

#include "model/dispatch/opcheck/replay_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "model/dispatch/field_text.h"
#include "model/dispatch/opcheck/opcheck.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"
#include "singa/core/gpu.h"

namespace singa::opcheck {
namespace {

constexpr const char* kVersion = "3";
constexpr int64_t kMostArguments = 1 << 20;

using Texts = std::map<std::string, std::string>;

// ---- writing

/// Text in a JSON document.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    char escape[8];
    if (c == '"' || c == '\\') {
      quoted += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      quoted += escape;
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string Object(const Texts& texts) {
  std::string text = "{";
  for (const auto& [name, value] : texts)
    text += (text.size() > 1 ? ", " : "") + Quoted(name) + ": " + Quoted(value);
  return text + "}";
}

/// A type in safetensors' spelling, and in NumPy's for what is stored.
struct StoredType {
  const char* name;
  const char* numpy;
};
StoredType StoredTypeOf(DType dtype) {
  switch (dtype) {
    case kFloat64:
      return {"F64", "<f8"};
    case kFloat16:
      return {"F16", "<f2"};
    case kBFloat16:
      return {"BF16", "<u2"};
    case kInt64:
      return {"I64", "<i8"};
    case kInt32:
      return {"I32", "<i4"};
    case kInt8:
      return {"I8", "|i1"};
    case kUInt8:
      return {"U8", "|u1"};
    case kBool:
      return {"BOOL", "|b1"};
    default:
      return {"F32", "<f4"};
  }
}

/// zlib.crc32, going on from `crc`.
uint32_t Crc32(std::string_view bytes, uint32_t crc) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < made.size(); ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        made[i] = made[i] >> 1 ^ ((made[i] & 1) != 0 ? 0xedb88320u : 0);
    }
    return made;
  }();
  crc = ~crc;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

std::string Numbered(const char* kind, size_t i) { return kind + std::to_string(i); }

void Describe(const char* kind, size_t i, const Tensor& t, const Placement& place, Texts* texts) {
  if (place.layout) (*texts)[Numbered(kind, i) + ".layout"] = LayoutText(place.layout);
  if (place.strides.rank() > 0 && SpanOf(t.shape(), place.strides))
    (*texts)[Numbered(kind, i) + ".strides"] = place.strides.ToString();
}

Texts Metadata(const Call& call) {
  Texts texts{{"replay", kVersion},
              {"op", call.op},
              {"spec", call.family},
              {"implementation", call.implementation},
              {"description", call.description},
              {"layer", call.layer},
              {"device", std::to_string(static_cast<int>(call.device))},
              {"seed", std::to_string(call.scalars.seed)},
              {"offset", std::to_string(call.scalars.offset)},
              {"inputs", std::to_string(call.inputs.size())},
              {"outputs", std::to_string(call.outputs.size())}};
  for (const auto& [name, value] : call.fields) texts["field." + name] = value;
  for (size_t i = 0; i < call.scalars.v.size(); ++i) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.17g", call.scalars.v[i]);
    texts[Numbered("scalar.", i)] = text;
  }
  for (size_t i = 0; i < call.inputs.size(); ++i)
    Describe("input.", i, call.inputs[i], call.input_places[i], &texts);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    Describe("output.", i, call.outputs[i], call.output_places[i], &texts);
    if (call.aliases[i] >= 0)
      texts[Numbered("output.", i) + ".is_input"] = std::to_string(call.aliases[i]);
  }
  return texts;
}

std::string_view BytesOf(const Tensor& t) {
  return {static_cast<const char*>(t.raw_data()), static_cast<size_t>(t.bytes())};
}

/// The bytes before the data: the length of the header, and the header.
std::string Head(const Call& call, const std::map<std::string, Tensor>& tensors) {
  const std::string metadata = Object(Metadata(call));
  uint32_t crc = Crc32(metadata, 0);
  std::string entries;
  int64_t at = 0;
  for (const auto& [name, t] : tensors) {
    const StoredType type = StoredTypeOf(t.data_type());
    crc = Crc32(name + " " + type.numpy + " " + t.shape().ToString(), crc);
    crc = Crc32(BytesOf(t), crc);
    entries += ", " + Quoted(name) + ": {\"dtype\": \"" + type.name + "\", \"shape\": [";
    for (int axis = 0; axis < t.rank(); ++axis)
      entries += (axis > 0 ? ", " : "") + std::to_string(t.shape(axis));
    entries += "], \"data_offsets\": [" + std::to_string(at) + ", ";
    at += t.bytes();
    entries += std::to_string(at) + "]}";
  }
  char checksum[16];
  std::snprintf(checksum, sizeof(checksum), "%08x", crc);
  std::string header =
      "{\"__metadata__\": " + Object({{"singa", metadata}, {"singa_crc32", checksum}}) + entries +
      "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // the data begin at a multiple of 8
  const uint64_t length = header.size();
  std::string head(sizeof(length), '\0');
  for (size_t i = 0; i < sizeof(length); ++i) head[i] = static_cast<char>(length >> 8 * i);
  return head + header;
}

/// A new file that gets its name when it is complete.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path path)
      : path_(std::move(path)),
        temporary_(path_.parent_path() / ("." + path_.filename().string() + ".tmp")),
        descriptor_(
            open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666)),
        good_(descriptor_ >= 0) {}
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(temporary_.c_str());  // where it has not been renamed
  }

  void Write(std::string_view bytes) {
    while (good_ && !bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      good_ = written > 0;
      if (good_) bytes.remove_prefix(static_cast<size_t>(written));
    }
  }
  /// False, with errno, if anything has failed.
  bool Finish() { return good_ && rename(temporary_.c_str(), path_.c_str()) == 0; }

 private:
  std::filesystem::path path_, temporary_;
  int descriptor_;
  bool good_;
};

// ---- reading

/// The metadata by name. Each entry is taken once. Entries that are left over are an error.
class Reader {
 public:
  Reader(const std::vector<std::string>& names, const std::vector<std::string>& values,
         const std::vector<std::string>& tensor_names, const std::vector<Tensor>& tensors) {
    Check(names.size() == values.size() && tensor_names.size() == tensors.size(), "replay",
          "names and values differ in number");
    for (size_t i = 0; i < names.size(); ++i) texts_[names[i]] = values[i];
    for (size_t i = 0; i < tensors.size(); ++i) {
      Check(!tensors[i].empty() && tensors[i].is_contiguous() &&
                tensors[i].device()->kind() == DeviceKind::kCpu,
            "replay", tensor_names[i], " must be contiguous, and on the CPU");
      tensors_[tensor_names[i]] = tensors[i];
    }
  }

  Call Read() {
    Check(TextOr("replay", "") == kVersion, "replay", "the file is no replay file of this version");
    Call call;
    Text("op");  // the Spec knows it
    call.family = Text("spec");
    call.implementation = Text("implementation");
    call.description = Text("description");
    call.layer = Text("layer");
    call.device = static_cast<DeviceKind>(Number<int>("device", 0, 1));
    DeviceOf(call);  // registers the device's layouts
    call.scalars.seed = NumberFromText<uint64_t>("seed", Text("seed"));
    call.scalars.offset = NumberFromText<uint64_t>("offset", Text("offset"));
    for (size_t i = 0; i < call.scalars.v.size(); ++i) {
      const std::string name = Numbered("scalar.", i);
      call.scalars.v[i] = NumberFromText<double>(name.c_str(), Text(name));
    }
    ReadArguments("input.", Number<int64_t>("inputs", 0, kMostArguments), &call.inputs,
                  &call.input_places);
    ReadArguments("output.", Number<int64_t>("outputs", 0, kMostArguments), &call.outputs,
                  &call.output_places);
    for (size_t i = 0; i < call.outputs.size(); ++i) call.aliases.push_back(ReadAlias(call, i));
    constexpr std::string_view kField = "field.";
    for (auto& [name, value] : texts_) {
      Check(name.starts_with(kField), "replay", "the file has '", name, "', which says nothing");
      call.fields.emplace_back(name.substr(kField.size()), value);
    }
    Check(tensors_.empty(), "replay", "no argument is '",
          tensors_.empty() ? "" : tensors_.begin()->first, "'");
    return call;
  }

 private:
  std::string TextOr(const std::string& name, const char* otherwise) {
    const auto found = texts_.extract(name);
    return found ? found.mapped() : otherwise;
  }
  std::string Text(const std::string& name) {
    Check(texts_.count(name) == 1, "replay", "the file has no '", name, "'");
    return TextOr(name, "");
  }
  template <class T>
  T Number(const std::string& name, T low, T high) {
    const T value = NumberFromText<T>(name.c_str(), Text(name));
    Check(value >= low && value <= high, "replay", name, " must be in [", low, ", ", high,
          "], got ", value);
    return value;
  }

  void ReadArguments(const char* kind, int64_t count, std::vector<Tensor>* tensors,
                     std::vector<Placement>* places) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const std::string name = Numbered(kind, i);
      const auto found = tensors_.extract(name);
      tensors->push_back(found ? found.mapped() : Tensor());
      Placement& place = places->emplace_back();
      const std::string layout = TextOr(name + ".layout", "");
      const std::string strides = TextOr(name + ".strides", "");
      Check((found || (layout.empty() && strides.empty())) && (layout.empty() || strides.empty()),
            "replay", name, " has a layout or strides that it cannot have");
      if (!layout.empty()) {
        const std::optional<LayoutPtr> made = FindLayout(layout);
        place.layout = made.value_or(nullptr);
        if (!made) place.unmade = layout;
        Check(!place.layout || (place.layout->shape() == tensors->back().shape() &&
                                place.layout->dtype() == tensors->back().data_type()),
              "replay", name, " ", tensors->back(), " cannot lie as ", layout);
      }
      if (!strides.empty()) {
        place.strides = ShapeFromText(name.c_str(), strides);
        Check(place.strides.rank() == tensors->back().rank() &&
                  SpanOf(tensors->back().shape(), place.strides).has_value(),
              "replay", name, " ", tensors->back(), " cannot lie with strides ", strides);
      }
    }
  }

  int ReadAlias(const Call& call, size_t i) {
    const std::string name = Numbered("output.", i) + ".is_input";
    if (texts_.count(name) == 0) return -1;
    const Tensor& t = call.outputs[i];
    const int alias = Number<int>(name, 0, kMostArguments);
    const auto input = static_cast<size_t>(alias);
    Check(input < call.inputs.size() && !t.empty() && !call.inputs[input].empty() &&
              t.shape() == call.inputs[input].shape() &&
              t.data_type() == call.inputs[input].data_type() &&
              call.output_places[i] == call.input_places[input],
          "replay", "output ", i, " cannot be input ", alias);
    return alias;
  }

  Texts texts_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace

std::string WriteReplayFile(const Call& call, std::span<const Tensor> outputs,
                            const std::string& directory) {
  const std::filesystem::path folder =
      directory.empty() ? EnvironmentValue("SINGA_OPCHECK_DIR") : directory;
  std::map<std::string, Tensor> tensors;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (!call.inputs[i].empty()) tensors[Numbered("input.", i)] = call.inputs[i];
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!outputs[i].empty()) tensors[Numbered("output.", i)] = outputs[i].Contiguous();
  std::random_device random;
  char number[16];
  std::snprintf(number, sizeof(number), "%08x", static_cast<unsigned>(random()));
  const std::filesystem::path path =
      folder / (std::string("opcheck-") + call.op + "-" + number + ".safetensors");
  NewFile file(path);
  file.Write(Head(call, tensors));
  for (const auto& [name, t] : tensors) file.Write(BytesOf(t));
  if (file.Finish()) return path.string();
  return "(the replay file " + path.string() + " could not be written: " + std::strerror(errno) +
         ")";
}

Call ReadCall(const std::vector<std::string>& names, const std::vector<std::string>& values,
              const std::vector<std::string>& tensor_names, const std::vector<Tensor>& tensors) {
  return Reader(names, values, tensor_names, tensors).Read();
}

// ---- places in memory

std::optional<StridedSpan> SpanOf(const Shape& shape, const Strides& strides) {
  // A view of a larger tensor may have gaps, which the file does not hold.
  constexpr int64_t kMostGaps = 64;
  StridedSpan span;
  const int64_t most = shape.Count() * kMostGaps + 4096;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(strides[axis], std::max<int64_t>(shape[axis] - 1, 0), &reach) ||
        reach > most || reach < -most)
      return std::nullopt;
    (reach < 0 ? span.low : span.high) += reach;
  }
  if (span.high - span.low >= most) return std::nullopt;
  return span;
}

Tensor Placed(const Tensor& t, const Placement& place, const DevicePtr& device) {
  if (t.empty()) return t;
  const Tensor there = t.ToDevice(device);
  if (place.layout) return there.ToLayout(place.layout);
  if (place.strides.rank() == 0) return there;
  const StridedSpan span = SpanOf(t.shape(), place.strides).value();
  const Tensor memory = Full({span.high - span.low + 1}, 0, device, t.data_type());
  // Elements that share a place are the same one.
  Tensor source = there;
  Shape distinct = t.shape();
  for (int axis = 0; axis < t.rank(); ++axis) {
    if (place.strides[axis] != 0 || t.shape(axis) == 0) continue;
    source = source.SliceAxis(axis, 0, 1);
    distinct[axis] = 1;
  }
  Tensor(memory.block(), distinct, place.strides, -span.low, t.data_type()).CopyFrom(source);
  return {memory.block(), t.shape(), place.strides, -span.low, t.data_type()};
}

DevicePtr DeviceOf(const Call& call) {
  if (call.device == DeviceKind::kCpu) return DefaultDevice();
  Check(NumGpus() > 0, "replay", "the call was made on a GPU: ", GpuProblem());
  return CreateCudaDevice();
}

std::string ChangedPlace(const std::string& name, const Placement& place, const LayoutPtr& wanted) {
  const std::string saved = place.unmade.empty() ? LayoutText(place.layout) : place.unmade;
  const std::string here = LayoutText(wanted);
  if (saved == here) return "";
  return " (" + name + " lies as " + here + ", in the file as " + saved + ")";
}

}  // namespace singa::opcheck

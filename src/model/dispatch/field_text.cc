#include "model/dispatch/field_text.h"

#include <algorithm>
#include <map>

#include "core/layout/blocked_layout.h"
#include "singa/core/tensor.h"

namespace singa {
namespace {

std::map<std::string, LayoutMaker>& LayoutMakers() {
  static auto& makers = *new std::map<std::string, LayoutMaker>;
  return makers;
}

}  // namespace

void AddLayoutMaker(const char* backend, LayoutMaker make) { LayoutMakers()[backend] = make; }

namespace opcheck {

// backend, type, shape, name: "cpu float32 (2, 16, 8, 8) nChw16c".
std::string LayoutText(const LayoutPtr& layout) {
  if (!layout) return "plain";
  const BlockedLayout* blocked = AsBlocked(layout);
  return std::string(layout->backend()) + " " + DTypeName(layout->dtype()) + " " +
         layout->shape().ToString() + " " + (blocked ? NameOf(*blocked) : layout->ToString());
}

LayoutPtr LayoutFromText(const std::string& text) {
  const std::optional<LayoutPtr> layout = FindLayout(text);
  Check(layout.has_value(), "replay", "this build cannot make the layout '", text, "'");
  return *layout;
}

std::optional<LayoutPtr> FindLayout(const std::string& text) {
  if (text == "plain") return nullptr;
  const size_t type = text.find(' '), shape = text.find('('), end = text.find(") ");
  Check(type != std::string::npos && shape != std::string::npos && end != std::string::npos &&
            type < shape && shape < end,
        "replay", "'", text, "' is no layout");
  const std::string type_name = text.substr(type + 1, shape - type - 2);
  int dtype = 0;
  while (dtype < kNumDataType && DTypeName(static_cast<DType>(dtype)) != type_name) ++dtype;
  Check(dtype < kNumDataType, "replay", "'", text, "' is no layout");
  const Shape dims = ShapeFromText("layout", text.substr(shape, end + 1 - shape));
  CheckShape("replay", dims, SizeOf(static_cast<DType>(dtype)));
  const auto maker = LayoutMakers().find(text.substr(0, type));
  LayoutPtr layout;
  if (maker != LayoutMakers().end())
    layout = maker->second(text.substr(end + 2), dims, static_cast<DType>(dtype));
  if (!layout) return std::nullopt;
  return layout;
}

Shape ShapeFromText(const char* name, std::string_view text) {
  const std::string_view whole = text;
  Shape shape;
  const auto require = [&](bool good) {
    Check(good, "replay", name, " is '", whole, "', no shape");
  };
  require(text.starts_with('(') && text.ends_with(')'));
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    const std::string_view number = text.substr(0, text.find(','));
    require(shape.rank() < kMaxRank);
    shape.push_back(NumberFromText<int64_t>(name, number));
    text.remove_prefix(number.size());
    if (text.starts_with(", ")) {
      text.remove_prefix(2);
      require(!text.empty());
    } else if (text == ",") {
      text = {};
      require(shape.rank() == 1);
    }
  }
  return shape;
}

void FieldWriter::Add(const char* name, std::string text) {
  fields_->emplace_back(name, std::move(text));
}

void FieldWriter::AddReal(const char* name, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.17g", value);
  Add(name, text);
}

void FieldReader::Done() const {
  Check(taken_ == fields_.size(), "replay", "the file has ", fields_.size(), " fields instead of ",
        taken_);
}

const std::string& FieldReader::Take(const char* name) {
  const auto found = std::find_if(fields_.begin(), fields_.end(),
                                  [&](const auto& field) { return field.first == name; });
  Check(found != fields_.end(), "replay", "the file has no field '", name, "'");
  ++taken_;
  return found->second;
}

int64_t FieldReader::Integer(const char* name, int64_t low, int64_t high) {
  const auto value = NumberFromText<int64_t>(name, Take(name));
  Check(value >= low && value <= high, "replay", name, " must be in [", low, ", ", high, "], got ",
        value);
  return value;
}

}  // namespace opcheck
}  // namespace singa

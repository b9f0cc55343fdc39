#pragma once

// The fields of a Spec as text: in replay files, in the signatures of the table of choices, and in
// OPCHECK's reports. Reading them back.

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/error.h"
#include "singa/core/export.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// Makes the layout of this name, for tensors of this shape and type, or null. A backend adds one
/// for its layouts. Shape and type come from a file.
using LayoutMaker = LayoutPtr (*)(const std::string& name, const Shape& shape, DType dtype);
SINGA_API void AddLayoutMaker(const char* backend, LayoutMaker make);

namespace opcheck {

/// "plain", or a text from which LayoutFromText makes the same layout in another process.
std::string LayoutText(const LayoutPtr& layout);
/// Raises std::invalid_argument for other texts, and where no backend makes such a layout.
LayoutPtr LayoutFromText(const std::string& text);
/// As LayoutFromText; none where no backend makes such a layout.
std::optional<LayoutPtr> FindLayout(const std::string& text);

/// From "(2, 3)", "(5,)", "()". Raises std::invalid_argument, with the name, for other texts.
Shape ShapeFromText(const char* name, std::string_view text);
/// The number that all of `text` is. Raises std::invalid_argument, with the name, for other texts.
template <class T>
T NumberFromText(const char* name, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  Check(error == std::errc() && end == text.data() + text.size(), "replay", name, " is '", text,
        "', no number that it can be");
  return value;
}

/// Names and values of fields.
using Fields = std::vector<std::pair<std::string, std::string>>;

/// Writes fields as text.
class FieldWriter {
 public:
  /// `layout_text` is LayoutName, or LayoutText for what is read again.
  explicit FieldWriter(Fields* fields, std::string (*layout_text)(const LayoutPtr&) = LayoutName)
      : fields_(fields), layout_text_(layout_text) {}
  void operator()(const char* name, const LayoutPtr& layout) { Add(name, layout_text_(layout)); }
  void operator()(const char* name, const Shape& shape) { Add(name, shape.ToString()); }
  template <class T>
  void operator()(const char* name, const T& value) {
    if constexpr (requires { T::VisitFields(value, *this); })
      T::VisitFields(value, *this);
    else if constexpr (std::is_floating_point_v<T>)
      AddReal(name, static_cast<double>(value));
    else
      Add(name, std::to_string(static_cast<int64_t>(value)));
  }

 private:
  void Add(const char* name, std::string text);
  void AddReal(const char* name, double value);

  Fields* fields_;
  std::string (*layout_text_)(const LayoutPtr&);
};

/// Reads what a FieldWriter wrote with LayoutText. Raises std::invalid_argument for a field that is
/// missing, and for a value that its type does not have.
class FieldReader {
 public:
  explicit FieldReader(const Fields& fields) : fields_(fields) {}
  void operator()(const char* name, LayoutPtr& layout) { layout = LayoutFromText(Take(name)); }
  void operator()(const char* name, Shape& shape) { shape = ShapeFromText(name, Take(name)); }
  template <class T>
  void operator()(const char* name, T& value) {
    if constexpr (requires { T::VisitFields(value, *this); }) {
      T::VisitFields(value, *this);
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(Integer(name, 0, kEnumSize<T> - 1));
    } else if constexpr (std::is_floating_point_v<T>) {
      value = NumberFromText<T>(name, Take(name));
    } else {
      value = static_cast<T>(
          Integer(name, std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()));
    }
  }
  /// Every field was asked for.
  void Done() const;

 private:
  const std::string& Take(const char* name);
  int64_t Integer(const char* name, int64_t low, int64_t high);

  const Fields& fields_;
  size_t taken_ = 0;
};

/// Makes every layout of a Spec plain.
struct PlainFields {
  void operator()(const char*, LayoutPtr& layout) { layout = nullptr; }
  template <class T>
  void operator()(const char*, T&) {}
};

}  // namespace opcheck
}  // namespace singa

#include "singa/core/error.h"

#include <sstream>

namespace singa::detail {

std::string JoinMessage(const char* op, std::initializer_list<MessagePart> parts) {
  std::ostringstream out;
  out << '[' << op << "] ";
  for (const MessagePart& part : parts) {
    if (part.write) {
      part.write(out, part.value);
    } else {
      out << static_cast<const char*>(part.value);
    }
  }
  return out.str();
}

}  // namespace singa::detail

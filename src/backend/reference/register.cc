#include "backend/reference/register.h"

namespace singa::backend {

void RegisterReferenceBackend() {
  // One line per family; alphabetical.
}

}  // namespace singa::backend

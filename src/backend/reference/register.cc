#include "backend/reference/register.h"

namespace singa::backend {

void RegisterReferenceBackend() {
  // One line per family; alphabetical.
  reference::RegisterReduce();
}

}  // namespace singa::backend

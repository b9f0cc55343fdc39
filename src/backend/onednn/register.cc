#include "backend/onednn/register.h"

namespace singa::backend {

void RegisterOnednnBackend() {
  // One line per family; alphabetical.
  onednn::RegisterReorder();
}

}  // namespace singa::backend

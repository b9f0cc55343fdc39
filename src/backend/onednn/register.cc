#include "backend/onednn/register.h"

namespace singa::backend {

void RegisterOnednnBackend() {
  // One line per family; alphabetical.
  onednn::RegisterConv();
  onednn::RegisterReorder();
}

}  // namespace singa::backend

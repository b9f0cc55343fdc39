#include "backend/onednn/register.h"

namespace singa::backend {

void RegisterOnednnBackend() {
  // One line per family; alphabetical.
  onednn::RegisterConv();
  onednn::RegisterMatMul();
  onednn::RegisterReorder();
}

}  // namespace singa::backend

#include "backend/onednn/register.h"

namespace singa::backend {

void RegisterOnednnBackend() {
  // One line per family; alphabetical.
  onednn::RegisterBatchNorm();
  onednn::RegisterConv();
  onednn::RegisterLrn();
  onednn::RegisterMatMul();
  onednn::RegisterPooling();
  onednn::RegisterReorder();
  onednn::RegisterSoftmax();
}

}  // namespace singa::backend

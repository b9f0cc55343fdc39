#include "backend/reference/register.h"

namespace singa::backend {

void RegisterReferenceBackend() {
  // One line per family; alphabetical.
  reference::RegisterBatchNorm();
  reference::RegisterConv();
  reference::RegisterLrn();
  reference::RegisterPooling();
  reference::RegisterReduce();
  reference::RegisterSoftmax();
}

}  // namespace singa::backend

#include "backend/onednn/register.h"

#include "backend/onednn/engine.h"
#include "model/operation/choice_table.h"

namespace singa::backend {

void RegisterOnednnBackend() {
  AddMachineFact(onednn::VersionAndIsa());
  // One line per family; alphabetical.
  onednn::RegisterBatchNorm();
  onednn::RegisterConcat();
  onednn::RegisterConv();
  onednn::RegisterLrn();
  onednn::RegisterMatMul();
  onednn::RegisterPooling();
  onednn::RegisterReorder();
  onednn::RegisterSoftmax();
}

}  // namespace singa::backend

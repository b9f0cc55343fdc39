#include "backend/cudnn/library/register.h"

namespace singa::cudnn {

void RegisterLibraries() {
  RegisterConv();
  RegisterMatMul();
  RegisterReorder();
  RegisterRnn();
}

void RegisterAlternatives() { RegisterBatchNorm(); }

}  // namespace singa::cudnn

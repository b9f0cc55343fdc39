#include "backend/cudnn/kernels/register.h"

namespace singa::cuda {

void RegisterKernels() {
  // One line per file of kernels; alphabetical.
  RegisterArgReduce();
  RegisterAxisMap();
  RegisterBatchNorm();
  RegisterBinary();
  RegisterConv();
  RegisterFoldBatchNorm();
  RegisterGather();
  RegisterIndexing();
  RegisterLoss();
  RegisterLrn();
  RegisterMatMul();
  RegisterOptimizer();
  RegisterPairLoss();
  RegisterPooling();
  RegisterRandom();
  RegisterReduce();
  RegisterSoftmax();
  RegisterUnary();
  RegisterWhere();
}

}  // namespace singa::cuda

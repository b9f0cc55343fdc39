#include "backend/reference/register.h"

namespace singa::backend {

void RegisterReferenceBackend() {
  // One line per family; alphabetical.
  reference::RegisterArgReduce();
  reference::RegisterAxisMap();
  reference::RegisterBatchNorm();
  reference::RegisterBinary();
  reference::RegisterConv();
  reference::RegisterDropout();
  reference::RegisterFoldBatchNorm();
  reference::RegisterGather();
  reference::RegisterIndexing();
  reference::RegisterLayout();
  reference::RegisterLinalg();
  reference::RegisterLoss();
  reference::RegisterLrn();
  reference::RegisterOptimizer();
  reference::RegisterPooling();
  reference::RegisterRandom();
  reference::RegisterReduce();
  reference::RegisterReduceBackward();
  reference::RegisterReorder();
  reference::RegisterRnnBackward();
  reference::RegisterRnnForward();
  reference::RegisterSoftmax();
  reference::RegisterUnary();
  reference::RegisterUnaryBackward();
  reference::RegisterWhere();
}

}  // namespace singa::backend

#pragma once

namespace singa::reference {

// One function per family, in the family's file; alphabetical.
void RegisterArgReduce();
void RegisterAxisMap();
void RegisterBatchNorm();
void RegisterBinary();
void RegisterConv();
void RegisterDropout();
void RegisterFoldBatchNorm();
void RegisterGather();
void RegisterIndexing();
void RegisterLayout();
void RegisterLinalg();
void RegisterLoss();
void RegisterLrn();
void RegisterOptimizer();
void RegisterPooling();
void RegisterRandom();
void RegisterReduce();
void RegisterReduceBackward();
void RegisterReorder();
void RegisterRnnBackward();
void RegisterRnnForward();
void RegisterSoftmax();
void RegisterUnary();
void RegisterUnaryBackward();
void RegisterWhere();

}  // namespace singa::reference

namespace singa::backend {

/// Offers the reference kernels to the registry.
void RegisterReferenceBackend();

}  // namespace singa::backend

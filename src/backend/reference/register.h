#pragma once

namespace singa::reference {

// One function per family, in the family's file; alphabetical.
void RegisterBatchNorm();
void RegisterConv();
void RegisterLrn();
void RegisterPooling();
void RegisterReduce();
void RegisterSoftmax();

}  // namespace singa::reference

namespace singa::backend {

/// Offers the reference kernels to the registry.
void RegisterReferenceBackend();

}  // namespace singa::backend

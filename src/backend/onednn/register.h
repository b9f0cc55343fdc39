#pragma once

namespace singa::onednn {

// One function per family, in the family's file; alphabetical.
void RegisterBatchNorm();
void RegisterConcat();
void RegisterConv();
void RegisterLrn();
void RegisterMatMul();
void RegisterPooling();
void RegisterReorder();
void RegisterSoftmax();

}  // namespace singa::onednn

namespace singa::backend {

/// Offers oneDNN's kernels to the registry.
void RegisterOnednnBackend();

}  // namespace singa::backend

#pragma once

namespace singa::onednn {

// One function per family, in the family's file; alphabetical.
void RegisterConv();
void RegisterMatMul();
void RegisterReorder();

}  // namespace singa::onednn

namespace singa::backend {

/// Offers oneDNN's kernels to the registry.
void RegisterOnednnBackend();

}  // namespace singa::backend

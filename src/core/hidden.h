#pragma once

// SINGA_HIDDEN is for classes within classes that SINGA_API marks, such as their Impl, which would
// be exported with them.

#define SINGA_HIDDEN __attribute__((visibility("hidden")))

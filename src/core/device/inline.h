#pragma once

// For small functions and lambdas in loops that must vectorise. The compiler always inlines them,
// also into functions for other instruction sets (SINGA_MULTI_ISA).
#define SINGA_INLINE inline __attribute__((always_inline))
#define SINGA_INLINE_LAMBDA __attribute__((always_inline))

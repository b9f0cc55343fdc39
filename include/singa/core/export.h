// SINGA_API marks what libsinga.so shows to its users; everything else is hidden.
#pragma once

#if defined(SWIG) || !defined(__GNUC__)
#define SINGA_API
#else
#define SINGA_API __attribute__((visibility("default")))
#endif

// SINGA_API marks the symbols that libsinga.so exports; all others are hidden.
#pragma once

#if defined(SWIG) || !defined(__GNUC__)
#define SINGA_API
#else
#define SINGA_API __attribute__((visibility("default")))
#endif

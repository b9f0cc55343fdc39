#pragma once

#ifndef SWIG
#include <Python.h>
#endif

namespace singa::python {

/// True if containers still contain the same objects as before, by identity and in order.
///
/// `containers` is a list of dicts, lists, Tensors, and tuples: (object, descriptor, ...) for
/// attributes of an object, (dict, key, ...) for entries of a dict. `held` is a bytes object of
/// int64: for each container its number of entries, then the addresses of a dict's keys and values
/// in turn, of a list's items, of a Tensor's data, requires_grad, stores_grad, name and grad, or of
/// what the tuple names. 0 matches any object, and 1 the absence of an entry. Addresses are
/// compared, never dereferenced. The only Python code that runs is that of descriptors, and of keys
/// that are no texts. Raises TypeError and ValueError for other arguments.
bool SameObjects(PyObject* containers, PyObject* held);

}  // namespace singa::python

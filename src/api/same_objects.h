#pragma once

#ifndef SWIG
#include <Python.h>
#endif

namespace singa::python {

/// True if containers still contain the same objects as before, by identity and in order.
///
/// `containers` is a list of dicts, lists, Tensors, and tuples (object, descriptor, ...) for
/// attributes of an object. `held` is a bytes object of int64: for each container its number of
/// entries, then the addresses of a dict's keys and values in turn, of a list's items, of a
/// Tensor's data, requires_grad, stores_grad and name, or of the attributes' values; 0 matches any
/// object. Addresses are compared, never dereferenced. The only Python code that runs is that of
/// descriptors. Raises TypeError and ValueError for other arguments.
bool SameObjects(PyObject* containers, PyObject* held);

}  // namespace singa::python

#pragma once

#ifndef SWIG
#include <Python.h>
#endif

namespace singa::python {

/// Whether containers still hold the objects that they held, by identity and in order.
///
/// `containers` is a list of dicts, lists, and tuples (object, descriptor, ...) that stand for
/// attributes of one object. `held` is bytes of int64: for each container their number, then the
/// addresses of a dict's keys and values in turn, of a list's items, or of the attributes' values;
/// 0 stands for any object. Addresses are compared, never followed. Raises TypeError and ValueError
/// for other arguments. No code of Python's runs but that of descriptors.
bool SameObjects(PyObject* containers, PyObject* held);

}  // namespace singa::python

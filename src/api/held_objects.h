#pragma once

#include <Python.h>

namespace singa::python {

/// The type HeldObjects(containers, held), whose method `same()` is True if containers still
/// contain the same objects as before, by identity and in order.
///
/// `containers` is a list of dicts, lists, Tensors, tuples, and other objects. A tuple is (object,
/// descriptor, ...) for attributes of an object, or (dict, key, ...) for entries of a dict. Another
/// object stands for its class and its __dict__. `held` is a bytes object of int64: for each
/// container its number of entries, then the addresses of a dict's keys and values in turn, of a
/// list's items, of a Tensor's data, requires_grad, stores_grad, name and grad, of an object's
/// class and __dict__, or of what the tuple names. 0 matches any object, and 1 the absence of an
/// entry. Addresses are compared, never dereferenced. The only Python code that runs is that of
/// descriptors, and of keys that are no texts. Raises TypeError and ValueError for other arguments.
///
/// CPython 3.11 and 3.12 give a dict a new version whenever something is set in it or removed. It
/// is compared instead of the entries where these were the same before.
PyObject* HeldObjectsType();

}  // namespace singa::python

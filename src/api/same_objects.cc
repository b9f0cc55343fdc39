#include "same_objects.h"

#include <cstdint>
#include <cstring>

#include "python_support.h"
#include "singa/core/error.h"
#include "tape.h"

namespace singa::python {
namespace {

/// Keeps an object alive.
struct Reference {
  explicit Reference(PyObject* borrowed) : object(borrowed) { Py_INCREF(object); }
  ~Reference() { Py_DECREF(object); }
  Reference(const Reference&) = delete;
  Reference& operator=(const Reference&) = delete;
  PyObject* object;
};

[[noreturn]] void Refuse(const char* expected, PyObject* got) {
  throw TypeError(detail::Message("SameObjects", "expected ", expected, ", got ", TypeName(got)));
}

/// Reads `held` in order.
class Held {
 public:
  Held(const char* bytes, Py_ssize_t size) : next_(bytes), end_(bytes + size - size % kSize) {}

  /// Reads the next container's number of entries. True if it is `size`.
  bool Has(Py_ssize_t size) {
    Check(next_ < end_, "SameObjects", "held is too short");
    const int64_t then = Read();
    Check(then >= 0 && then <= (end_ - next_) / kSize, "SameObjects", "held is too short");
    return then == size;
  }
  /// Reads the next address. True if it is that of `object`, or 0; 1 for a null `object`. Call it
  /// at most n times after Has(n).
  bool Next(const PyObject* object) {
    const int64_t then = Read();
    return then == 0 || then == (object ? reinterpret_cast<int64_t>(object) : kAbsent);
  }
  bool AtEnd() const { return next_ == end_; }

 private:
  static constexpr Py_ssize_t kSize = sizeof(int64_t);
  static constexpr int64_t kAbsent = 1;

  int64_t Read() {
    int64_t value;
    std::memcpy(&value, next_, kSize);
    next_ += kSize;
    return value;
  }

  const char* next_;
  const char* end_;
};

bool SameDict(PyObject* dict, Held* held) {
  if (!held->Has(2 * PyDict_Size(dict))) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value))
    if (!held->Next(key) || !held->Next(value)) return false;
  return true;
}

bool SameList(PyObject* list, Held* held) {
  const Py_ssize_t size = PyList_Size(list);
  if (!held->Has(size)) return false;
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!held->Next(PyList_GetItem(list, i))) return false;
  return true;
}

/// Without descriptors: a model has hundreds of Tensors, and reading an attribute through Python
/// would change its value's reference count.
bool SameTensor(PyObject* tensor, Held* held) {
  const TensorSettings now = SettingsOf(tensor);
  if (!held->Has(static_cast<Py_ssize_t>(now.size()))) return false;
  for (const PyObject* value : now)
    if (!held->Next(value)) return false;
  return true;
}

bool SameEntries(PyObject* dict, PyObject* names, Held* held) {
  for (Py_ssize_t i = 1; i < PyTuple_Size(names); ++i) {
    const PyObject* value = PyDict_GetItemWithError(dict, PyTuple_GetItem(names, i));
    if (value == nullptr) PyErr_Clear();  // also of a key that cannot be looked up
    if (!held->Next(value)) return false;
  }
  return true;
}

bool SameAttributes(PyObject* names, Held* held) {
  const Py_ssize_t size = PyTuple_Size(names);
  Check<TypeError>(size > 0, "SameObjects", "attributes of no object");
  if (!held->Has(size - 1)) return false;
  PyObject* object = PyTuple_GetItem(names, 0);
  if (PyDict_Check(object)) return SameEntries(object, names, held);
  for (Py_ssize_t i = 1; i < size; ++i) {
    PyObject* descriptor = PyTuple_GetItem(names, i);
    const auto get =
        reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get));
    if (get == nullptr) Refuse("a descriptor", descriptor);
    PyObject* value = get(descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object)));
    if (value == nullptr) {
      PyErr_Clear();  // the attribute is gone, so the object has changed
      return false;
    }
    const bool same = held->Next(value);
    Py_DECREF(value);
    if (!same) return false;
  }
  return true;
}

}  // namespace

bool SameObjects(PyObject* containers, PyObject* held) {
  if (!PyList_Check(containers)) Refuse("a list of containers", containers);
  if (!PyBytes_Check(held)) Refuse("bytes", held);
  const Reference keep(held);
  auto* const tensor_type = reinterpret_cast<PyTypeObject*>(TapeTensorType());
  Held objects(PyBytes_AsString(held), PyBytes_Size(held));
  // A descriptor may run code that changes the list, so its size is read in each iteration.
  for (Py_ssize_t i = 0; i < PyList_Size(containers); ++i) {
    const Reference container(PyList_GetItem(containers, i));
    bool same = false;
    if (PyDict_Check(container.object)) {
      same = SameDict(container.object, &objects);
    } else if (PyTuple_Check(container.object)) {
      same = SameAttributes(container.object, &objects);
    } else if (PyList_Check(container.object)) {
      same = SameList(container.object, &objects);
    } else if (PyObject_TypeCheck(container.object, tensor_type)) {
      same = SameTensor(container.object, &objects);
    } else {
      Refuse("a dict, a list, a tuple or a Tensor", container.object);
    }
    if (!same) return false;
  }
  return objects.AtEnd();
}

}  // namespace singa::python

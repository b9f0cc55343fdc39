#pragma once

// Helpers of the SWIG typemaps: conversions between Python objects and C++ values, within the
// stable ABI.

#include <Python.h>

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/error.h"
#include "singa/core/opcheck.h"
#include "singa/core/tensor.h"

namespace singa::python {

inline const Tensor& EmptyTensor() {
  static const Tensor empty;
  return empty;
}

/// Called in a catch block: sets the Python error that the C++ exception stands for.
inline void SetErrorFromException() {
  try {
    throw;
  } catch (const TypeError& e) {
    PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const std::invalid_argument& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::out_of_range& e) {
    PyErr_SetString(PyExc_IndexError, e.what());
  } catch (const std::bad_alloc& e) {
    PyErr_SetString(PyExc_MemoryError, e.what());
  } catch (const NotImplemented& e) {
    PyErr_SetString(PyExc_NotImplementedError, e.what());
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
}

inline std::string TypeName(PyObject* object) {
  std::string name = "?";
  PyObject* text = PyType_GetName(Py_TYPE(object));
  if (text) {
    Py_ssize_t size = 0;
    if (const char* data = PyUnicode_AsUTF8AndSize(text, &size))
      name.assign(data, static_cast<size_t>(size));
    Py_DECREF(text);
  }
  PyErr_Clear();
  return name;
}

inline void SetTypeError(const char* function, const char* argument, const char* wanted,
                         PyObject* got) {
  PyErr_SetString(
      PyExc_TypeError,
      detail::Message(function, argument, " has to be ", wanted, ", got ", TypeName(got)).c_str());
}

/// Any object with __index__ (NumPy integers too); a float is refused.
inline bool ToInteger(PyObject* object, const char* argument, int64_t* value) {
  PyObject* index = PyNumber_Index(object);
  if (!index) {
    PyErr_Clear();
    SetTypeError("argument", argument, "an integer", object);
    return false;
  }
  *value = PyLong_AsLongLong(index);
  Py_DECREF(index);
  if (*value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    PyErr_SetString(PyExc_ValueError,
                    detail::Message("argument", argument, " does not fit 64 bits").c_str());
    return false;
  }
  return true;
}

/// Calls `f(item)` until it returns false; false with a Python error set when that happens or
/// `object` is no sequence.
template <class F>
bool ForEach(PyObject* object, const char* function, const char* argument, F&& f) {
  if (!PySequence_Check(object) || PyUnicode_Check(object) || PyBytes_Check(object)) {
    SetTypeError(function, argument, "a sequence", object);
    return false;
  }
  const Py_ssize_t size = PySequence_Size(object);
  if (size < 0) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PySequence_GetItem(object, i);
    if (!item) return false;
    const bool more = f(item);
    Py_DECREF(item);
    if (!more) return false;
  }
  return true;
}

/// A sequence of integers, or one integer.
template <class T>
bool ToIntegers(PyObject* object, const char* argument, std::vector<T>* values) {
  values->clear();
  int64_t value = 0;
  if (PyIndex_Check(object)) {
    if (!ToInteger(object, argument, &value)) return false;
    values->push_back(static_cast<T>(value));
    return true;
  }
  return ForEach(object, "argument", argument, [&](PyObject* item) {
    if (!ToInteger(item, argument, &value)) return false;
    values->push_back(static_cast<T>(value));
    return true;
  });
}

/// uint64: values beyond 2^63 too.
inline bool ToIntegers(PyObject* object, const char* argument, std::vector<uint64_t>* values) {
  values->clear();
  return ForEach(object, "argument", argument, [&](PyObject* item) {
    const unsigned long long value = PyLong_Check(item) ? PyLong_AsUnsignedLongLong(item) : ~0ULL;
    if (!PyLong_Check(item) || PyErr_Occurred()) {
      PyErr_Clear();
      SetTypeError("argument", argument, "integers in [0, 2**64)", item);
      return false;
    }
    values->push_back(value);
    return true;
  });
}

inline bool ToIntegers(PyObject* object, const char* argument, Shape* shape) {
  std::vector<int64_t> values;
  if (!ToIntegers(object, argument, &values)) return false;
  if (values.size() > kMaxRank) {
    PyErr_SetString(PyExc_ValueError,
                    detail::Message("shape", argument, " has ", values.size(),
                                    " dimensions, at most ", kMaxRank, " are possible")
                        .c_str());
    return false;
  }
  *shape = Shape(values);
  return true;
}

inline bool ToDoubles(PyObject* object, const char* argument, std::vector<double>* values) {
  return ForEach(object, "argument", argument, [&](PyObject* item) {
    const double value = PyFloat_AsDouble(item);
    if (value == -1.0 && PyErr_Occurred()) {
      PyErr_Clear();
      SetTypeError("argument", argument, "numbers", item);
      return false;
    }
    values->push_back(value);
    return true;
  });
}

inline bool ToStrings(PyObject* object, const char* argument, std::vector<std::string>* values) {
  return ForEach(object, "argument", argument, [&](PyObject* item) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_Check(item) ? PyUnicode_AsUTF8AndSize(item, &size) : nullptr;
    if (!data) {
      PyErr_Clear();
      SetTypeError("argument", argument, "strings", item);
      return false;
    }
    values->emplace_back(data, static_cast<size_t>(size));
    return true;
  });
}

template <class It>
PyObject* ToTuple(It begin, It end) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(end - begin));
  Py_ssize_t i = 0;
  for (It it = begin; it != end; ++it) {
    PyObject* item = std::is_signed_v<std::decay_t<decltype(*it)>>
                         ? PyLong_FromLongLong(static_cast<long long>(*it))
                         : PyLong_FromUnsignedLongLong(static_cast<unsigned long long>(*it));
    PyTuple_SetItem(tuple, i++, item);
  }
  return tuple;
}

}  // namespace singa::python

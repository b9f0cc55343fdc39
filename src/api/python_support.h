#pragma once

// Helpers for the SWIG typemaps: conversions between Python objects and C++ values, with the stable
// ABI.

#include <Python.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "singa/core/error.h"
#include "singa/core/tensor.h"
#include "singa/dispatch/opcheck.h"
#include "singa/dispatch/spot_check.h"
#include "singa/operation/activation.h"

namespace singa::python {

/// Owns a reference; null after an error of Python's.
class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {}
  Owned(Owned&& other) noexcept : object_(other.release()) {}
  ~Owned() { Py_XDECREF(object_); }
  Owned& operator=(const Owned&) = delete;

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

/// The public name of a wrapped function. SWIG calls the constructor of X "new_X".
inline const char* PublicName(const char* function) {
  return std::strncmp(function, "new_", 4) == 0 ? function + 4 : function;
}

inline const Tensor& EmptyTensor() {
  static const Tensor empty;
  return empty;
}

/// Sets a Python error with the attribute `_singa_facts`.
template <class Error>
void SetErrorWithFacts(PyObject* type, const ErrorWithFacts<Error>& error) {
  const ErrorFacts& facts = error.facts();
  const Owned raised(PyObject_CallFunction(type, "s", error.what()));
  if (!raised) return;
  const Owned dict(Py_BuildValue(
      "{s:s,s:s,s:s,s:L,s:L,s:L,s:L}", "kind", facts.kind.c_str(), "op", facts.op.c_str(),
      "argument", facts.argument.c_str(), "value", static_cast<long long>(facts.value), "position",
      static_cast<long long>(facts.position), "low", static_cast<long long>(facts.low), "high",
      static_cast<long long>(facts.high)));
  if (!dict || PyObject_SetAttrString(raised.get(), "_singa_facts", dict.get()) < 0) return;
  PyErr_SetObject(type, raised.get());
}

/// Sets the Python error for the current C++ exception; call it in a catch block. Errors about
/// memory, which do not know the called `function`, get its name.
inline void SetErrorFromException(const char* function) {
  try {
    throw;
  } catch (const ErrorWithFacts<TypeError>& e) {
    SetErrorWithFacts(PyExc_TypeError, e);
  } catch (const ErrorWithFacts<std::invalid_argument>& e) {
    SetErrorWithFacts(PyExc_ValueError, e);
  } catch (const ErrorWithFacts<std::out_of_range>& e) {
    SetErrorWithFacts(PyExc_IndexError, e);
  } catch (const TypeError& e) {
    PyErr_SetString(PyExc_TypeError, e.what());
  } catch (const std::domain_error& e) {
    PyErr_SetString(PyExc_ZeroDivisionError, e.what());
  } catch (const std::invalid_argument& e) {
    PyErr_SetString(PyExc_ValueError, e.what());
  } catch (const std::out_of_range& e) {
    PyErr_SetString(PyExc_IndexError, e.what());
  } catch (const std::bad_alloc& e) {
    std::string what = e.what();
    if (what.starts_with("[memory] ")) what.erase(0, 9);
    if (!what.starts_with("[")) what = detail::Message(PublicName(function), what);
    PyErr_SetString(PyExc_MemoryError, what.c_str());
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
  PyErr_SetString(PyExc_TypeError, detail::Message(PublicName(function), argument, " must be ",
                                                   wanted, ", got ", TypeName(got))
                                       .c_str());
}

/// Converts an object with __index__, such as an int or a NumPy integer, to the integer type T of
/// up to 64 bits. Returns false with a Python error set for other objects, floats included, and for
/// values that do not fit. The other conversions also return false with an error set.
template <class T>
bool ToInteger(PyObject* object, const char* function, const char* argument, T* value) {
  PyObject* index = PyNumber_Index(object);
  if (!index) {
    PyErr_Clear();
    SetTypeError(function, argument, "an integer", object);
    return false;
  }
  bool fits = false;
  if constexpr (std::is_signed_v<T>) {
    const long long wide = PyLong_AsLongLong(index);
    fits = !PyErr_Occurred() && std::in_range<T>(wide);
    *value = static_cast<T>(wide);
  } else {
    const unsigned long long wide = PyLong_AsUnsignedLongLong(index);
    fits = !PyErr_Occurred() && std::in_range<T>(wide);
    *value = static_cast<T>(wide);
  }
  Py_DECREF(index);
  if (!fits) {
    PyErr_Clear();
    PyErr_SetString(PyExc_ValueError, detail::Message(PublicName(function), argument,
                                                      std::is_signed_v<T> ? "" : " is negative or",
                                                      " does not fit ", sizeof(T) * 8, " bits")
                                          .c_str());
  }
  return fits;
}

/// Whether `object` is an integer that `value`, its conversion to double, has rounded.
inline bool IsRounded(PyObject* object, double value) {
  if (!PyLong_Check(object) || std::abs(value) < 0x1p53) return false;
  PyObject* back = PyLong_FromDouble(value);
  const int same = back ? PyObject_RichCompareBool(back, object, Py_EQ) : 0;
  Py_XDECREF(back);
  PyErr_Clear();
  return same != 1;
}

/// Converts a number: everything that float() accepts, except text and integers that a double does
/// not hold.
inline bool ToDouble(PyObject* object, const char* function, const char* argument, double* value) {
  *value = PyFloat_AsDouble(object);
  if (*value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    SetTypeError(function, argument, "a number", object);
    return false;
  }
  if (IsRounded(object, *value)) {
    PyErr_SetString(PyExc_ValueError, detail::Message(PublicName(function), argument,
                                                      " is an integer that no double holds")
                                          .c_str());
    return false;
  }
  return true;
}

/// Converts True, False, 0 or 1.
inline bool ToBool(PyObject* object, const char* function, const char* argument, bool* value) {
  *value = object == Py_True;
  if (PyBool_Check(object)) return true;
  int64_t number = 0;
  if (!PyIndex_Check(object) || !ToInteger(object, function, argument, &number) || number < 0 ||
      number > 1) {
    PyErr_Clear();
    SetTypeError(function, argument, "a bool", object);
    return false;
  }
  *value = number == 1;
  return true;
}

/// Calls `f(item)` for the items of a sequence. Returns false as soon as `f` does. Returns false
/// with a Python error set if `object` is not a sequence.
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

/// Converts a sequence of integers, or one integer.
template <class T>
bool ToIntegers(PyObject* object, const char* function, const char* argument,
                std::vector<T>* values) {
  values->clear();
  T value = 0;
  if (PyIndex_Check(object)) {
    if (!ToInteger(object, function, argument, &value)) return false;
    values->push_back(value);
    return true;
  }
  return ForEach(object, function, argument, [&](PyObject* item) {
    if (!ToInteger(item, function, argument, &value)) return false;
    values->push_back(value);
    return true;
  });
}

inline bool ToIntegers(PyObject* object, const char* function, const char* argument, Shape* shape) {
  std::vector<int64_t> values;
  if (!ToIntegers(object, function, argument, &values)) return false;
  if (values.size() > kMaxRank) {
    PyErr_SetString(PyExc_ValueError,
                    detail::Message(PublicName(function), argument, " has ", values.size(),
                                    " dimensions, at most ", kMaxRank, " are possible")
                        .c_str());
    return false;
  }
  *shape = Shape(values);
  return true;
}

inline bool ToDoubles(PyObject* object, const char* function, const char* argument,
                      std::vector<double>* values) {
  return ForEach(object, function, argument, [&](PyObject* item) {
    double value = 0;
    if (!ToDouble(item, function, argument, &value)) return false;
    values->push_back(value);
    return true;
  });
}

inline bool ToStrings(PyObject* object, const char* function, const char* argument,
                      std::vector<std::string>* values) {
  return ForEach(object, function, argument, [&](PyObject* item) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_Check(item) ? PyUnicode_AsUTF8AndSize(item, &size) : nullptr;
    if (!data) {
      PyErr_Clear();
      SetTypeError(function, argument, "strings", item);
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

/// A tuple of what `convert` makes of each value, which it may move from; null after an error of
/// Python's.
template <class Values, class F>
PyObject* TupleOf(Values& values, const F& convert) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  for (size_t i = 0; tuple && i < values.size(); ++i) {
    PyObject* item = convert(values[i]);
    if (!item) {
      Py_DECREF(tuple);
      return nullptr;
    }
    PyTuple_SetItem(tuple, static_cast<Py_ssize_t>(i), item);
  }
  return tuple;
}

inline PyObject* ToText(const std::string& text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape");
}

/// Converts a bool, which says whether there is ReLU, or a tuple (kind, low, high).
inline bool ToActivation(PyObject* object, const char* function, const char* argument,
                         Activation* activation) {
  if (!PyTuple_Check(object) || PyTuple_Size(object) != 3) {
    bool relu = false;
    if (!ToBool(object, function, argument, &relu)) return false;
    *activation = relu;
    return true;
  }
  int kind = 0;
  if (!ToInteger(PyTuple_GetItem(object, 0), function, argument, &kind) ||
      !ToDouble(PyTuple_GetItem(object, 1), function, argument, &activation->low) ||
      !ToDouble(PyTuple_GetItem(object, 2), function, argument, &activation->high))
    return false;
  activation->kind = static_cast<ActivationKind>(kind);
  return true;
}

}  // namespace singa::python

#include "tape.h"

#include <structmember.h>

#include <cstddef>
#include <utility>

#include "python_support.h"
#include "tensor_object.h"

namespace singa::python {
namespace {

// The attributes of the two types. Null: deleted, or not set yet.

struct TapeTensor {
  PyObject ob_base;
  PyObject* data;
  PyObject* requires_grad;
  PyObject* stores_grad;
  PyObject* name;
  PyObject* grad;
  PyObject* creator;
  PyObject* index;

  static constexpr PyObject* TapeTensor::*kAttributes[] = {
      &TapeTensor::data, &TapeTensor::requires_grad, &TapeTensor::stores_grad, &TapeTensor::name,
      &TapeTensor::grad, &TapeTensor::creator,       &TapeTensor::index};
};

struct TapeOperator {
  PyObject ob_base;
  PyObject* src;
  PyObject* requires_grad;
  PyObject* needs;
  PyObject* leads;
  PyObject* saved;
  PyObject* versions;
  PyObject* outputs;
  PyObject* position;
  Py_ssize_t users;
  bool is_user;  // counted in `users` of the creators in src

  static constexpr PyObject* TapeOperator::*kAttributes[] = {
      &TapeOperator::src,     &TapeOperator::requires_grad, &TapeOperator::needs,
      &TapeOperator::leads,   &TapeOperator::saved,         &TapeOperator::versions,
      &TapeOperator::outputs, &TapeOperator::position};
};

bool Is(PyObject* object, PyObject* type) {
  return PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(type));
}

TapeOperator* AsOperator(PyObject* object) {
  if (Is(object, TapeOperatorType())) return reinterpret_cast<TapeOperator*>(object);
  PyErr_SetString(PyExc_TypeError, "[Operator] expected an autograd.Operator");
  return nullptr;
}

void Set(PyObject*& attribute, PyObject* value) {
  PyObject* before = std::exchange(attribute, value);
  Py_XDECREF(before);
}

/// Counts an operator in those that it got its inputs from, or out again.
void CountUser(TapeOperator* op, int change) {
  const Py_ssize_t count = op->src ? PyTuple_Size(op->src) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* creator = PyTuple_GetItem(PyTuple_GetItem(op->src, i), 0);
    reinterpret_cast<TapeOperator*>(creator)->users += change;
  }
}

void LeaveSources(TapeOperator* op) {
  if (std::exchange(op->is_user, false)) CountUser(op, -1);
}
void LeaveSources(TapeTensor*) {}

// The slots of the two types.

template <class T>
int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  for (auto attribute : T::kAttributes) Py_VISIT(reinterpret_cast<T*>(self)->*attribute);
  return 0;
}

template <class T>
int Clear(PyObject* self) {
  LeaveSources(reinterpret_cast<T*>(self));
  for (auto attribute : T::kAttributes) Py_CLEAR(reinterpret_cast<T*>(self)->*attribute);
  return 0;
}

template <class T>
void Deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Clear<T>(self);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

// The arguments are for __init__ of the class that derives from it.
PyObject* NewTensor(PyTypeObject* type, PyObject*, PyObject*) {
  return PyType_GenericAlloc(type, 0);
}

PyObject* NewOperator(PyTypeObject* type, PyObject* arguments, PyObject* names) {
  static const auto make = reinterpret_cast<newfunc>(PyType_GetSlot(&PyBaseObject_Type, Py_tp_new));
  static void* const no_init = PyType_GetSlot(&PyBaseObject_Type, Py_tp_init);
  static PyObject* const none = PyTuple_New(0);
  if ((PyTuple_Size(arguments) || (names && PyDict_Size(names))) &&
      PyType_GetSlot(type, Py_tp_init) == no_init) {
    const Owned name(PyType_GetName(type));
    return PyErr_Format(PyExc_TypeError, "%U() takes no arguments", name.get());
  }
  PyObject* self = make(type, none, nullptr);
  if (!self) return nullptr;
  auto* op = reinterpret_cast<TapeOperator*>(self);
  op->requires_grad = Py_NewRef(Py_None);
  op->saved = Py_NewRef(Py_None);
  for (auto empty : {&TapeOperator::src, &TapeOperator::needs, &TapeOperator::leads,
                     &TapeOperator::versions, &TapeOperator::outputs})
    op->*empty = Py_NewRef(none);
  op->position = PyLong_FromLong(-1);
  return self;
}

/// The signature in `doc` is what inspect.signature says of classes without an __init__.
template <class T>
PyObject* NewType(const char* name, const char* doc, newfunc make, PyMemberDef* members,
                  PyMethodDef* methods) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(doc)},
                         {Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate<T>)},
                         {Py_tp_traverse, reinterpret_cast<void*>(Traverse<T>)},
                         {Py_tp_clear, reinterpret_cast<void*>(Clear<T>)},
                         {Py_tp_members, members},
                         {Py_tp_methods, methods},
                         {0, nullptr}};
  PyType_Spec spec = {name, sizeof(T), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
  return PyType_FromSpec(&spec);
}

PyObject* Truth(bool value) { return value ? Py_True : Py_False; }

/// The operator that computed a tensor; one is made for a tensor that has none.
Owned CreatorOf(PyObject* tensor) {
  static PyObject* const name = PyUnicode_InternFromString("creator");
  PyObject* creator = reinterpret_cast<TapeTensor*>(tensor)->creator;
  return Owned(creator && creator != Py_None ? Py_NewRef(creator) : PyObject_GetAttr(tensor, name));
}

/// The src, _needs and _leads of an operator of these inputs; false after an error.
bool Link(TapeOperator* op, PyObject* tensors) {
  const Py_ssize_t count = PyTuple_Size(tensors);
  Owned src(PyTuple_New(count)), needs(PyTuple_New(count)), leads(PyList_New(0));
  if (!src || !needs || !leads) return false;
  bool needs_all = true;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* tensor = PyTuple_GetItem(tensors, i);
    const auto* x = reinterpret_cast<TapeTensor*>(tensor);
    const Owned creator = CreatorOf(tensor);
    const auto* made_by = creator ? AsOperator(creator.get()) : nullptr;
    const int stores = PyObject_IsTrue(x->stores_grad), need = PyObject_IsTrue(x->requires_grad);
    if (!made_by || stores < 0 || need < 0) return false;
    PyObject* source =
        PyTuple_Pack(4, creator.get(), x->index, stores ? tensor : Py_None, Truth(stores));
    if (!source) return false;
    PyTuple_SetItem(src.get(), i, source);
    PyTuple_SetItem(needs.get(), i, Py_NewRef(Truth(need)));
    needs_all &= need != 0;
    if (need && (stores || PyTuple_Size(made_by->leads) > 0)) {
      const Owned position(PyLong_FromSsize_t(i));
      if (!position || PyList_Append(leads.get(), position.get()) < 0) return false;
    }
  }
  PyObject* lead_tuple = PyList_AsTuple(leads.get());
  if (!lead_tuple) return false;
  Set(op->src, src.release());
  Set(op->needs, needs_all ? PyTuple_New(0) : needs.release());
  Set(op->leads, lead_tuple);
  return true;
}

/// A Tensor of class `type` with the defaults in the other attributes.
PyObject* NewTapeTensor(PyObject* type, PyObject* data, PyObject* requires_grad, PyObject* creator,
                        PyObject* index) {
  PyObject* self = PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type), 0);
  if (!self) return nullptr;
  auto* x = reinterpret_cast<TapeTensor*>(self);
  x->data = Py_NewRef(data);
  x->requires_grad = Py_NewRef(requires_grad);
  x->stores_grad = Py_NewRef(Py_False);
  x->name = Py_NewRef(Py_None);
  x->grad = Py_NewRef(Py_None);
  x->creator = Py_NewRef(creator);
  x->index = Py_NewRef(index);
  return self;
}

PyObject* SetWrongArguments(const char* method, const char* expected) {
  return PyErr_Format(PyExc_TypeError, "[%s] expected %s", method, expected);
}

// The methods. Those of METH_FASTCALL get an array of `count` arguments.

PyObject* Wrap(PyObject* type, PyObject* const* arguments, Py_ssize_t count) {
  static PyObject* const zero = PyLong_FromLong(0);
  if (count < 2 || count > 4) return SetWrongArguments("wrap", "2 to 4 arguments");
  return NewTapeTensor(type, arguments[0], arguments[1], count > 2 ? arguments[2] : Py_None,
                       count > 3 ? arguments[3] : zero);
}

PyObject* Inputs(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  if (count != 2 || !PyTuple_Check(arguments[0]))
    return SetWrongArguments("Operator", "a tuple of Tensors, and whether it is recorded");
  PyObject* tensors = arguments[0];
  const Py_ssize_t size = PyTuple_Size(tensors);
  const Owned raws(PyTuple_New(size));
  if (!raws) return nullptr;
  bool needs = false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* tensor = PyTuple_GetItem(tensors, i);
    if (!Is(tensor, TapeTensorType())) return Py_NewRef(Py_None);
    const auto* x = reinterpret_cast<TapeTensor*>(tensor);
    if (!x->data || !x->requires_grad || !x->stores_grad || !x->index) {
      PyErr_SetString(PyExc_AttributeError, "[Operator] an attribute of the Tensor was deleted");
      return nullptr;
    }
    PyTuple_SetItem(raws.get(), i, Py_NewRef(x->data));
    const int need = PyObject_IsTrue(x->requires_grad);
    if (need < 0) return nullptr;
    needs |= need != 0;
  }
  const int record = PyObject_IsTrue(arguments[1]);
  if (record < 0) return nullptr;
  auto* op = reinterpret_cast<TapeOperator*>(self);
  if (record && needs && !Link(op, tensors)) return nullptr;
  return PyTuple_Pack(2, raws.get(), Truth(needs));
}

PyObject* Outputs(PyObject* self, PyObject* const* arguments, Py_ssize_t count) {
  static long long recorded = 0;  // guarded by the interpreter's lock
  if (count != 4 || !PyType_Check(arguments[0]) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(arguments[0]),
                        reinterpret_cast<PyTypeObject*>(TapeTensorType())))
    return SetWrongArguments("Operator", "a class of Tensors, raw tensors, and two flags");
  PyObject *type = arguments[0], *raws = arguments[1], *needs = arguments[2];
  const int record = PyObject_IsTrue(arguments[3]);
  if (record < 0) return nullptr;
  if (record) {
    auto* op = reinterpret_cast<TapeOperator*>(self);
    Set(op->position, PyLong_FromLongLong(recorded++));
    if (!std::exchange(op->is_user, true)) CountUser(op, 1);
  }
  const bool several = PyTuple_Check(raws);
  const Py_ssize_t size = several ? PyTuple_Size(raws) : 1;
  Owned tensors(PyTuple_New(size));
  for (Py_ssize_t i = 0; tensors && i < size; ++i) {
    const Owned index(PyLong_FromSsize_t(i));
    PyObject* tensor = NewTapeTensor(type, several ? PyTuple_GetItem(raws, i) : raws, needs,
                                     record ? self : Py_None, index.get());
    if (!tensor) return nullptr;
    PyTuple_SetItem(tensors.get(), i, tensor);
  }
  return tensors.release();
}

PyObject* Save(PyObject* self, PyObject* tensors) {
  auto* op = reinterpret_cast<TapeOperator*>(self);
  if (op->requires_grad == Py_None) {
    const Owned done(PyObject_CallMethod(self, "_follow_training", nullptr));
    if (!done) return nullptr;
  }
  const int keep = op->requires_grad ? PyObject_IsTrue(op->requires_grad) : 0;
  if (keep < 0) return nullptr;
  if (keep) {
    PyObject* versions = Versions(tensors);
    if (!versions) return nullptr;
    Set(op->versions, versions);
    Set(op->saved, Py_NewRef(tensors));
  }
  return Py_NewRef(Py_None);
}

PyObject* Load(PyObject* self, PyObject*) {
  const auto* op = reinterpret_cast<TapeOperator*>(self);
  if (op->saved && op->versions && PyTuple_Check(op->saved) && PyTuple_Size(op->saved) > 0) {
    const Owned versions(Versions(op->saved));
    if (!versions) return nullptr;
    const int same = PyObject_RichCompareBool(versions.get(), op->versions, Py_EQ);
    if (same < 0) return nullptr;
    if (same) return Py_NewRef(op->saved);
  }
  return PyObject_CallMethod(self, "_checked", nullptr);
}

PyObject* ReleaseSources(PyObject* self, PyObject*) {
  auto* op = reinterpret_cast<TapeOperator*>(self);
  LeaveSources(op);
  Set(op->src, PyTuple_New(0));
  return Py_NewRef(Py_None);
}

PyMethodDef Fast(const char* name, PyObject* (*method)(PyObject*, PyObject* const*, Py_ssize_t),
                 const char* doc, int flags = 0) {
  // Python's own way to put functions of other forms into a PyMethodDef.
  return {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(method)),
          METH_FASTCALL | flags, doc};
}

}  // namespace

PyObject* TapeTensorType() {
  static PyMemberDef members[] = {
      {"data", T_OBJECT_EX, offsetof(TapeTensor, data), 0, nullptr},
      {"requires_grad", T_OBJECT_EX, offsetof(TapeTensor, requires_grad), 0, nullptr},
      {"stores_grad", T_OBJECT_EX, offsetof(TapeTensor, stores_grad), 0, nullptr},
      {"name", T_OBJECT_EX, offsetof(TapeTensor, name), 0, nullptr},
      {"grad", T_OBJECT_EX, offsetof(TapeTensor, grad), 0, nullptr},
      {"_creator", T_OBJECT_EX, offsetof(TapeTensor, creator), 0, nullptr},
      {"_index", T_OBJECT_EX, offsetof(TapeTensor, index), 0, nullptr},
      {}};
  static PyMethodDef methods[] = {
      Fast("_wrap", Wrap,
           "_wrap($type, raw, requires_grad, creator=None, index=0, /)\n--\n\n"
           "A Tensor over a raw one: the quick way in for results of operations.",
           METH_CLASS),
      {}};
  static PyObject* const type = NewType<TapeTensor>(
      "singa._singa_wrap.TapeTensor", "The attributes of a Tensor.", NewTensor, members, methods);
  return type;
}

PyObject* TapeOperatorType() {
  static PyMemberDef members[] = {
      {"src", T_OBJECT_EX, offsetof(TapeOperator, src), READONLY, nullptr},
      {"requires_grad", T_OBJECT_EX, offsetof(TapeOperator, requires_grad), 0, nullptr},
      {"_needs", T_OBJECT_EX, offsetof(TapeOperator, needs), 0, nullptr},
      {"_leads", T_OBJECT_EX, offsetof(TapeOperator, leads), READONLY, nullptr},
      {"_saved", T_OBJECT_EX, offsetof(TapeOperator, saved), 0, nullptr},
      {"_versions", T_OBJECT_EX, offsetof(TapeOperator, versions), 0, nullptr},
      {"_outputs", T_OBJECT_EX, offsetof(TapeOperator, outputs), 0, nullptr},
      {"_position", T_OBJECT_EX, offsetof(TapeOperator, position), READONLY, nullptr},
      {"_users", T_PYSSIZET, offsetof(TapeOperator, users), READONLY, nullptr},
      {}};
  static PyMethodDef methods[] = {
      Fast("_inputs", Inputs,
           "_inputs($self, tensors, record, /)\n--\n\n"
           "The data of the inputs, and whether one of them requires a gradient; None where one of "
           "them is no Tensor. With `record`, if one requires a gradient, src, _needs and _leads "
           "are set."),
      Fast("_results", Outputs,
           "_results($self, type, raws, requires_grad, record, /)\n--\n\n"
           "Tensors over the outputs. With `record` the operator is their creator, gets its "
           "place on the tape, and is counted in the operators that it got its inputs from, "
           "until it dies or _release_sources is called."),
      {"save", Save, METH_VARARGS,
       "save($self, /, *tensors)\n--\n\n"
       "Keeps raw tensors for backward, which gets them by `load`, if there will be one."},
      {"load", Load, METH_NOARGS,
       "load($self, /)\n--\n\n"
       "What `save` kept.\n\n"
       "Raises RuntimeError when an earlier backward freed it, or it was changed in place since."},
      {"_release_sources", ReleaseSources, METH_NOARGS,
       "_release_sources($self, /)\n--\n\nLets go of the inputs."},
      {}};
  static PyObject* const type = NewType<TapeOperator>(
      "singa._singa_wrap.TapeOperator", "TapeOperator()\n--\n\nThe attributes of an Operator.",
      NewOperator, members, methods);
  return type;
}

TensorSettings SettingsOf(PyObject* tensor) {
  const auto* x = reinterpret_cast<TapeTensor*>(tensor);
  return {x->data, x->requires_grad, x->stores_grad, x->name, x->grad};
}

}  // namespace singa::python

#include "tape.h"

#include <structmember.h>

#include <cstddef>
#include <utility>

namespace singa::python {
namespace {

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
PyObject* NewType(const char* name, const char* doc, newfunc make, PyMemberDef* members) {
  PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>(doc)},
                         {Py_tp_new, reinterpret_cast<void*>(make)},
                         {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate<T>)},
                         {Py_tp_traverse, reinterpret_cast<void*>(Traverse<T>)},
                         {Py_tp_clear, reinterpret_cast<void*>(Clear<T>)},
                         {Py_tp_members, members},
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
  static PyObject* const type = NewType<TapeTensor>(
      "singa._singa_wrap.TapeTensor", "The attributes of a Tensor.", NewTensor, members);
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
  static PyObject* const type = NewType<TapeOperator>(
      "singa._singa_wrap.TapeOperator", "TapeOperator()\n--\n\nThe attributes of an Operator.",
      NewOperator, members);
  return type;
}

TensorSettings SettingsOf(PyObject* tensor) {
  const auto* x = reinterpret_cast<TapeTensor*>(tensor);
  return {x->data, x->requires_grad, x->stores_grad, x->name, x->grad};
}

PyObject* NewTapeTensor(PyObject* type, PyObject* data, PyObject* requires_grad, PyObject* creator,
                        PyObject* index) {
  auto* kind = reinterpret_cast<PyTypeObject*>(type);
  if (!PyType_Check(type) ||
      !PyType_IsSubtype(kind, reinterpret_cast<PyTypeObject*>(TapeTensorType()))) {
    PyErr_SetString(PyExc_TypeError, "[NewTapeTensor] expected a class of Tensors");
    return nullptr;
  }
  PyObject* self = PyType_GenericAlloc(kind, 0);
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

PyObject* Inputs(PyObject* op, PyObject* tensors, bool record) {
  TapeOperator* self = AsOperator(op);
  if (!self) return nullptr;
  if (!PyTuple_Check(tensors)) {
    PyErr_SetString(PyExc_TypeError, "[Inputs] expected a tuple of Tensors");
    return nullptr;
  }
  const Py_ssize_t count = PyTuple_Size(tensors);
  const Owned raws(PyTuple_New(count));
  if (!raws) return nullptr;
  bool needs = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
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
  if (record && needs && !Link(self, tensors)) return nullptr;
  return PyTuple_Pack(2, raws.get(), Truth(needs));
}

PyObject* Record(PyObject* op) {
  static long long recorded = 0;  // guarded by the interpreter's lock
  TapeOperator* self = AsOperator(op);
  if (!self) return nullptr;
  Set(self->position, PyLong_FromLongLong(recorded++));
  if (!std::exchange(self->is_user, true)) CountUser(self, 1);
  return Py_NewRef(Py_None);
}

PyObject* ReleaseSources(PyObject* op) {
  TapeOperator* self = AsOperator(op);
  if (!self) return nullptr;
  LeaveSources(self);
  Set(self->src, PyTuple_New(0));
  return Py_NewRef(Py_None);
}

}  // namespace singa::python

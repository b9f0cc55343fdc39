#include "held_objects.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "python_support.h"
#include "singa/core/error.h"
#include "tape.h"

namespace singa::python {
namespace {

constexpr const char* kOp = "HeldObjects";

[[noreturn]] void Refuse(const char* expected, PyObject* got) {
  throw TypeError(detail::Message(kOp, "expected ", expected, ", got ", TypeName(got)));
}

/// The addresses of a container's entries.
class Held {
 public:
  /// From the number of entries on.
  explicit Held(const int64_t* count) : count_(*count), next_(count + 1) {}

  bool Has(Py_ssize_t size) const { return count_ == size; }
  /// Reads the next address. True if it is that of `object`, or 0; 1 for a null `object`. Call it
  /// at most n times where it Has(n).
  bool Next(const PyObject* object) {
    const int64_t then = *next_++;
    return then == 0 || then == (object ? reinterpret_cast<int64_t>(object) : kAbsent);
  }

 private:
  static constexpr int64_t kAbsent = 1;
  const int64_t count_;
  const int64_t* next_;
};

// Versions ----------------------------------------------------------------------------------------

/// The version of a dict in CPython 3.11 and 3.12 (PEP 509): the word behind its header and size.
int64_t VersionOf(PyObject* dict) {
  int64_t version;
  std::memcpy(&version, reinterpret_cast<const char*>(dict) + sizeof(PyObject) + sizeof(Py_ssize_t),
              sizeof(version));
  return version;
}

/// Whether dicts of this interpreter have versions. Looks whether the word is one, too.
bool HasVersions() {
  const unsigned long minor = Py_Version >> 16;
  if (minor != 0x30b && minor != 0x30c) return false;
  const Owned one(PyDict_New()), other(PyDict_New()), key(PyUnicode_FromString("key"));
  const auto set = [&](const Owned& dict, PyObject* value) {
    const int64_t before = VersionOf(dict.get());
    return PyDict_SetItem(dict.get(), key.get(), value) == 0 && VersionOf(dict.get()) > before;
  };
  bool found = false;
  if (one && other && key && set(one, Py_None) && set(other, Py_None)) {
    const int64_t before = VersionOf(one.get());
    PyDict_GetItemWithError(one.get(), key.get());
    found = before > 0 && VersionOf(one.get()) == before && VersionOf(other.get()) > before &&
            set(one, Py_True) && VersionOf(one.get()) > VersionOf(other.get());
  }
  PyErr_Clear();
  return found;
}

// Containers --------------------------------------------------------------------------------------

bool SameDict(PyObject* dict, Held held) {
  if (!held.Has(2 * PyDict_Size(dict))) return false;
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (PyDict_Next(dict, &position, &key, &value))
    if (!held.Next(key) || !held.Next(value)) return false;
  return true;
}

bool SameList(PyObject* list, Held held) {
  const Py_ssize_t size = PyList_Size(list);
  if (!held.Has(size)) return false;
  for (Py_ssize_t i = 0; i < size; ++i)
    if (!held.Next(PyList_GetItem(list, i))) return false;
  return true;
}

/// Without descriptors: a model has hundreds of Tensors, and reading an attribute through Python
/// would change its value's reference count.
bool SameTensor(PyObject* tensor, Held held) {
  for (const PyObject* value : SettingsOf(tensor))
    if (!held.Next(value)) return false;
  return true;
}

/// The class and the __dict__ of any other object.
bool SameMembers(PyObject* object, Held held) {
  if (!held.Next(reinterpret_cast<PyObject*>(Py_TYPE(object)))) return false;
  const Owned dict(PyObject_GenericGetDict(object, nullptr));
  if (!dict) PyErr_Clear();
  return held.Next(dict.get());
}

bool SameEntries(PyObject* names, Held held) {
  PyObject* dict = PyTuple_GetItem(names, 0);
  for (Py_ssize_t i = 1; i < PyTuple_Size(names); ++i) {
    const PyObject* value = PyDict_GetItemWithError(dict, PyTuple_GetItem(names, i));
    if (value == nullptr) PyErr_Clear();  // also of a key that cannot be looked up
    if (!held.Next(value)) return false;
  }
  return true;
}

bool SameAttributes(PyObject* names, Held held) {
  PyObject* object = PyTuple_GetItem(names, 0);
  for (Py_ssize_t i = 1; i < PyTuple_Size(names); ++i) {
    PyObject* descriptor = PyTuple_GetItem(names, i);
    const auto get =
        reinterpret_cast<descrgetfunc>(PyType_GetSlot(Py_TYPE(descriptor), Py_tp_descr_get));
    const Owned value(get(descriptor, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
    if (!value) {
      PyErr_Clear();  // the attribute is gone, so the object has changed
      return false;
    }
    if (!held.Next(value.get())) return false;
  }
  return true;
}

/// Of each kind of container, what has its entries, and how they are compared.
struct Container {
  enum Kind { kDict, kList, kTensor, kMembers, kEntries, kAttributes };

  Container(PyObject* object, const int64_t* count, int64_t left) : object(object), count(count) {
    Check(left > 0 && *count >= 0 && *count < left, kOp, "held is too short");
    const auto has = [&](Py_ssize_t size) {
      Check(*count == size, kOp, "held has ", *count, " entries instead of ", size);
    };
    if (PyDict_Check(object)) {
      kind = kDict;
      dict = object;
    } else if (PyList_Check(object)) {
      kind = kList;
    } else if (PyTuple_Check(object)) {
      Check<TypeError>(PyTuple_Size(object) > 0, kOp, "attributes of no object");
      has(PyTuple_Size(object) - 1);
      PyObject* first = PyTuple_GetItem(object, 0);
      kind = PyDict_Check(first) ? kEntries : kAttributes;
      if (kind == kEntries) dict = first;
      for (Py_ssize_t i = 1; kind == kAttributes && i < PyTuple_Size(object); ++i)
        if (PyObject* one = PyTuple_GetItem(object, i);
            PyType_GetSlot(Py_TYPE(one), Py_tp_descr_get) == nullptr)
          Refuse("a descriptor", one);
    } else if (PyObject_TypeCheck(object, reinterpret_cast<PyTypeObject*>(TapeTensorType()))) {
      has(std::tuple_size_v<TensorSettings>);
      kind = kTensor;
    } else {
      has(2);
      kind = kMembers;
    }
  }

  bool Same() {
    static const bool has_versions = HasVersions();
    const int64_t now = dict && has_versions ? VersionOf(dict) : 0;
    if (now != 0 && now == version) return true;
    if (!Compare()) return false;
    version = now;
    return true;
  }

  /// Fetches what Same reads first: after a replay no near cache has it.
  void Fetch() const {
    const char* at = reinterpret_cast<const char*>(dict ? dict : object);
    __builtin_prefetch(at + sizeof(PyObject));
    if (version != 0) return;
    __builtin_prefetch(at - sizeof(PyObject));  // where Python keeps the address of a __dict__
    __builtin_prefetch(at + 4 * sizeof(PyObject));
    __builtin_prefetch(count);
  }

 private:
  bool Compare() const {
    const Held held(count);
    switch (kind) {
      case kDict:
        return SameDict(object, held);
      case kList:
        return SameList(object, held);
      case kTensor:
        return SameTensor(object, held);
      case kMembers:
        return SameMembers(object, held);
      case kEntries:
        return SameEntries(object, held);
      default:
        return SameAttributes(object, held);
    }
  }

  PyObject* object;  // borrowed
  PyObject* dict = nullptr;
  const int64_t* count;  // of entries; their addresses follow
  int64_t version = 0;   // of dict, when the entries were last the same
  Kind kind;
};

// The type ----------------------------------------------------------------------------------------

struct HeldObjects {
  PyObject ob_base;
  PyObject* owner;  ///< a tuple of the containers; null after Clear
  std::vector<int64_t> held;
  std::vector<Container> containers;
};

HeldObjects* Of(PyObject* self) { return reinterpret_cast<HeldObjects*>(self); }

int Traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(reinterpret_cast<PyObject*>(Py_TYPE(self)));
  Py_VISIT(Of(self)->owner);
  return 0;
}

int Clear(PyObject* self) {
  Of(self)->containers.clear();
  Py_CLEAR(Of(self)->owner);
  return 0;
}

void Deallocate(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Clear(self);
  std::destroy_at(&Of(self)->held);
  std::destroy_at(&Of(self)->containers);
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(reinterpret_cast<PyObject*>(type));
}

void Fill(HeldObjects* self, PyObject* containers, PyObject* held) {
  if (!PyList_Check(containers)) Refuse("a list of containers", containers);
  if (!PyBytes_Check(held)) Refuse("bytes", held);
  self->held.resize(static_cast<size_t>(PyBytes_Size(held)) / sizeof(int64_t));
  if (!self->held.empty())
    std::memcpy(self->held.data(), PyBytes_AsString(held), self->held.size() * sizeof(int64_t));
  self->owner = PyList_AsTuple(containers);
  if (!self->owner) throw std::bad_alloc();
  const int64_t *next = self->held.data(), *end = next + self->held.size();
  for (Py_ssize_t i = 0; i < PyTuple_Size(self->owner); ++i) {
    self->containers.emplace_back(PyTuple_GetItem(self->owner, i), next, end - next);
    next += 1 + *next;
  }
  Check(next == end, kOp, "held is too long");
}

PyObject* New(PyTypeObject* type, PyObject* arguments, PyObject*) {
  PyObject *containers, *held;
  if (!PyArg_UnpackTuple(arguments, kOp, 2, 2, &containers, &held)) return nullptr;
  PyObject* self = PyType_GenericAlloc(type, 0);
  if (!self) return nullptr;
  std::construct_at(&Of(self)->held);
  std::construct_at(&Of(self)->containers);
  try {
    Fill(Of(self), containers, held);
    return self;
  } catch (...) {
    SetErrorFromException(kOp);
    Py_DECREF(self);
    return nullptr;
  }
}

PyObject* Same(PyObject* self, PyObject*) {
  constexpr size_t kAhead = 24;
  std::vector<Container>& containers = Of(self)->containers;
  for (size_t i = 0; i < containers.size(); ++i) {
    if (i + kAhead < containers.size()) containers[i + kAhead].Fetch();
    if (!containers[i].Same()) return Py_NewRef(Py_False);
  }
  return Py_NewRef(Of(self)->owner ? Py_True : Py_False);
}

}  // namespace

PyObject* HeldObjectsType() {
  static PyObject* const type = [] {
    static PyMethodDef methods[] = {
        {"same", Same, METH_NOARGS, "Whether the containers contain the same objects as before."},
        {nullptr, nullptr, 0, nullptr}};
    PyType_Slot slots[] = {{Py_tp_doc, const_cast<char*>("HeldObjects(containers, held)")},
                           {Py_tp_new, reinterpret_cast<void*>(New)},
                           {Py_tp_dealloc, reinterpret_cast<void*>(Deallocate)},
                           {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
                           {Py_tp_clear, reinterpret_cast<void*>(Clear)},
                           {Py_tp_methods, methods},
                           {0, nullptr}};
    PyType_Spec spec = {"singa._singa_wrap.HeldObjects", sizeof(HeldObjects), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    return PyType_FromSpec(&spec);
  }();
  return type;
}

}  // namespace singa::python

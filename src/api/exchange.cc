#include "exchange.h"

#include <cstring>
#include <memory>

#include "python_support.h"
#include "singa/core/device.h"

namespace singa::python {
namespace {

// DLPack's C interface, version 0.8 (github.com/dmlc/dlpack). The protocol defines the layout of
// these structs.
struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor*);
};
constexpr int32_t kDLCPU = 1;
constexpr uint8_t kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLBool = 6;

struct TypeRow {
  DType dtype;
  uint8_t dl_code;
  const char* typestr;  // of NumPy's array interface; null if NumPy does not have the type
  const char* formats;  // the buffer protocol's format letters for this kind and size
};
constexpr TypeRow kTypes[] = {
    {kFloat32, kDLFloat, "<f4", "f"}, {kDouble, kDLFloat, "<f8", "d"},
    {kFloat16, kDLFloat, "<f2", "e"}, {kBFloat16, kDLBfloat, nullptr, ""},
    {kInt, kDLInt, "<i4", "il"},      {kInt64, kDLInt, "<i8", "lqn"},
    {kChar, kDLInt, "|i1", "b"},      {kUChar, kDLUInt, "|u1", "B"},
    {kBool, kDLBool, "|b1", "?"},
};

const TypeRow& RowOf(DType dtype) {
  for (const TypeRow& row : kTypes)
    if (row.dtype == dtype) return row;
  throw TypeError("[exchange] unknown element type");
}

DType TypeOfFormat(const char* format, Py_ssize_t itemsize) {
  const std::string all = format ? format : "B";
  const char* letter = all.c_str();
  if (*letter == '@' || *letter == '=' || *letter == '<') ++letter;
  if (std::strlen(letter) == 1)
    for (const TypeRow& row : kTypes)
      if (std::strchr(row.formats, *letter) && SizeOf(row.dtype) == static_cast<size_t>(itemsize))
        return row.dtype;
  throw TypeError(detail::Message("from_buffer", "elements of format '", all, "' (", itemsize,
                                  " bytes) are none of float16/32/64, int8/32/64, uint8, bool"));
}

struct BufferView {
  Py_buffer view{};
  ~BufferView() {
    const PyGILState_STATE state =
        PyGILState_Ensure();  // the last tensor may be freed by any thread
    PyBuffer_Release(&view);
    PyGILState_Release(state);
  }
};

/// Releases the interpreter lock for the duration of a scope.
class LetGoOfInterpreter {
 public:
  LetGoOfInterpreter() : state_(PyEval_SaveThread()) {}
  ~LetGoOfInterpreter() { PyEval_RestoreThread(state_); }
  LetGoOfInterpreter(const LetGoOfInterpreter&) = delete;
  LetGoOfInterpreter& operator=(const LetGoOfInterpreter&) = delete;

 private:
  PyThreadState* state_;
};

/// A tensor over external memory. `data` is its first element; strides are in elements and may be
/// negative.
Tensor Wrap(void* data, const Shape& shape, const Strides& strides, DType dtype,
            std::shared_ptr<void> owner) {
  int64_t low = 0, high = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 0) return Tensor(shape, nullptr, dtype);
    (strides[i] < 0 ? low : high) += (shape[i] - 1) * strides[i];
  }
  const int64_t size = static_cast<int64_t>(SizeOf(dtype));
  auto block = std::make_shared<Block>(DefaultDevice(), static_cast<char*>(data) + low * size,
                                       static_cast<size_t>((high - low + 1) * size),
                                       [owner]() mutable { owner.reset(); });
  return Tensor(std::move(block), shape, strides, -low, dtype);
}

}  // namespace

Tensor FromBuffer(PyObject* object, bool copy) {
  auto held = std::make_shared<BufferView>();
  Py_buffer& view = held->view;
  if (PyObject_GetBuffer(object, &view, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    throw TypeError(detail::Message("from_buffer", TypeName(object), " has no buffer of numbers"));
  }
  const DType dtype = TypeOfFormat(view.format, view.itemsize);
  Check(view.ndim <= kMaxRank, "from_buffer", view.ndim, " dimensions, at most ", kMaxRank,
        " are possible");
  Check(copy || !view.readonly, "from_buffer", "a read-only buffer cannot be shared, only copied");
  Shape shape = Shape::Filled(view.ndim, 0);
  Strides strides = shape;
  bool divides = reinterpret_cast<uintptr_t>(view.buf) % static_cast<size_t>(view.itemsize) == 0;
  for (int i = 0; i < view.ndim; ++i) {
    shape[i] = view.shape[i];
    divides &= view.strides[i] % view.itemsize == 0;
    strides[i] = view.strides[i] / view.itemsize;
  }
  // An array without elements may have any address.
  Check(divides || shape.Count() == 0, "from_buffer",
        "elements are not aligned to their size; copy the array first");
  void* data = view.buf;
  const Tensor shared = Wrap(data, shape, strides, dtype, held);
  return copy ? shared.Clone() : shared;
}

void ToBuffer(const Tensor& tensor, PyObject* object) {
  Check(!tensor.empty(), "to_buffer", "the tensor is empty");
  BufferView held;
  Py_buffer& view = held.view;
  if (PyObject_GetBuffer(object, &view, PyBUF_CONTIG | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    throw std::invalid_argument(detail::Message("to_buffer", TypeName(object),
                                                " has no row-major memory that can be written to"));
  }
  const DType dtype = TypeOfFormat(view.format, view.itemsize);
  Check<TypeError>(dtype == tensor.data_type(), "to_buffer", "elements of ", DTypeName(dtype),
                   " cannot hold those of ", tensor);
  const LetGoOfInterpreter others_may_run;
  tensor.CopyToHost(view.buf, static_cast<size_t>(view.len));
}

Tensor FromDlpack(PyObject* capsule) {
  auto* managed = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"));
  if (!managed) {
    PyErr_Clear();
    throw TypeError("[from_dlpack] needs an unused capsule named 'dltensor'");
  }
  const DLTensor& t = managed->dl_tensor;
  Check<TypeError>(t.device.device_type == kDLCPU, "from_dlpack", "the tensor is on device type ",
                   t.device.device_type, ", only CPU memory can be shared");
  Check(t.ndim >= 0 && t.ndim <= kMaxRank, "from_dlpack", t.ndim, " dimensions, at most ", kMaxRank,
        " are possible");
  const TypeRow* found = nullptr;
  for (const TypeRow& row : kTypes)
    if (t.dtype.lanes == 1 && row.dl_code == t.dtype.code && SizeOf(row.dtype) * 8 == t.dtype.bits)
      found = &row;
  Check<TypeError>(found, "from_dlpack", "element type (code ", int{t.dtype.code}, ", ",
                   int{t.dtype.bits}, " bits, ", t.dtype.lanes, " lanes) is not supported");
  Shape shape = Shape::Filled(t.ndim, 0);
  for (int i = 0; i < t.ndim; ++i) shape[i] = t.shape[i];
  CheckShape("from_dlpack", shape, SizeOf(found->dtype));
  Strides strides = ContiguousStrides(shape);
  if (t.strides)
    for (int i = 0; i < t.ndim; ++i) strides[i] = t.strides[i];
  PyCapsule_SetName(capsule, "used_dltensor");
  std::shared_ptr<void> owner(managed, [](void* pointer) {
    auto* m = static_cast<DLManagedTensor*>(pointer);
    const PyGILState_STATE state = PyGILState_Ensure();
    if (m->deleter) m->deleter(m);
    PyGILState_Release(state);
  });
  Tensor shared =
      Wrap(static_cast<char*>(t.data) + t.byte_offset, shape, strides, found->dtype, owner);
  // For as long as it lives: the owner may write to its memory at any time.
  if (shape.Count() != 0) shared.block()->Pin();
  return shared;
}

Exporter::Exporter(const Tensor& tensor) : tensor_(tensor) {
  Check(!tensor.empty(), "export", "the tensor is empty");
  Check<TypeError>(tensor.device()->kind() == DeviceKind::kCpu, "export",
                   "only CPU memory can be shared, got ", tensor);
  tensor_.block()->Pin();
}

Exporter::~Exporter() { tensor_.block()->Unpin(); }

PyObject* Exporter::array_interface() const {
  const TypeRow& row = RowOf(tensor_.data_type());
  Check<TypeError>(row.typestr, "numpy", "NumPy has no bfloat16; convert with as_type first");
  Shape bytes = tensor_.strides();
  for (int i = 0; i < bytes.rank(); ++i)
    bytes[i] *= static_cast<int64_t>(SizeOf(tensor_.data_type()));
  PyObject* shape = ToTuple(tensor_.shape().begin(), tensor_.shape().end());
  PyObject* strides = ToTuple(bytes.begin(), bytes.end());
  PyObject* dict = Py_BuildValue(
      "{s:N,s:s,s:(KO),s:N,s:i}", "shape", shape, "typestr", row.typestr, "data",
      static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(tensor_.raw_data())), Py_False,
      "strides", strides, "version", 3);
  return dict;
}

PyObject* Exporter::dlpack() const {
  struct Export {
    DLManagedTensor managed{};
    Tensor tensor;
    Shape shape, strides;
  };
  auto holder = std::make_unique<Export>();
  holder->tensor = tensor_;
  holder->shape = tensor_.shape();
  holder->strides = tensor_.strides();
  DLTensor& t = holder->managed.dl_tensor;
  t.data = tensor_.raw_data();
  t.device = {kDLCPU, 0};
  t.ndim = tensor_.rank();
  t.dtype = {RowOf(tensor_.data_type()).dl_code,
             static_cast<uint8_t>(SizeOf(tensor_.data_type()) * 8), 1};
  t.shape = holder->shape.rank() ? &holder->shape[0] : nullptr;
  t.strides = holder->strides.rank() ? &holder->strides[0] : nullptr;
  holder->managed.manager_ctx = holder.get();
  holder->managed.deleter = [](DLManagedTensor* m) {
    auto* e = static_cast<Export*>(m->manager_ctx);
    e->tensor.block()->Unpin();
    delete e;
  };
  tensor_.block()->Pin();
  PyObject* capsule = PyCapsule_New(&holder->managed, "dltensor", [](PyObject* self) {
    if (!PyCapsule_IsValid(self, "dltensor")) return;  // consumed
    auto* m = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(self, "dltensor"));
    m->deleter(m);
  });
  if (!capsule) {
    tensor_.block()->Unpin();
    return nullptr;
  }
  holder.release();
  return capsule;
}

}  // namespace singa::python

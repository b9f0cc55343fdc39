// Shape ↔ tuple; vectors of numbers and tensors ↔ sequences; an empty Tensor ↔ None.

%include <stdint.i>
%include <std_string.i>
%include <std_shared_ptr.i>

%shared_ptr(singa::Device)
%shared_ptr(singa::Arena)
%shared_ptr(singa::Recording)
%shared_ptr(singa::MemoryLimit)
%shared_ptr(singa::Communicator)

// --- integers, including NumPy's, by __index__
%typemap(in) singa::Shape, std::vector<int64_t> {
  if (!singa::python::ToIntegers($input, "$symname", "$1_name", &$1)) SWIG_fail;
}
%typemap(in) const singa::Shape& (singa::Shape temp), const std::vector<int64_t>& (std::vector<int64_t> temp) {
  if (!singa::python::ToIntegers($input, "$symname", "$1_name", &temp)) SWIG_fail;
  $1 = &temp;
}
// Overloads differ in their tensors and handles. Numbers always match and are converted after an
// overload is chosen, so that an error names the wrong argument.
%typemap(typecheck, precedence=SWIG_TYPECHECK_INT64)
    singa::Shape, const singa::Shape&, std::vector<int64_t>, const std::vector<int64_t>&, int64_t, uint64_t, size_t,
    int, double, bool, const singa::Activation&, const std::string& {
  $1 = 1;
}
%typemap(out) singa::Shape, std::vector<int64_t>, std::vector<uint64_t> {
  const auto& values = *(&$1);  // SWIG may have wrapped it
  $result = singa::python::ToTuple(values.begin(), values.end());
}
%typemap(out) const singa::Shape& {
  $result = singa::python::ToTuple($1->begin(), $1->end());
}
%typemap(memberin) singa::Shape { $1 = $input; }

%typemap(in) const std::vector<uint64_t>& (std::vector<uint64_t> temp) {
  if (!singa::python::ToIntegers($input, "$symname", "$1_name", &temp)) SWIG_fail;
  $1 = &temp;
}
%typemap(in) const std::vector<double>& (std::vector<double> temp) {
  if (!singa::python::ToDoubles($input, "$symname", "$1_name", &temp)) SWIG_fail;
  $1 = &temp;
}
%typemap(in) int64_t, uint64_t, size_t, int {
  if (!singa::python::ToInteger($input, "$symname", "$1_name", &$1)) SWIG_fail;
}
%typemap(in) double {
  if (!singa::python::ToDouble($input, "$symname", "$1_name", &$1)) SWIG_fail;
}
%typemap(in) bool {
  if (!singa::python::ToBool($input, "$symname", "$1_name", &$1)) SWIG_fail;
}
%typemap(in) const singa::Activation& (singa::Activation temp) {
  if (!singa::python::ToActivation($input, "$symname", "$1_name", &temp)) SWIG_fail;
  $1 = &temp;
}
%typemap(in) const std::vector<std::string>& (std::vector<std::string> temp) {
  if (!singa::python::ToStrings($input, "$symname", "$1_name", &temp)) SWIG_fail;
  $1 = &temp;
}

// --- enumerations: any int; the function checks its range
%typemap(in) enum SWIGTYPE (int number = 0) {
  if (!singa::python::ToInteger($input, "$symname", "$1_name", &number)) SWIG_fail;
  $1 = static_cast<$1_ltype>(number);
}

// --- self: Class.method(None) would pass a null pointer
%typemap(check) SWIGTYPE *self {
  if (!$1) {
    singa::python::SetTypeError("$symname", "self", "an object", Py_None);
    SWIG_fail;
  }
}

// --- handles
%define SINGA_HANDLE(Name)
%typemap(in) const singa::Name& (void* pointer = nullptr) {
  if (!SWIG_IsOK(SWIG_ConvertPtr($input, &pointer, $descriptor(singa::Name*), 0)) || !pointer) {
    singa::python::SetTypeError("$symname", "$1_name", "a " #Name, $input);
    SWIG_fail;
  }
  $1 = static_cast<singa::Name*>(pointer);
}
%enddef
SINGA_HANDLE(Recorder)
SINGA_HANDLE(ConvHandle)
SINGA_HANDLE(ConvTransposeHandle)
SINGA_HANDLE(PoolingHandle)
SINGA_HANDLE(BatchNormHandle)
SINGA_HANDLE(RnnHandle)
SINGA_HANDLE(InterpolationHandle)

// --- tensors
%typemap(in) const singa::Tensor& (void* pointer = nullptr) {
  if ($input == Py_None) {
    $1 = const_cast<singa::Tensor*>(&singa::python::EmptyTensor());
  } else {
    if (!SWIG_IsOK(SWIG_ConvertPtr($input, &pointer, $descriptor(singa::Tensor*), 0)) || !pointer) {
      singa::python::SetTypeError("$symname", "$1_name", "a Tensor", $input);
      SWIG_fail;
    }
    $1 = static_cast<singa::Tensor*>(pointer);
  }
}
// For setting members of UpdateConditions.
%apply const singa::Tensor& { singa::Tensor *squares, singa::Tensor *loss_scale, singa::Tensor *numbers };
%typemap(typecheck, precedence=SWIG_TYPECHECK_POINTER) const singa::Tensor& {
  void* pointer = nullptr;
  $1 = $input == Py_None || SWIG_IsOK(SWIG_ConvertPtr($input, &pointer, $descriptor(singa::Tensor*), 0));
}
%typemap(out, fragment="NewTensor") singa::Tensor {
  $result = NewTensor(std::move(*(&$1)));
}
%typemap(out, fragment="NewTensor") singa::Tensor * {
  const std::unique_ptr<singa::Tensor> owned($owner ? $1 : nullptr);
  $result = NewTensorObject(*$1);
}
%typemap(in) const std::vector<singa::Tensor>& (std::vector<singa::Tensor> temp) {
  if (!singa::python::ForEach($input, "$symname", "$1_name", [&](PyObject* item) {
        void* pointer = nullptr;
        if (item == Py_None) {
          temp.emplace_back();
          return true;
        }
        if (!SWIG_IsOK(SWIG_ConvertPtr(item, &pointer, $descriptor(singa::Tensor*), 0)) || !pointer) {
          singa::python::SetTypeError("$symname", "$1_name", "a Tensor", item);
          return false;
        }
        temp.push_back(*static_cast<singa::Tensor*>(pointer));
        return true;
      }))
    SWIG_fail;
  $1 = &temp;
}
%fragment("TensorTuple", "header", fragment="NewTensor") %{
static PyObject* TensorTuple(std::vector<singa::Tensor>& values) {
  return singa::python::TupleOf(values, [](singa::Tensor& value) {
    return NewTensor(std::move(value));
  });
}
%}
%typemap(out, fragment="TensorTuple") std::vector<singa::Tensor> {
  $result = TensorTuple(*(&$1));
}
%typemap(out, fragment="TensorTuple") std::optional<std::vector<singa::Tensor>> {
  std::optional<std::vector<singa::Tensor>>& values = *(&$1);
  $result = values ? TensorTuple(*values) : (SWIG_Py_INCREF(Py_None), Py_None);
}

// --- lists of numbers, texts and structs: tuples, of copies of the structs
%typemap(out) std::vector<int> { $result = singa::python::ToTuple((&$1)->begin(), (&$1)->end()); }
%typemap(out) std::vector<int>* { $result = singa::python::ToTuple($1->begin(), $1->end()); }
%typemap(out) std::vector<std::string> {
  $result = singa::python::TupleOf(*(&$1), singa::python::ToText);
}
%typemap(out) std::vector<std::string>* {
  $result = singa::python::TupleOf(*$1, singa::python::ToText);
}
%define SINGA_TUPLE_OF(Type)
%typemap(out) std::vector<Type> {
  $result = singa::python::TupleOf(*(&$1), [](const Type& value) {
    return SWIG_NewPointerObj(new Type(value), $descriptor(Type*), SWIG_POINTER_OWN);
  });
}
%typemap(out) std::vector<Type>* {
  $result = singa::python::TupleOf(*$1, [](const Type& value) {
    return SWIG_NewPointerObj(new Type(value), $descriptor(Type*), SWIG_POINTER_OWN);
  });
}
%typemap(in) const std::vector<Type>& (std::vector<Type> temp) {
  if (!singa::python::ForEach($input, "$symname", "$1_name", [&](PyObject* item) {
        void* pointer = nullptr;
        if (!SWIG_IsOK(SWIG_ConvertPtr(item, &pointer, $descriptor(Type*), 0)) || !pointer) {
          singa::python::SetTypeError("$symname", "$1_name", "of " #Type, item);
          return false;
        }
        temp.push_back(*static_cast<Type*>(pointer));
        return true;
      }))
    SWIG_fail;
  $1 = &temp;
}
%enddef

// Every C++ exception becomes the Python exception that its type stands for (singa/core/error.h).

%exception {
  try {
    $action
  } catch (...) {
    singa::python::SetErrorFromException("$symname");
    SWIG_fail;
  }
}

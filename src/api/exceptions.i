// C++ exceptions become Python exceptions; singa/core/error.h has the list.

%exception {
  try {
    $action
  } catch (...) {
    singa::python::SetErrorFromException("$symname");
    SWIG_fail;
  }
}

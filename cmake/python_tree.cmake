# Fills <build>/python/singa with links to the files of python/singa (SOURCE), the generated files
# and the library. Removes links whose target no longer exists.

file(MAKE_DIRECTORY "${TREE}/lib")

file(GLOB old LIST_DIRECTORIES true "${TREE}/*")
foreach(path IN LISTS old)
  if(IS_SYMLINK "${path}" AND NOT EXISTS "${path}")
    file(REMOVE "${path}")
  endif()
endforeach()

function(link target name)
  if(IS_SYMLINK "${TREE}/${name}")
    file(READ_SYMLINK "${TREE}/${name}" now)
    if(now STREQUAL target)
      return()
    endif()
  endif()
  file(CREATE_LINK "${target}" "${TREE}/${name}" SYMBOLIC)
endfunction()

file(GLOB entries LIST_DIRECTORIES true RELATIVE "${SOURCE}" "${SOURCE}/*")
list(REMOVE_ITEM entries __pycache__)
foreach(name IN LISTS entries)
  link("${SOURCE}/${name}" "${name}")
endforeach()
link("${GENERATED}/swig/singa_wrap.py" singa_wrap.py)
link("${GENERATED}/_version.py" _version.py)
cmake_path(GET LIBRARY FILENAME name)
link("${LIBRARY}" "lib/${name}")
link("${name}" "lib/${LINK_NAME}")

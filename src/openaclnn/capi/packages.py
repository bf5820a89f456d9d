"""The files by which CMake and pkg-config find the C side."""

from __future__ import annotations

from pathlib import Path

__all__ = ["LINKED", "package_files"]

LINKED = ("ascendcl", "nnopbase", "opapi_math", "opapi_nn")
"""What the interface's build guide tells programs to link."""

_PKG_CONFIG = """\
prefix={root}
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: openaclnn
Description: The Ascend aclnn operator interface on any machine
Version: {version}
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} {links}
"""

_CMAKE = """\
# find_package(openaclnn CONFIG) gives the target openaclnn::openaclnn.
set(openaclnn_VERSION "{version}")
get_filename_component(openaclnn_ROOT_FOLDER "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
set(openaclnn_INCLUDE_DIRS "${{openaclnn_ROOT_FOLDER}}/include")
set(openaclnn_LIBRARY_DIRS "${{openaclnn_ROOT_FOLDER}}/lib")
set(openaclnn_LIBRARIES)
if(NOT TARGET openaclnn::openaclnn)
  add_library(openaclnn::openaclnn INTERFACE IMPORTED)
  foreach(openaclnn_name {names})
    add_library(openaclnn::${{openaclnn_name}} SHARED IMPORTED)
    set_target_properties(openaclnn::${{openaclnn_name}} PROPERTIES
      IMPORTED_LOCATION "${{openaclnn_LIBRARY_DIRS}}/lib${{openaclnn_name}}.so"
      IMPORTED_SONAME "lib${{openaclnn_name}}.so"
      INTERFACE_INCLUDE_DIRECTORIES "${{openaclnn_INCLUDE_DIRS}}")
    list(APPEND openaclnn_LIBRARIES openaclnn::${{openaclnn_name}})
  endforeach()
  set_property(TARGET openaclnn::openaclnn PROPERTY
    INTERFACE_LINK_LIBRARIES "${{openaclnn_LIBRARIES}}")
endif()
"""

_CMAKE_VERSION = """\
set(PACKAGE_VERSION "{version}")
if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION STREQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
"""


def package_files(root: Path, version: str) -> dict[str, str]:
    """The files by their path below the installation, which is going to be at `root`."""
    links = " ".join(f"-l{name}" for name in LINKED)
    values = {"root": root, "version": version, "links": links, "names": " ".join(LINKED)}
    return {
        "lib/pkgconfig/openaclnn.pc": _PKG_CONFIG.format(**values),
        "lib/cmake/openaclnn/openaclnn-config.cmake": _CMAKE.format(**values),
        "lib/cmake/openaclnn/openaclnn-config-version.cmake": _CMAKE_VERSION.format(**values),
    }

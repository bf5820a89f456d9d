"""The files by which CMake, pkg-config, shells and leak checkers find their way with the C side."""

from __future__ import annotations

import platform
import shlex
from pathlib import Path

__all__ = ["INCLUDED", "LINKED", "LINKS", "package_files"]

LINKED = ("ascendcl", "nnopbase", "opapi_math", "opapi_nn")
"""What the interface's build guide tells programs to link."""

INCLUDED = ("", "aclnn", "aclnnop")
"""Below `include/`: programs name headers with and without their folder."""

LINKS = {
    "lib64": "lib",
    "lib/stub": ".",
    **{
        f"{part}/{name}": f"../{name}"
        for part in (f"{platform.machine()}-linux", "runtime")
        for name in ("include", "lib64")
    },
    "opp/lib64": "../lib64",
    # A build file adds these to a folder that it takes for the one above the toolkit's.
    **dict.fromkeys(("latest", "cann", "ascend-toolkit"), "."),
}
"""Other names that the toolkit has for the same folders, below the installation, and where they lead."""

_PKG_CONFIG = """\
prefix={root}
includedir=${{prefix}}/include
libdir=${{prefix}}/lib

Name: openaclnn
Description: The Ascend aclnn operator interface on any machine
Version: {version}
Cflags: {flags}
Libs: -L${{libdir}} -Wl,-rpath,${{libdir}} {links}
"""

_CMAKE = """\
# find_package(openaclnn CONFIG) gives the target openaclnn::openaclnn.
set(openaclnn_VERSION "{version}")
get_filename_component(openaclnn_ROOT_FOLDER "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
set(openaclnn_INCLUDE_DIRS)
foreach(openaclnn_name {folders})
  list(APPEND openaclnn_INCLUDE_DIRS "${{openaclnn_ROOT_FOLDER}}/${{openaclnn_name}}")
endforeach()
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


_SET_ENV = """\
# . set_env.sh: for builds that look for the toolkit, and programs linked without a run path. For POSIX shells.
export ASCEND_HOME_PATH={quoted}
export ASCEND_TOOLKIT_HOME="$ASCEND_HOME_PATH"
export ASCEND_INSTALL_PATH="$ASCEND_HOME_PATH"
export ASCEND_CUSTOM_PATH="$ASCEND_HOME_PATH"
export ASCEND_OPP_PATH="$ASCEND_HOME_PATH/opp"
# First in the search path, and there once however often this is read.
openaclnn_paths=":${{LD_LIBRARY_PATH-}}:"
while [ "$openaclnn_paths" != "${{openaclnn_paths#*":$ASCEND_HOME_PATH/lib64:"}}" ]; do
  openaclnn_paths="${{openaclnn_paths%%":$ASCEND_HOME_PATH/lib64:"*}}:${{openaclnn_paths#*":$ASCEND_HOME_PATH/lib64:"}}"
done
openaclnn_paths="${{openaclnn_paths#:}}"
openaclnn_paths="${{openaclnn_paths%:}}"
export LD_LIBRARY_PATH="$ASCEND_HOME_PATH/lib64${{openaclnn_paths:+:$openaclnn_paths}}"
unset openaclnn_paths
"""

_SETENV_BASH = """\
# source bin/setenv.bash: the toolkit's other name for set_env.sh.
. {quoted}/set_env.sh
"""

_SUPPRESSIONS = """\
# LSAN_OPTIONS=suppressions=THIS_FILE: what the interpreter in the libraries keeps until the process ends.
# Leaks of the program itself are still told, arrays from aclGetViewShape and its relatives included.
leak:{python}
leak:.cpython-
leak:libllvmlite
leak:libcrypto
"""


def package_files(root: Path, version: str, python: str) -> dict[str, str]:
    """The files by their path below the installation, which is going to be at `root`.

    `python` is the name of the library with the interpreter in it.
    """
    links = " ".join(f"-l{name}" for name in LINKED)
    flags = " ".join(f"-I${{includedir}}/{folder}".rstrip("/") for folder in INCLUDED)
    folders = " ".join(f"include/{folder}".rstrip("/") for folder in INCLUDED)
    values = {
        "root": root, "version": version, "links": links, "names": " ".join(LINKED),
        "flags": flags, "folders": folders, "python": python, "quoted": shlex.quote(str(root)),
    }  # fmt: skip
    return {
        "lib/pkgconfig/openaclnn.pc": _PKG_CONFIG.format(**values),
        "lib/cmake/openaclnn/openaclnn-config.cmake": _CMAKE.format(**values),
        "lib/cmake/openaclnn/openaclnn-config-version.cmake": _CMAKE_VERSION.format(**values),
        "share/openaclnn/lsan.supp": _SUPPRESSIONS.format(**values),
        "set_env.sh": _SET_ENV.format(**values),
        "bin/setenv.bash": _SETENV_BASH.format(**values),
    }

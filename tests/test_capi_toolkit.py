"""The prefix laid out like the toolkit: what vendors' build files look for is there, and leads to us."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import openaclnn
from openaclnn.capi.build import LINKS, package_files
from openaclnn.testing.programs import example_of
from test_capi_tools import installed, run_program

SCRIPTS = ("set_env.sh", "bin/setenv.bash")
SHELLS = [name for name in ("bash", "dash", "zsh", "mksh", "busybox") if shutil.which(name)]

PROJECT_OF_A_GUIDE = """
cmake_minimum_required(VERSION 3.14)
project(ACLNN_EXAMPLE CXX)
add_compile_options(-std=c++11 -Wall -Werror)
if(NOT "$ENV{VARIABLE}" STREQUAL "")
  set(ASCEND_PATH $ENV{VARIABLE}BELOW)
else()
  set(ASCEND_PATH "/usr/local/Ascend/not/there")
endif()
include_directories(
  ${ASCEND_PATH}/INCLUDE
  ${ASCEND_PATH}/INCLUDE/aclnn)
add_executable(opapi_test example.cpp)
target_link_libraries(opapi_test PRIVATE
  ${ASCEND_PATH}/lib64/libascendcl.so
  ${ASCEND_PATH}/lib64/libnnopbase.so
  ${ASCEND_PATH}/lib64/libopapi_math.so
  ${ASCEND_PATH}/lib64/libopapi_nn.so)
"""

WITH_ALL = r"""
#include "aclnnop/aclnn_ops_nn.h"
#include <stdio.h>

int main(void)
{
    ADDRESSES
    for (unsigned i = 0; i < sizeof there / sizeof *there; ++i)
        if (!there[i])
            return 1;
    puts("all");
    return 0;
}
"""


def in_shell(script: str, shell: str = "bash", **environment: str) -> str:
    """What a script prints in a shell that ends at the first fault and at any variable that is not set."""
    command = [*([shell, "sh"] if shell == "busybox" else [shell]), "-euc", script]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/",
        env={"PATH": os.environ["PATH"], "HOME": "/"} | environment,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("script", SCRIPTS)
def test_shells_read_the_environment(script: str, shell: str) -> None:
    root = installed().root
    told = in_shell(f". {root}/{script}; env", shell)
    variables = dict(line.split("=", 1) for line in told.splitlines())
    for name in ("HOME_PATH", "INSTALL_PATH", "CUSTOM_PATH"):
        assert variables[f"ASCEND_{name}"] == str(root)
    assert variables["ASCEND_TOOLKIT_HOME"] == str(root)
    assert variables["ASCEND_OPP_PATH"] == f"{root}/opp"
    assert variables["LD_LIBRARY_PATH"] == f"{root}/lib64"
    assert not any(name.startswith("openaclnn") for name in variables)


@pytest.mark.parametrize("shell", SHELLS)
def test_reading_it_again_doubles_nothing(shell: str) -> None:
    """Ours comes first again, and the rest stays as it was: other folders, and those whose names only begin like ours."""
    root = installed().root
    ours = f"{root}/lib64"
    show = 'echo "$LD_LIBRARY_PATH"'
    for before, after in {
        "": ours,
        "/a": f"{ours}:/a",
        ours: ours,
        f"/a:{ours}": f"{ours}:/a",
        f"/a:{ours}:{ours}:/b:{ours}": f"{ours}:/a:/b",
        f"{ours}/stub:/x{ours}": f"{ours}:{ours}/stub:/x{ours}",
    }.items():
        script = f". {root}/bin/setenv.bash; . {root}/bin/setenv.bash; {show}"
        assert in_shell(script, shell, LD_LIBRARY_PATH=before) == f"{after}\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_folder_of_any_name_can_be_read(tmp_path: Path, shell: str) -> None:
    root = tmp_path / "it's [a] $folder*"
    for name, text in package_files(root, "1", "libpython").items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    script = '. "$SCRIPT"; . "$SCRIPT"; echo "$ASCEND_HOME_PATH"; echo "$LD_LIBRARY_PATH"'
    told = in_shell(script, shell, SCRIPT=str(root / "bin" / "setenv.bash"), LD_LIBRARY_PATH="/a")
    assert told == f"{root}\n{root}/lib64:/a\n"


def test_every_name_of_a_folder_leads_there() -> None:
    toolkit = installed()
    for name in LINKS:
        assert (toolkit.root / name).resolve() in (toolkit.root, toolkit.lib, toolkit.include), name
    for name in (f"{platform.machine()}-linux/include", "runtime/include", "latest/include"):
        assert (toolkit.root / name / "acl" / "acl.h").is_file()
    for name in ("lib64/stub", "opp/lib64", "ascend-toolkit/latest/lib64", "cann/lib64"):
        assert (toolkit.root / name / "libopapi_nn.so").is_file()


@pytest.mark.parametrize(
    ("variable", "below", "include"),
    [
        ("ASCEND_HOME_PATH", "", f"{platform.machine()}-linux/include"),
        ("ASCEND_CUSTOM_PATH", "/ascend-toolkit/latest", "include"),
    ],
)
def test_a_project_of_the_guides_builds_and_runs(
    tmp_path: Path, variable: str, below: str, include: str
) -> None:
    """After `source bin/setenv.bash` and nothing else, with a program that `openaclnn example` writes."""
    if shutil.which("cmake") is None:
        pytest.skip("no CMake")
    text = PROJECT_OF_A_GUIDE.replace("VARIABLE", variable).replace("INCLUDE", include)
    (tmp_path / "CMakeLists.txt").write_text(text.replace("BELOW", below))
    program = example_of(openaclnn.find_operator("elu_backward"), "c++")
    (tmp_path / "example.cpp").write_text(program)
    told = in_shell(
        f"source {installed().root}/bin/setenv.bash; cd {tmp_path}; mkdir build; cd build; "
        "cmake .. >log; make >>log; ./opapi_test"
    )
    assert re.search(r"2 -0 0 1\s*$", told), told


@pytest.mark.parametrize("compiler", ["cc -x c -std=c11", "c++ -x c++ -std=c++17"])
def test_one_header_has_every_operator(tmp_path: Path, compiler: str) -> None:
    names = [
        f"{each.name}{phase}" for each in openaclnn.registry() for phase in ("GetWorkspaceSize", "")
    ]
    addresses = ", ".join(f"(void (*)(void)){name}" for name in names)
    source = WITH_ALL.replace("ADDRESSES", f"void (*there[])(void) = {{{addresses}}};")
    (tmp_path / "all.c").write_text(source)
    toolkit = installed()
    command = [*compiler.split(), "-Wall", "-Wextra", "-Werror", "all.c", "-x", "none"]
    flags = [f"-I{toolkit.include}", *toolkit.libs]
    done = subprocess.run(
        [*command, *flags, "-o", "all"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert run_program(tmp_path / "all") == "all\n"

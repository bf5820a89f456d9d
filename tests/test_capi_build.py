"""How programs find and use the libraries: by config tool, CMake, pkg-config, dlopen; what it costs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import openaclnn
from openaclnn.capi import build, config
from openaclnn.capi.build import LIBRARIES, installation, writable_folder
from test_capi_tools import CACHE, ROOT, compile_program, installed, run_program

ELU = ROOT / "examples" / "c" / "elu_backward.c"
ANSWER = "from the input: 0.551819 2.3364 4.5 8\nfrom the output: 0.551819 2.3364 4.5 8\n"


def ask(*arguments, **environment):
    source = os.path.dirname(os.path.dirname(openaclnn.__file__))
    return subprocess.run(
        [sys.executable, "-m", "openaclnn.capi.config", *arguments],
        capture_output=True, text=True, check=False,
        env=dict(os.environ, PYTHONPATH=source, OPENACLNN_CACHE_DIR=str(CACHE), **environment),
    )  # fmt: skip


def test_the_config_tool_answers(monkeypatch, capsys):
    installation = installed()
    done = ask("--cflags", "--libs")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [*installation.cflags, *installation.libs]
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(CACHE))
    for option, answer in {
        "--prefix": installation.root, "--includedir": installation.include, "--libdir": installation.lib, "--version": openaclnn.__version__,
    }.items():  # fmt: skip
        assert config.main([option]) == 0
        assert capsys.readouterr().out.strip() == str(answer)
    assert config.main([]) == 2
    assert (installation.include / "acl" / "acl.h").is_file()
    for operator in openaclnn.registry():
        assert (installation.include / operator.header).is_file()


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cffi")
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert config.main(["--libs"]) == 1
    assert "CC names 'no-such-compiler'" in capsys.readouterr().err
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert config.main(["--libs"]) == 1
    told = "openaclnn-config: the C side needs a C compiler, and there is none"
    assert capsys.readouterr().err.startswith(told)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "cffi", None)
    with pytest.raises(build.BuildError, match="python -m pip install cffi"):
        installation(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(build.BuildError, match=r"Python\.h is not there"):
        installation(tmp_path)


def test_a_static_python_is_linked_whole(tmp_path, monkeypatch):
    variables = {"LDVERSION": "9.9", "LIBDIR": str(tmp_path), "LIBPL": str(tmp_path), "LIBS": "-lm"}
    monkeypatch.setattr(build.sysconfig, "get_config_var", variables.get)
    with pytest.raises(build.BuildError, match=r"libpython9\.9\.so"):
        build._libpython()
    (tmp_path / "libpython9.9.a").touch()
    link, name = build._libpython()
    assert name == ""
    assert link[:3] == (
        "-Wl,--whole-archive", f"{tmp_path}/libpython9.9.a", "-Wl,--no-whole-archive"
    )  # fmt: skip


def test_a_second_build_is_the_first_one(tmp_path, monkeypatch):
    pytest.importorskip("cffi")
    assert installation(CACHE) == installed()
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(tmp_path))
    assert writable_folder() == tmp_path
    monkeypatch.delenv("OPENACLNN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert writable_folder() == tmp_path / "openaclnn"
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert writable_folder().name == f"openaclnn-{os.getuid()}"


def test_a_failing_compiler_is_quoted(tmp_path, monkeypatch, capsys):
    pytest.importorskip("cffi")
    monkeypatch.setenv("CC", "false")
    monkeypatch.setenv("OPENACLNN_CACHE_DIR", str(tmp_path))
    assert config.main(["--libs"]) == 1
    assert "false -shared" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_is_one_sentence(monkeypatch, capsys):
    pytest.importorskip("cffi")
    for folder in ("/dev/null", "/tmp/" + 300 * "x"):
        monkeypatch.setenv("OPENACLNN_CACHE_DIR", folder)
        assert config.main(["--libs"]) == 1
        told = capsys.readouterr().err
        assert told.startswith(f"openaclnn-config: cannot write to {folder}: ")
        assert told.endswith("; set OPENACLNN_CACHE_DIR\n")


def test_an_answer_that_nobody_gets_and_an_interrupt_are_told_by_the_status(monkeypatch):
    installed()
    command = [sys.executable, "-m", "openaclnn.capi.config", "--cflags"]
    known = dict(os.environ, PYTHONPATH=str(ROOT / "src"), OPENACLNN_CACHE_DIR=str(CACHE))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=known, check=False
        )
    told = "openaclnn-config: nobody gets the answer: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, told)

    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(config, "installation", interrupted)
    assert config.main(["--cflags"]) == 130


def test_each_library_has_its_own_name():
    for name in LIBRARIES:
        path = installed().library(name)
        dump = subprocess.run(
            ["readelf", "-d", str(path)], capture_output=True, text=True, check=True
        )
        assert f"soname: [lib{name}.so]" in dump.stdout


OPENER = """
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library == NULL) { printf("%s\\n", dlerror()); return 1; }
        int32_t (*init)(const char *), (*set)(int32_t), (*allocate)(void **, size_t, int);
        *(void **)&init = dlsym(library, "aclInit");
        *(void **)&set = dlsym(library, "aclrtSetDevice");
        *(void **)&allocate = dlsym(library, "aclrtMalloc");
        if (!init || !set || !allocate) return 2;
        void *data = NULL;
        int32_t codes[3] = {init(NULL), set(0), allocate(&data, 64, 0)};
        printf("%d %d %d %d\\n", (int)codes[0], (int)codes[1], (int)codes[2], data != NULL);
    }
    return 0;
}
"""


def test_libraries_open_by_name(tmp_path):
    source = tmp_path / "open.c"
    source.write_text(OPENER)
    command = [
        "cc",
        str(source),
        f"-Wl,-rpath,{installed().lib}",
        "-ldl",
        "-o",
        str(tmp_path / "open"),
    ]
    subprocess.run(command, check=True)
    output = run_program(tmp_path / "open", *(f"lib{name}.so" for name in LIBRARIES))
    # The second library is the same runtime: aclInit says that it was called before.
    assert output.splitlines() == ["0 0 0 1"] + ["100002 0 0 1"] * (len(LIBRARIES) - 1)


def test_cmake_finds_it(tmp_path):
    if shutil.which("cmake") is None:
        pytest.skip("no CMake")
    installation = installed()
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(example C)\n"
        f"find_package(openaclnn {openaclnn.__version__} CONFIG REQUIRED)\n"
        f"add_executable(example {ELU})\ntarget_link_libraries(example openaclnn::openaclnn)\n"
    )
    folder = str(tmp_path / "build")
    prefix = f"-DCMAKE_PREFIX_PATH={installation.root}"
    for command in (
        ["cmake", "-S", str(tmp_path), "-B", folder, prefix],
        ["cmake", "--build", folder],
    ):
        subprocess.run(command, check=True, capture_output=True)
    assert run_program(tmp_path / "build" / "example") == ANSWER


BARE = """
#include "acl/acl.h"
#include "acl_meta.h"
#include "aclnn_elu_backward.h"
int main(void) { return aclInit(NULL) + (aclnnEluBackward(NULL, 0, NULL, NULL) != 161001) + aclFinalize(); }
"""


def test_headers_by_their_bare_names(tmp_path):
    (tmp_path / "bare.c").write_text(BARE)
    run_program(compile_program(tmp_path / "bare.c", tmp_path / "bare"))


def test_the_environment_of_a_shell(tmp_path):
    """Linked as for the toolkit, without a run path."""
    (tmp_path / "bare.c").write_text(BARE)
    script = (
        f". {installed().root}/set_env.sh && cd {tmp_path} && cc bare.c -I$ASCEND_HOME_PATH/include "
        "-I$ASCEND_HOME_PATH/include/aclnn -I$ASCEND_HOME_PATH/include/aclnnop "
        "-L$ASCEND_TOOLKIT_HOME/lib64 -lascendcl -lnnopbase -lopapi -o bare && ./bare"
    )
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_pkg_config_finds_it(tmp_path):
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config")
    installation = installed()
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "openaclnn"], capture_output=True, text=True, check=True,
        env=dict(os.environ, PKG_CONFIG_PATH=str(installation.lib / "pkgconfig")),
    ).stdout.split()  # fmt: skip
    subprocess.run(["cc", str(ELU), *flags, "-o", str(tmp_path / "program")], check=True)
    assert run_program(tmp_path / "program") == ANSWER


def test_the_package_needs_nothing_of_the_sources(tmp_path):
    """In an archive elsewhere: the library finds that one. (`test_new_operator.py` builds for one in a folder.)"""
    pytest.importorskip("cffi")
    folder = tmp_path / "site"
    shutil.copytree(os.path.dirname(openaclnn.__file__), folder / "openaclnn")
    package = Path(shutil.make_archive(str(folder), "zip", folder))
    shutil.rmtree(folder)
    code = (
        f"import sys; sys.path.insert(0, {str(package)!r})\n"
        "from openaclnn.capi.config import main; main(['--cflags', '--libs'])"
    )
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    flags = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=environment | {"OPENACLNN_CACHE_DIR": str(tmp_path / "cache")},
    ).stdout.split()  # fmt: skip
    subprocess.run(["cc", str(ELU), *flags, "-o", str(tmp_path / "program")], check=True)
    assert run_program(tmp_path / "program") == ANSWER
    package.unlink()
    done = subprocess.run(
        [tmp_path / "program"], capture_output=True, text=True, check=False, env={}
    )
    code = "import openaclnn"  # an editable installation is found from anywhere
    elsewhere = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, check=False)
    assert done.returncode == (1 if elsewhere.returncode else 0)
    if elsewhere.returncode:
        assert "aclInit(NULL) gives 500000" in done.stderr


LEAK = """
#include "aclnnop/aclnn_elu_backward.h"
#include "support.h"
#include <unistd.h>

static long resident(void) {
    long size = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &size, &pages) != 2) exit(3);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

int main(int count, char **arguments) {
    const int64_t shape[2] = {2, 2};
    const float values[4] = {-2, -1, 0, 1};
    float oneValue = 1;
    long rounds = count > 1 ? atol(arguments[1]) : 1000, before = 0;
    aclrtStream stream = start();
    for (long i = 0; i < rounds + rounds / 2; i++) {
        if (i == rounds / 2) before = resident();
        aclTensor *gradOutput = tensor(values, sizeof values, ACL_FLOAT, shape, 2);
        aclTensor *self = tensor(values, sizeof values, ACL_FLOAT, shape, 2);
        aclTensor *gradInput = tensor(values, sizeof values, ACL_FLOAT, shape, 2);
        aclScalar *one = aclCreateScalar(&oneValue, ACL_FLOAT);
        uint64_t size = 0;
        aclOpExecutor *executor = NULL;
        CHECK(aclnnEluBackwardGetWorkspaceSize(
            gradOutput, one, one, one, true, self, gradInput, &size, &executor));
        CHECK(aclnnEluBackward(NULL, 0, executor, stream));
        CHECK(aclrtSynchronizeStream(stream));
        if (aclnnEluBackward(NULL, 0, executor, stream) == 0) return 4;
        if (i % 100 == 0) (void)aclGetRecentErrMsg();
        CHECK(aclDestroyScalar(one));
        release(gradOutput);
        release(self);
        release(gradInput);
    }
    printf("%ld\\n", resident() - before);
    finish(stream);
    return 0;
}
"""


def test_memory_stays_flat(tmp_path):
    """Also where nobody fetches the messages of failed calls. OPENACLNN_LEAK_ROUNDS asks for more."""
    rounds = int(os.environ.get("OPENACLNN_LEAK_ROUNDS", "4000"))
    (tmp_path / "leak.c").write_text(LEAK)
    examples = f"-I{ELU.parent}"
    program = compile_program(tmp_path / "leak.c", tmp_path / "leak", examples, "-std=gnu11")
    grown = int(run_program(program, str(rounds)))
    assert grown < 512, f"{grown} KiB more after {rounds} round trips"


def sanitized(source, target, sanitizer):
    """A program with a sanitizer in it; the test is skipped where the compiler has none."""
    flags = [f"-fsanitize={sanitizer}", "-g"]
    probe = target.with_name("probe.c")
    probe.write_text("int main(void) { return 0; }\n")
    built = subprocess.run(["cc", *flags, str(probe), "-o", str(target)], check=False)
    if built.returncode or subprocess.run([target], check=False).returncode:
        pytest.skip(f"no {sanitizer} sanitizer here")
    return compile_program(source, target, *flags)


def suppressions():
    path = installed().root / "share" / "openaclnn" / "lsan.supp"
    return {"LSAN_OPTIONS": f"suppressions={path}:print_suppressions=0"}


def test_an_example_under_sanitizers(tmp_path):
    source = ELU.with_name("strided_views.c")
    program = sanitized(source, tmp_path / "program", "address,undefined")
    output = run_program(program, **suppressions())
    assert output.endswith("strides: 6 2 of 2\n")


DELETED = """
#include "aclnn/acl_meta.h"
#include <iostream>
int main() {
    const int64_t shape[1] = {4};
    int64_t *found;
    uint64_t count;
    aclTensor *tensor = aclCreateTensor(shape, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape, 1, nullptr);
    aclGetViewShape(tensor, &found, &count);
    std::cout << found[0] << std::endl;
    delete[] found;
    return aclDestroyTensor(tensor);
}
"""


def test_cpp_deletes_under_sanitizers_what_c_frees(tmp_path):
    (tmp_path / "deleted.cpp").write_text(DELETED)
    program = sanitized(tmp_path / "deleted.cpp", tmp_path / "program", "address,undefined")
    assert run_program(program, **suppressions()) == "4\n"


# What is leaked is leaked by a thread that has ended: no register and no stack has its address any more, on any architecture.
LEAKY = """
#include "aclnn/acl_meta.h"
#include "acl/acl.h"
#include <pthread.h>
static void *leak(void *tensor) {
    int64_t *shape;
    uint64_t count;
    aclGetViewShape(tensor, &shape, &count);
    if (malloc(123) == NULL || count != 1) exit(3);
    return NULL;
}
int main(void) {
    const int64_t shape[1] = {4};
    aclTensor *tensor = aclCreateTensor(shape, 1, ACL_FLOAT, NULL, 0, ACL_FORMAT_ND, shape, 1, NULL);
    pthread_t thread;
    if (pthread_create(&thread, NULL, leak, tensor) || pthread_join(thread, NULL)) exit(4);
    return aclDestroyTensor(tensor);
}
"""


def test_leaks_of_the_program_are_still_told(tmp_path):
    (tmp_path / "leaky.c").write_text(LEAKY)
    program = sanitized(tmp_path / "leaky.c", tmp_path / "leaky", "address")
    done = subprocess.run(
        [program], env=suppressions(), cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    sizes = sorted(line.split()[3] for line in done.stderr.splitlines() if "leak of" in line)
    assert sizes == ["123", "8"], done.stderr


def test_it_starts_in_a_process_that_has_loaded_pytorch():
    """PyTorch gives a type of the interpreter the version tag that cffi locks its start with."""
    program = (
        "import torch, ctypes\n"
        f"library = ctypes.CDLL({str(installed().library())!r})\n"
        "print(library.aclInit(None), library.aclFinalize())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["0", "0"]

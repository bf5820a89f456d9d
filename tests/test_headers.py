"""The headers: one per operator, one with all of them and seven more, made from the declarations and clean in C and C++."""

import re
import subprocess
from pathlib import Path

import pytest

import openaclnn
from openaclnn import acl, aclnn
from openaclnn.capi import glue
from openaclnn.capi.prototypes import all_prototypes, header_files, parse
from openaclnn.runtime.enums import ENUMERATORS

COMPILERS = {"c99": "cc", "c11": "cc", "c++11": "c++", "c++20": "c++"}


@pytest.fixture(scope="module")
def include(tmp_path_factory):
    folder = tmp_path_factory.mktemp("include")
    for name, text in header_files().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def check(source, standard, include):
    language = "c++" if "+" in standard else "c"
    command = [COMPILERS[standard], f"-std={standard}", "-x", language, "-fsyntax-only", "-Wall"]
    done = subprocess.run(
        [*command, "-Wextra", "-Wpedantic", "-Werror", f"-I{include}", "-"],
        input=source, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("standard", COMPILERS)
def test_each_header_compiles_alone_and_twice(include, standard):
    """Those of operators, which differ in their prototypes alone, by one standard each, in turns."""
    names = header_files()
    turn = [name for name in names if "aclnnop/aclnn_" in name][
        [*COMPILERS].index(standard) :: len(COMPILERS)
    ]
    for name in (name for name in names if name in turn or "aclnnop/aclnn_" not in name):
        check(f'#include "{name}"\n#include "{name}"\n', standard, include)


@pytest.mark.parametrize("standard", ["c++11", "c++20"])
def test_every_enumerator_has_its_value(include, standard):
    lines = [f'#include "{name}"' for name in header_files()]
    lines += [f'static_assert({name} == {value}, "{name}");' for name, value in ENUMERATORS.items()]
    lines += sizes("static_assert")
    check("\n".join(lines), standard, include)


def sizes(word):
    kinds = ["aclError", "aclnnStatus", *sorted(glue.ENUM_TYPES)]
    return [f'{word}(sizeof({kind}) == 4, "{kind}");' for kind in kinds]


def test_every_enumerator_has_its_value_in_c(include, tmp_path):
    """Where constants are no constant expressions; the program names the first that differs."""
    lines = ["#include <stdio.h>", *(f'#include "{name}"' for name in header_files())]
    lines += [*sizes("_Static_assert"), "int main(void) {"]
    for name, value in ENUMERATORS.items():
        lines.append(f'    if ((long)({name}) != {value}) {{ puts("{name}"); return 1; }}')
    check("\n".join([*lines, "return 0; }"]), "c11", include)
    (tmp_path / "values.c").write_text("\n".join([*lines, "return 0; }"]))
    command = ["cc", str(tmp_path / "values.c"), f"-I{include}", "-o", str(tmp_path / "values")]
    subprocess.run(command, check=True)
    done = subprocess.run([tmp_path / "values"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


PROGRAMS = {
    "status as a name": """
        #include "acl/acl.h"
        namespace app { const int ACL_SUCCESS = 1; int got() { return ::ACL_SUCCESS + ::ACL_ERROR_RT_FAILURE; } }
        int main() { const int *address = &ACL_ERROR_INVALID_PARAM; return *address + app::got(); }""",
    "a status of its own": """
        #include "aclnnop/aclnn_elu_backward.h"
        constexpr int ACLNN_SUCCESS = 0;
        enum { ACLNN_ERR_PARAM_INVALID = 161002 };
        int main() { return ACLNN_SUCCESS + ACLNN_ERR_PARAM_INVALID; }""",
    "OK": """
        #include "aclnn/acl_meta.h"
        int main() { aclnnStatus status = OK; return status == OK ? 0 : 1; }""",
    "an OK of its own": """
        #define OK 0
        #include "aclnn/acl_meta.h"
        int main() { return OK; }""",
    "the runtime's base": """
        #include "acl/acl_base_rt.h"
        int main() { aclrtStream stream = nullptr; aclDataType type = ACL_BF16; return stream ? type : ACL_SUCCESS; }""",
    "codes that nothing here returns": """
        #include "acl/acl.h"
        int main(int count, char **) {
            switch (count) {
                case ACL_ERROR_OP_UNSUPPORTED_DYNAMIC: return 1;
                case ACL_ERROR_INVALID_MODEL_ID: case ACL_ERROR_RT_TS_ERROR: return 2;
                default: return ACL_RT_SUCCESS;
            }
        }""",
    "a configured allocation": """
        #include "acl/acl_rt.h"
        int main() {
            aclrtMallocAttribute attributes[2];
            attributes[0].attr = ACL_RT_MEM_ATTR_MODULE_ID;
            attributes[0].value.moduleId = 33;
            attributes[1].attr = ACL_RT_MEM_ATTR_DEVICE_ID;
            attributes[1].value.deviceId = 0;
            aclrtMallocConfig config = {attributes, 2};
            void *data = nullptr;
            return aclrtMallocWithCfg(&data, 64, ACL_MEM_MALLOC_HUGE_FIRST, &config);
        }""",
    "the C library through acl.h": """
        #include "acl/acl.h"
        int main() { std::size_t size = 8; void *data = std::malloc(size); std::free(data); std::exit(0); }""",
}


@pytest.mark.parametrize("standard", ["c++11", "c++20"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_programs_rely_on(include, name, standard):
    check(PROGRAMS[name], standard, include)


def declarations(text):
    """The functions of a header, on one line each."""
    functions = re.findall(r"ACL_FUNC_VISIBILITY ([^#;]*?\));", re.sub(r"\s+", " ", text))
    return [re.sub(r"\( ", "(", function) for function in functions]


@pytest.mark.parametrize("operator", openaclnn.registry(), ids=lambda o: o.name)
def test_an_operator_header_has_exactly_its_prototypes(operator):
    headers = header_files()
    same_header = [o for o in openaclnn.registry() if o.header == operator.header]
    expected = [prototype for o in same_header for prototype in o.prototypes()]
    assert declarations(headers[operator.header]) == expected


def test_every_function_of_the_python_interface_is_there():
    python = {name for name in (*acl.__all__, *aclnn.__all__) if name not in ENUMERATORS}
    functions = {name for name in python if not isinstance(getattr(acl, name, None), type)}
    assert {prototype.name for prototype in all_prototypes()} == functions
    declared = [name for text in header_files().values() for name in declarations(text)]
    assert sorted(declared) == sorted(map(str, all_prototypes()))


def test_a_prototype_survives_reading():
    for prototype in all_prototypes():
        assert parse(str(prototype), prototype.phase) == prototype
    with pytest.raises(ValueError, match="not a prototype"):
        parse("no function")


def test_no_operator_is_named_in_the_package():
    names = {o.name.removeprefix("aclnn").lower() for o in openaclnn.registry()}
    names |= {o.python_name for o in openaclnn.registry()}
    for path in Path(glue.__file__).parent.iterdir():
        if path.suffix in (".py", ".c"):
            text = path.read_text().lower()
            candidates = [name for name in names if name in text]
            assert not [
                name
                for name in candidates
                if re.search(rf"((?<![a-z])|aclnn){name}(?![a-z])", text)
            ], path

"""The headers: one per operator and five more, made from the declarations and clean in C and C++."""

import re
import subprocess
from pathlib import Path

import pytest

import openaclnn
from openaclnn import acl, aclnn
from openaclnn.capi import glue
from openaclnn.capi.headers import header_files
from openaclnn.capi.prototypes import all_prototypes, parse
from openaclnn.runtime.enums import ENUMERATORS

COMPILERS = {"c99": "cc", "c11": "cc", "c++17": "c++"}


@pytest.fixture(scope="module")
def include(tmp_path_factory):
    folder = tmp_path_factory.mktemp("include")
    for name, text in header_files().items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
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
    for name in header_files():
        check(f'#include "{name}"\n#include "{name}"\n', standard, include)


@pytest.mark.parametrize("standard", ["c11", "c++17"])
def test_every_enumerator_has_its_value(include, standard):
    word = "static_assert" if "+" in standard else "_Static_assert"
    lines = [f'#include "{name}"' for name in header_files()]
    lines += [f'{word}({name} == {value}, "{name}");' for name, value in ENUMERATORS.items()]
    lines += [f'{word}(sizeof({kind}) == 4, "{kind}");' for kind in ("aclError", "aclnnStatus")]
    lines += [f'{word}(sizeof({kind}) == 4, "{kind}");' for kind in sorted(glue.ENUM_TYPES)]
    check("\n".join(lines), standard, include)


def declarations(text):
    """The functions of a header, on one line each."""
    found = re.findall(r"ACL_FUNC_VISIBILITY ([^#;]*?\));", re.sub(r"\s+", " ", text))
    return [re.sub(r"\( ", "(", function) for function in found]


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
            assert not [name for name in names if name in text], path

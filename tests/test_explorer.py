"""The explorer's server, without a browser: calls, refusals, verdicts, and what it does not let in."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import openaclnn
from conftest import OPERATORS, families, table_of
from explorer_server import BYTES, JSON, ask, call, sample, serving
from openaclnn.cli import main
from openaclnn.core.declare import Operator
from openaclnn.core.dtypes import BFLOAT16, FLOAT, FLOAT16
from openaclnn.core.interface import Kind
from openaclnn.core.tensor import Format, Scalar, Tensor
from openaclnn.explorer.answers import SMALL, UNPACKED, declared
from openaclnn.explorer.server import LARGEST_CALL, LARGEST_FILES, Explorer
from openaclnn.testing.programs import LISTED
from test_capi_tools import compile_program

names = pytest.mark.parametrize("operator", families(OPERATORS), ids=lambda o: o.python_name)


@pytest.fixture(scope="module")
def server() -> Iterator[Explorer]:
    with serving() as explorer:
        yield explorer


def first_tensor(operator: Operator) -> str:
    return next(p.name for p in operator.parameters if p.is_read)


def numbers(shown: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.array([float(each) for each in shown["values"]]).reshape(shown["shape"])


def test_the_page_has_its_words_in_chinese() -> None:
    """What its script says, what its HTML has, and what declarations say; sentences of the library stay English."""
    words = declared()["chinese"]
    script, text = (files("openaclnn.explorer").joinpath("page", name).read_text("utf-8") for name in ("script.js", "index.html"))  # fmt: skip
    said = {*re.findall(r'\bsay\("([^"]+)"', script), *itertools.chain(*re.findall(r'\bsay\([^"()]+\? "([^"]+)" : "([^"]+)"', script))}  # fmt: skip
    said |= {
        each.strip() for each in re.findall(r">([^<>]*[a-z][^<>]*)<", text.partition("<body")[2])
    }
    said |= set(re.findall(r'(?:aria-label|placeholder)="([^"]+)"', text))
    said -= {"openaclnn", "This page needs JavaScript; it comes from this machine alone."}
    assert "Find an operator" in said
    assert sorted(each for each in said if each not in words) == []
    assert [each for operator in OPERATORS for each in (operator.formula, operator.summary) if each not in words] == []  # fmt: skip
    assert [family for family in openaclnn.operators.grouped() if family not in words] == []
    for english, chinese in words.items():
        assert re.findall(r"\{\d\}", english) == sorted(re.findall(r"\{\d\}", chinese)), english


def test_answers_are_told_in_chinese_too(server: Explorer) -> None:
    """Sentences by their patterns, the parts within them too; what has no pattern stays as it is."""
    arguments = sample(openaclnn.find_operator("elu_backward"))
    shape = {"dtype": "FLOAT", "shape": "3x5"}
    told = call(server, "elu_backward", arguments | {"selfOrResult": shape})
    assert told["got"] == "shape (3, 5)"
    assert told["got"] not in told["chinese"]  # it says the same in both
    assert "in place of" in told["fix"]
    assert not re.search("give|in place|the shape of", told["chinese"][told["fix"]])
    assert "selfOrResult" in told["chinese"][told["fix"]]
    told = call(server, "elu_backward", arguments | {"gradOutput": None})
    assert told["chinese"]["null"] == "空指针"
    _, refused, _ = ask(server, "POST", "/api/call", json.dumps({"operator": "elu", "seed": -1}), JSON)  # fmt: skip
    assert refused["chinese"] == {refused["error"]: "随机数种子应为非负整数"}


def test_an_optional_output_may_be_null(server: Explorer) -> None:
    """It is neither computed nor shown."""
    operator = openaclnn.find_operator("aclnnFusedLinearOnlineMaxSum")
    name = next(p.name for p in operator.parameters if p.kind is Kind.OUTPUT and p.optional)
    told = call(server, operator, sample(operator) | {name: None})
    assert told["status"] == 0
    assert told["values"], told["no_values"]
    assert name not in [each["name"] for each in told["outputs"]]


@names
def test_samples_are_computed(server: Explorer, operator: Operator) -> None:
    for number, each in enumerate(operator.samples):
        told = call(server, operator, sample(operator, number))
        assert (told["status"], told["no_values"]) == (0, ""), told
        assert {check["state"] for check in told["checks"]} == {"passed"}
        written = [p.name for p in operator.parameters if p.kind is Kind.OUTPUT]
        expected: Any = [each.expected] if len(written) == 1 else each.expected
        assert [out["name"] for out in told["values"]["outputs"]] == written[: len(expected)]
        for out, known in zip(told["values"]["outputs"], expected, strict=True):
            near = 1e-3 if FLOAT16 in [argument[0] for argument in each.arguments.values() if isinstance(argument, tuple)] else 1e-5  # fmt: skip
            np.testing.assert_allclose(numbers(out), np.asarray(known), rtol=near, atol=1e-6)
        assert all(told["code"][language]["text"] for language in ("c++", "c", "python"))


def test_the_page_knows_every_operator(server: Explorer) -> None:
    status, told, _ = ask(server, "GET", "/api/declared")
    assert status == 200
    families = [family for family, _ in itertools.groupby(p["family"] for p in told["operators"])]
    assert len(set(families)) == len(families)
    pages = {page["name"]: page for page in told["operators"]}
    assert len(pages) == len(told["operators"]) == len(OPERATORS)
    for operator in OPERATORS:
        page = pages[operator.name]
        assert [p["name"] for p in page["parameters"]] == [p.name for p in operator.parameters]
        assert page["prototypes"] == list(operator.prototypes())
        assert len(page["samples"]) == len(operator.samples)


def as_sent(value: Any) -> Any:
    """An argument of a table of mistakes, as a page would send it."""
    if isinstance(value, Tensor):
        layout = Format(value.format).name.removeprefix("ACL_FORMAT_")
        return {"dtype": value.dtype.name, "shape": list(value.shape), "format": layout}
    if isinstance(value, Scalar):
        value = value.value.item()
    return str(value) if isinstance(value, complex) else value


@names
@pytest.mark.in_turns
def test_mistakes_are_told(server: Explorer, operator: Operator) -> None:
    """The status and the broken rule; rules before it are passed, those behind it not reached."""
    sound, mistakes = table_of(operator)
    seen = 0
    for mistake in mistakes:
        if mistake.pointers != (True, True):
            continue  # which the page always gives
        arguments = sound() | mistake.change
        told = call(server, operator, {name: as_sent(value) for name, value in arguments.items()})
        assert (told["status"], told["parameter"]) == (mistake.status, mistake.parameter), told
        assert told["values"] is None
        states = [check["state"] for check in told["checks"]]
        if "broken" in states:
            seen += 1
            place = states.index("broken")
            assert told["checks"][place]["row"] == told["row"]
            assert told["row"].rstrip(ascii_lowercase) == mistake.row
            assert told["fix"].startswith(f"give {told['parameter']} {told['expected']}")
            assert set(states[:place]) <= {"passed"}
            assert set(states[place + 1 :]) <= {"not reached"}
    assert seen >= 3


@names
def test_products_decide(server: Explorer, operator: Operator) -> None:
    for product in openaclnn.core.products.PRODUCTS:
        told = call(server, operator, sample(operator), product=product.tag)
        if not operator.supported_on(product):
            assert told["status"] != 0
        elif told["status"]:  # a product may have fewer values of an option
            assert not operator[told["parameter"]].is_tensor
            assert product.tag in told["expected"]


@names
def test_huge_tensors_are_only_checked(server: Explorer, operator: Operator) -> None:
    name = first_tensor(operator)
    arguments = sample(operator)
    arguments[name] = {"dtype": "FLOAT", "shape": [2**40] * 3}
    told = call(server, operator, arguments)
    assert told["values"] is None
    arguments = {
        n: v | {"shape": "1024x1024x1024", "values": ""} if isinstance(v, dict) else v
        for n, v in arguments.items()
    }
    told = call(server, operator, arguments)
    assert told["values"] is None
    if told["status"] == 0:
        assert f"up to {SMALL:,} elements" in told["no_values"]
        assert "np.zeros((1024, 1024, 1024)" in told["code"]["python"]["text"]


def test_values_are_drawn_by_the_seed(server: Explorer) -> None:
    tensor = {"dtype": "BFLOAT16", "shape": "3x4", "strides": "1,3"}
    arguments = {"gradOutput": tensor, "selfOrResult": tensor, "alpha": "nan"}
    one, same, other = (
        call(server, "elu_backward", arguments, seed=s)["values"] for s in (1, 1, 2)
    )
    assert one == same != other
    read = {each["name"]: numbers(each) for each in one["inputs"]}
    exact = openaclnn.find_operator("elu_backward").oracle(
        read["gradOutput"].astype(ml_dtypes.bfloat16), read["selfOrResult"].astype(ml_dtypes.bfloat16), alpha=np.nan
    )  # fmt: skip
    np.testing.assert_allclose(numbers(one["outputs"][0]), exact, rtol=2**-8)
    assert "nan" in one["outputs"][0]["values"]


def test_targets_beyond_the_classes_are_told(server: Explorer) -> None:
    operator = openaclnn.find_operator("nll_loss2d_backward")
    arguments = sample(operator)
    arguments["target"] = arguments["target"] | {"values": "2, 3, 9"}
    told = call(server, operator, arguments)
    assert told["status"] == 0
    assert "target" in told["no_values"]


ODD = {
    "strides": {"gradOutput": {"dtype": "FLOAT16", "shape": "2x3", "strides": "1,2"},
                "selfOrResult": {"dtype": "FLOAT16", "shape": "2x3", "strides": "-3,1", "offset": "3", "values": "1 -1 2 -2 3 -3"},
                "gradInput": {"dtype": "FLOAT16", "shape": "2x3", "strides": "1,2"}},
    "bfloat16": {"gradOutput": {"dtype": "BFLOAT16", "shape": "4"}, "selfOrResult": {"dtype": "BFLOAT16", "shape": "4"}},
    "special": {"gradOutput": {"dtype": "FLOAT", "shape": "3", "values": "nan, inf, -1"},
                "selfOrResult": {"dtype": "FLOAT", "shape": "3", "values": "-inf 0 1"}, "alpha": "inf", "scale": "3"},
    "double": {"gradOutput": {"dtype": "FLOAT", "shape": "2"}, "selfOrResult": {"dtype": "FLOAT", "shape": "2"},
               "gradInput": {"dtype": "DOUBLE", "shape": "2"}, "alpha": "0.1"},
    "empty": {"gradOutput": {"dtype": "FLOAT", "shape": "0x3"}, "selfOrResult": {"dtype": "FLOAT", "shape": "0x3"}},
    "one": {"gradOutput": {"dtype": "FLOAT", "shape": ""}, "selfOrResult": {"dtype": "FLOAT", "shape": ""}},
    "large": {"gradOutput": {"dtype": "FLOAT", "shape": "100x100"}, "selfOrResult": {"dtype": "FLOAT", "shape": "100x100"}},
    "refused": {"gradOutput": {"dtype": "FLOAT", "shape": "2", "format": "NCHW"}, "selfOrResult": None, "scale": "1j"},
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.in_turns
def test_code_is_of_that_very_call(server: Explorer, tmp_path: Path, kind: str) -> None:
    """In all three languages: the values that the page shows, or its refusal."""
    told = call(server, "elu_backward", ODD[kind])
    ran: list[tuple[int, str, str | None]] = []
    try:
        exec(told["code"]["python"]["text"], {})
        ran.append((0, "", None))
    except openaclnn.AclnnError as error:
        ran.append((1, str(error), None))
    for language, suffix in (("c", ".c"), ("c++", ".cpp")):
        if language == "c++" and kind not in ("strides", "refused"):
            continue  # the texts differ in little
        source = tmp_path / f"program{suffix}"
        source.write_text(told["code"][language]["text"])
        program = compile_program(source, tmp_path / f"program_{language}")
        completed = subprocess.run([program], capture_output=True, text=True, check=False)
        ran.append((completed.returncode, completed.stderr, completed.stdout))
    for status, complaint, printed in ran:
        if told["status"]:
            assert status == 1
            assert str(told["status"]) in complaint
            assert told["expected"] in complaint
        else:
            assert (status, complaint) == (0, "")
            if printed is not None and told["values"] and kind not in ("strides", "empty"):
                shown = numbers(told["values"]["outputs"][0]).reshape(-1)
                np.testing.assert_allclose(
                    [float(w) for w in printed.split() if not w.endswith(":")], shown, rtol=1e-5
                )


def test_calls_that_no_program_makes(server: Explorer) -> None:
    told = call(server, "l1_loss_backward", sample(openaclnn.find_operator("l1_loss_backward")) | {"reduction": "no"})  # fmt: skip
    assert told["status"] == 161002
    assert "no C program can give 'no'" in told["code"]["c"]["why"]
    assert "reduction='no'" in told["code"]["python"]["text"]


def test_code_says_what_it_leaves_out(server: Explorer) -> None:
    """Values that are shown, but are too many for a program."""
    tensor = {"dtype": "FLOAT", "shape": [LISTED + 1]}
    told = call(server, "elu_backward", {"gradOutput": tensor, "selfOrResult": tensor})
    assert told["values"] is not None
    for language in ("c", "c++", "python"):
        text = told["code"][language]["text"]
        assert text.count(f"zeros: {LISTED + 1} elements are too many to list") == 2


def test_product_is_in_the_code(server: Explorer) -> None:
    operator = OPERATORS[0]
    told = call(server, operator, sample(operator), product="a2")
    assert "OPENACLNN_PRODUCT=a2 ./" in told["code"]["c"]["text"]
    assert 'os.environ["OPENACLNN_PRODUCT"] = "a2"' in told["code"]["python"]["text"]


T = {"dtype": "FLOAT", "shape": "2"}
BAD_CALLS: list[tuple[Any, str]] = [
    ([], "a call is expected"),
    ({"operator": "tanh"}, "unknown operator 'tanh'"),
    ({"operator": "elu_backward", "product": "z"}, "unknown product"),
    ({"operator": "elu_backward", "arguments": []}, "a call is expected"),
    ({"operator": "elu_backward", "arguments": {"x": 1}}, "no parameter 'x'"),
    ({"operator": "elu_backward", "seed": -1}, "a seed is a whole number"),
    ({"operator": "elu_backward", "seed": "1"}, "a seed is a whole number"),
    *(
        ({"operator": "elu_backward", "arguments": {"gradOutput": tensor}}, sentence)
        for tensor, sentence in [
            (3, "a tensor has dtype and shape"),
            ({"shape": "2"}, "unknown dtype"),
            ({"dtype": "FLOAT9", "shape": "2"}, "unknown dtype"),
            ({"dtype": "INT4", "shape": "2"}, "tensors of INT4 cannot be made"),
            (T | {"shape": "2x"}, "expected a shape like 2x3, 5 or (), got '2x'"),
            (T | {"shape": "two"}, "expected a shape like 2x3"),
            (T | {"shape": [2.5]}, "expected a shape like 2x3"),
            (T | {"shape": [True]}, "expected a shape like 2x3"),
            (T | {"shape": [[2]]}, "expected a shape like 2x3"),
            (T | {"shape": "-2"}, "no negative sizes"),
            (T | {"shape": "9" * 30}, "64 bits"),
            (T | {"shape": "1 " * 65}, "up to 64"),
            (T | {"strides": "1,2"}, "expected 1 strides for shape (2,), got 2"),
            (T | {"strides": "-1"}, "below the storage"),
            (T | {"offset": "x"}, "expected an offset like 4, got 'x'"),
            (T | {"format": "ZZ"}, "expected a format like ND, got 'ZZ'"),
            (T | {"values": "1"}, "1 values for the 2 elements"),
            (T | {"values": "1 a"}, "numbers of FLOAT"),
            (T | {"dtype": "UINT8", "values": "1 256"}, "numbers of UINT8"),
            (T | {"dtype": "INT64", "values": "1 1.5"}, "numbers of INT64"),
            (T | {"dtype": "BOOL", "values": "1 2"}, "numbers of BOOL"),
            (T | {"values": [[1], 2]}, "numbers of FLOAT"),
            ("left out", "cannot be left out"),
        ]
    ),
    ({"operator": "elu_backward", "arguments": {"alpha": []}}, "a number or a name"),
    ({"operator": "elu_backward", "arguments": {"alpha": "1" * 999}}, "a number or a name"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "sentence"), BAD_CALLS)
def test_what_is_no_call(server: Explorer, body: Any, sentence: str) -> None:
    status, told, _ = ask(server, "POST", "/api/call", json.dumps(body), JSON)
    assert status == 400
    assert sentence in told["error"]
    if "gradOutput" in str(body):
        assert told["parameter"] == "gradOutput"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"nul", b"[" * 100_000, b"1" * 10_000, b'{"a": 1} x']
)
def test_what_is_no_json(server: Explorer, body: bytes) -> None:
    status, told, _ = ask(server, "POST", "/api/call", body, JSON)
    assert status == 400
    assert told["error"] in ("JSON is expected", "a call is expected: operator, product and arguments")  # fmt: skip


def test_headers(server: Explorer) -> None:
    for path in ("/", "/style.css", "/script.js", "/api/declared", "/nothing"):
        status, _, headers = ask(server, "GET", path)
        assert status == (404 if path == "/nothing" else 200)
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
        assert headers["Server"].strip() == "openaclnn"
    status, body, headers = ask(server, "HEAD", "/")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 0


def test_the_page_needs_nothing_from_outside(server: Explorer) -> None:
    for path in ("/", "/style.css", "/script.js"):
        _, body, _ = ask(server, "GET", path)
        text = body.decode()
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), path
    _, page, _ = ask(server, "GET", "/")
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=|<style", page.decode())


def test_foreign_hosts_and_origins(server: Explorer) -> None:
    """A page elsewhere whose name leads here, or that sends requests here, gets nothing."""
    port = server.server_port
    address = f"127.0.0.1:{port}"
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        for path in ("/", "/api/declared"):
            status, told, _ = ask(server, "GET", path, headers={"Host": host})
            assert (status, "no other name" in told["error"]) == (403, True), host
    body = json.dumps({"operator": OPERATORS[0].name})
    for origin in (
        "http://evil.example",
        "null",
        f"https://{address}",
        f"http://{address}.evil.example",
    ):
        status, told, _ = ask(server, "POST", "/api/call", body, JSON | {"Origin": origin})
        assert (status, told["error"]) == (403, "other pages are not served"), origin
    for site in ("cross-site", "same-site"):
        assert ask(server, "GET", "/api/declared", headers={"Sec-Fetch-Site": site})[0] == 403
    for host in (address, f"localhost:{port}"):
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert ask(server, "POST", "/api/call", body, JSON | headers)[0] == 200
    assert ask(server, "POST", "/api/call", body, {"Content-Type": "text/plain"})[0] == 415


def test_other_methods_and_paths(server: Explorer) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"):
        status, told, headers = ask(server, method, "/")
        assert (status, headers["Allow"]) == (405, "GET, HEAD")
        assert "asked for by GET" in told["error"]
    status, _, headers = ask(server, "GET", "/api/call")
    assert (status, headers["Allow"]) == (405, "POST")
    for path in ("/../server.py", "/page/index.html", "/%2e%2e/", "/api", "/api/declared/"):
        assert ask(server, "GET", path)[0] == 404


def test_oversized_requests(server: Explorer) -> None:
    status, told, _ = ask(server, "POST", "/api/call", b" " * (LARGEST_CALL + 1), JSON)
    assert (status, f"at most {LARGEST_CALL:,}" in told["error"]) == (413, True)
    query = "/api/compare?name=a.npy&name=b.npy&first=1"
    length = {"Content-Length": str(LARGEST_FILES + 1)}
    status, told, _ = ask(server, "POST", query, b"", BYTES | length)
    assert (status, f"at most {LARGEST_FILES:,}" in told["error"]) == (413, True)
    for headers in ({"Transfer-Encoding": "chunked"}, {"Content-Length": "many"}, {"Content-Length": "-1"}):  # fmt: skip
        assert ask(server, "POST", "/api/call", b"", JSON | headers)[0] == 411
    assert ask(server, "GET", "/" + "x" * 70_000)[0] == 414
    assert ask(server, "GET", "/", headers={"X": "y" * 70_000})[0] == 431
    assert ask(server, "GET", "/", b"a body that nobody asked for")[0] == 200


def npy(array: Any) -> bytes:
    held = io.BytesIO()
    np.save(held, array, allow_pickle=True)
    return held.getvalue()


def verdict(server: Explorer, files: list[tuple[str, bytes]], query: str = "") -> tuple[int, Any]:
    (one, first), (other, second) = files
    path = f"/api/compare?name={one}&name={other}&first={len(first)}{query}"
    return ask(server, "POST", path, first + second, BYTES)[:2]


def test_verdicts(server: Explorer) -> None:
    golden = np.linspace(1, 2, 600, dtype=np.float32).reshape(20, 30)
    bad = golden.copy()
    bad[3, :25] += 1
    exact = [("a.npy", npy(golden)), ("g.npy", npy(golden))]
    status, told = verdict(server, exact)
    assert (status, told["passed"], told["bad"]) == (200, True, 0)
    assert told["picture"]["good"] == []
    status, told = verdict(server, [("a.npy", npy(bad)), ("g.npy", npy(golden))])
    assert (status, told["passed"], told["bad"]) == (200, False, 25)
    assert told["first_bad"][0]["position"] == [3, 0]
    picture = told["picture"]
    assert (picture["rows"], picture["columns"], len(picture["bad"])) == (20, 30, 25)
    assert sum(picture["map"][3]) == 25
    assert sum(map(sum, picture["map"])) == 25
    raw = [("a.bin", bad.tobytes()), ("g.npy", npy(golden))]
    assert verdict(server, raw, "&dtype=float32&standard=cosine")[1]["passed"]
    half = [("a.npy", npy(golden.astype(BFLOAT16.numpy).view("V2"))), ("g.npy", npy(golden))]
    assert verdict(server, half)[1]["dtype"] == "BFLOAT16"
    packed = io.BytesIO()
    np.savez_compressed(packed, a=golden)
    assert verdict(server, [("a.npz", packed.getvalue()), ("g.npy", npy(golden))])[1]["passed"]
    status, told = verdict(server, [("a.npy", npy(bad[0])), ("g.npy", npy(golden))])
    assert (status, told["passed"], told["picture"]) == (200, False, None)
    special = np.float32([np.nan, np.inf, 1, 0])
    status, told = verdict(server, [("a.npy", npy(special)), ("g.npy", npy(special[::-1].copy()))])
    assert (status, told["passed"]) == (200, False)


def bomb() -> bytes:
    """A packed file of a few bytes that says it holds more than is read."""
    held = io.BytesIO()
    with __import__("zipfile").ZipFile(held, "w", 8) as packed, packed.open("a.npy", "w") as file:
        for _ in range(UNPACKED // (1 << 20) + 1):
            file.write(bytes(1 << 20))
    return held.getvalue()


def test_files_that_cannot_be_compared(server: Explorer) -> None:
    good = npy(np.float32([1, 2]))
    pickled = npy(np.array([{"a": 1}], object))
    for name, held, sentence in [
        ("a.pt", good, ".safetensors, .bin, .raw, .dat files are read here"),
        ("a", good, "files are read here"),
        ("../../a.py", good, "files are read here"),
        ("a.npy", b"", "actual.npy: "),
        ("a.npy", b"\x93NUMPY\x01\x00\xff\xff", "actual.npy: "),
        ("a.npy", good[:-1], "actual.npy: "),
        ("a.npy", pickled, "actual.npy: "),
        ("a.npy", npy(np.array(["x"])), "numbers are expected"),
        ("a.npz", b"PK", "not an .npz file"),
        ("a.npz", good, "not an .npz file"),
        ("a.bin", good, "a raw file needs a dtype"),
        ("a.safetensors", b"\xff" * 20, "not a safetensors file"),
        ("a.safetensors", (50_000).to_bytes(8, "little") + b"[" * 50_000, "not a safetensors file"),
    ]:  # fmt: skip
        status, told = verdict(server, [(name, held), ("g.npy", good)])
        assert status == 400, (name, told)
        assert sentence in told["error"], (name, told)
        assert "/" not in told["error"].replace(name, "")
    files = [("a.npy", good), ("g.npy", good)]
    assert verdict(server, files, "&standard=best")[0] == 400
    assert verdict(server, files, "&standard=cross_check")[0] == 400
    assert verdict(server, files, "&dtype=float9")[0] == 400
    for query in ("", "?name=a.npy", "?name=a.npy&name=b.npy&first=x", "?name=a.npy&name=b.npy&first=9999"):  # fmt: skip
        assert ask(server, "POST", "/api/compare" + query, good, BYTES)[0] == 400
    status, told = verdict(server, [("a.npz", bomb()), ("g.npy", good)])
    assert (status, f"at most {UNPACKED:,}" in told["error"]) == (413, True)


def test_nothing_stays_behind(server: Explorer, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    good = npy(np.float32([1, 2]))
    for name in ("a.npy", "a.npz"):
        verdict(server, [(name, good), ("g.npy", good)])
    assert list(tmp_path.iterdir()) == []


def test_many_at_once(server: Explorer) -> None:
    """Every thread gets its own call's answer, whatever others ask for."""
    jobs = [(operator, n) for operator in families(OPERATORS) for n in range(len(operator.samples))]
    files = [("a.npy", npy(np.ones(5000, np.float32)))] * 2

    def one(job: tuple[Operator, int]) -> bool:
        operator, number = job
        told = call(server, operator, sample(operator, number))
        out = np.asarray(numbers(told["values"]["outputs"][0]))
        written = [p for p in operator.parameters if p.kind is Kind.OUTPUT]
        expected: Any = operator.samples[number].expected
        known = np.asarray(expected if len(written) == 1 else expected[0])
        status, judged = verdict(server, files)
        assert status == 200, judged
        return bool(
            np.allclose(out, known, rtol=1e-3, atol=1e-5) and judged["passed"]
        )  # FLOAT16 too

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, jobs))


def test_slow_and_broken_clients_hold_nobody_up(server: Explorer) -> None:
    """Requests that never end, bytes that mean nothing, connections that are dropped."""
    place = ("127.0.0.1", server.server_port)
    head = f"POST /api/call HTTP/1.1\r\nHost: {place[0]}:{place[1]}\r\n"
    length = f"Content-Type: application/json\r\nContent-Length: {LARGEST_CALL}\r\n\r\n"
    waiting = [socket.create_connection(place) for _ in range(12)]
    for number, each in enumerate(waiting):
        each.sendall((head + length + "{")[: 10 * number + 1].encode())
    for junk in (b"\x00" * 100, b"GET\r\n\r\n", b"\x16\x03\x01\x02", head.encode() + length.encode()):  # fmt: skip
        with socket.create_connection(place) as broken:
            broken.sendall(junk)
    assert call(server, OPERATORS[0], sample(OPERATORS[0]))["status"] == 0
    for each in waiting:
        each.close()


def test_idle_connections_make_room_for_a_new_one() -> None:
    """Silent ones, half a header, half a body, and some that were answered and kept open."""
    with serving() as server:
        place = ("127.0.0.1", server.server_port)
        head = f"POST /api/call HTTP/1.1\r\nHost: {place[0]}:{place[1]}\r\n"
        body = "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        get = f"GET / HTTP/1.1\r\nHost: {place[0]}:{place[1]}\r\n\r\n"
        held = []
        for number in range(150):
            held.append(socket.create_connection(place))
            held[-1].sendall(("", head, head + body, get)[number % 4].encode())
        for _ in range(5):  # each is served at once
            assert ask(server, "GET", "/")[0] == 200
        held[0].settimeout(10)
        assert held[0].recv(1) == b""  # the first was the longest idle
        assert len(server.connections) <= 64
        for each in held:
            each.close()


def test_connections_with_work_are_not_ended_for_a_new_one(monkeypatch: Any) -> None:
    begun, go = threading.Semaphore(0), threading.Event()

    def slow(asked: Any) -> Any:
        begun.release()
        assert go.wait(60)
        return {}

    monkeypatch.setattr("openaclnn.explorer.server.answer_call", slow)
    monkeypatch.setattr("openaclnn.explorer.server._CONNECTIONS", 4)
    body = json.dumps({"operator": OPERATORS[0].name})
    with serving() as server, ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, server, "POST", "/api/call", body, JSON) for _ in range(4)]
        for _ in asked:
            assert begun.acquire(timeout=60)
        with socket.create_connection(("127.0.0.1", server.server_port), 10) as new:
            assert new.recv(1) == b""
        go.set()
        assert [each.result()[0] for each in asked] == [200] * 4


def test_a_header_that_comes_too_slowly_is_ended(monkeypatch: Any) -> None:
    """Each byte in time, and all of them not."""
    monkeypatch.setattr("openaclnn.explorer.server.PATIENCE", 0.5)

    def send(slow: socket.socket) -> None:
        for _ in range(500):
            slow.sendall(b"G")
            time.sleep(0.02)

    with serving() as server:
        slow = socket.create_connection(("127.0.0.1", server.server_port), 10)
        with slow, pytest.raises(ConnectionError):
            send(slow)
        assert ask(server, "GET", "/")[0] == 200


def test_faults_are_answers(server: Explorer, monkeypatch: Any) -> None:
    def broken(asked: Any) -> Any:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("openaclnn.explorer.server.answer_call", broken)
    body = json.dumps({"operator": OPERATORS[0].name})
    status, told, _ = ask(server, "POST", "/api/call", body, JSON)
    assert (status, told["error"]) == (500, "a fault of openaclnn: ZeroDivisionError: of ours")
    monkeypatch.undo()
    assert ask(server, "POST", "/api/call", body, JSON)[0] == 200


def test_it_listens_on_loopback_alone() -> None:
    for host in ("0.0.0.0", "::", "", "localhost", "192.168.0.1"):
        with pytest.raises(ValueError, match="listens on"):
            Explorer(host)
    assert main(["explorer", "--host", "0.0.0.0"]) == 2
    if not socket.has_ipv6:
        return
    try:
        with serving("::1") as server:
            assert server.address == f"http://[::1]:{server.server_port}/"
            assert ask(server, "GET", "/")[0] == 200
    except OSError:
        pass  # a machine without the address


def test_a_port_that_is_taken(server: Explorer, capsys: Any) -> None:
    assert main(["explorer", "--no-open", "--port", str(server.server_port)]) == 2
    told = capsys.readouterr().err
    assert f"port {server.server_port} of " in told
    assert "already in use; without --port one that is free is taken" in told


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_command_starts_and_stops(flags: list[str]) -> None:
    command = [sys.executable, "-m", "openaclnn", "explorer", "--no-open", *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        if flags:
            told += process.stdout.readline()
        match = re.search(r"http://127\.0\.0\.1:(\d+)/", told)
        assert match is not None, told
        with socket.create_connection(("127.0.0.1", int(match[1]))) as kept:
            kept.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{match[1]}\r\n\r\n".encode())
            assert kept.recv(15) == b"HTTP/1.1 200 OK"
            os.kill(process.pid, signal.SIGINT)  # while a connection is open
            out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert flags or out == "stopped\n"
    finally:
        process.kill()
        process.wait()


def test_bindings_stay_in_their_thread(server: Explorer) -> None:
    """What a request sets (engine, product) is its own."""
    before = threading.active_count()
    call(server, OPERATORS[0], sample(OPERATORS[0]), product="a2")
    assert openaclnn.core.products.current_product().is_default
    assert openaclnn.core.dtypes.FLOAT is FLOAT
    assert threading.active_count() <= before + 2


def test_a_browser_is_opened_where_it_is_asked_for(monkeypatch: Any, capsys: Any) -> None:
    opened: list[str] = []
    asked = threading.Event()

    def stop(server: Explorer) -> None:
        asked.wait(10 if flag == "--open" else 0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr("webbrowser.open", lambda address: (opened.append(address), asked.set()))
    monkeypatch.setattr(Explorer, "serve_forever", stop)
    for flag in ("--open", "--no-open", ""):  # without a word only on a terminal
        opened.clear()
        asked.clear()
        assert main(["explorer", *filter(None, [flag])]) == 0
        told = capsys.readouterr().out
        assert told.endswith("stopped\n")
        assert [address in told for address in opened] == [True] * (flag == "--open")

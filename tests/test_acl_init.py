"""aclInit, aclFinalize, the configuration file, and error messages."""

import json
import os
import threading

import pytest

from openaclnn import acl
from openaclnn.runtime import config


@pytest.fixture(autouse=True)
def fresh():
    acl.aclInit(None)
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()
    acl.aclrtGetLastError()
    yield
    acl.aclInit(None)
    acl.aclFinalize()
    acl.aclGetRecentErrMsg()


def test_init_is_counted_and_a_repeat_is_told():
    assert acl.aclInit(None) == 0
    assert acl.aclInit(None) == 100002
    told = acl.aclGetRecentErrMsg()
    assert "got another, which is counted: aclFinalizeReference undoes one, aclFinalize all" in told
    assert acl.aclInit("") == 100002
    assert acl.aclFinalizeReference() == (0, 2)
    assert acl.aclFinalizeReference() == (0, 1)
    assert acl.aclFinalizeReference() == (0, 0)
    assert acl.aclFinalizeReference() == (100037, 0)
    assert acl.aclFinalize() == 100037


def test_finalize_ends_all_references_and_init_may_follow():
    assert acl.aclInit(None) == 0
    assert acl.aclInit(None) == 100002
    assert acl.aclFinalize() == 0
    assert acl.aclFinalize() == 100037
    assert acl.aclInit(None) == 0
    assert acl.aclFinalize() == 0


def test_finalize_releases_devices():
    acl.aclInit(None)
    assert acl.aclrtSetDevice(0) == 0
    status, pointer = acl.aclrtMalloc(8)
    assert status == 0
    assert acl.aclFinalize() == 0
    assert acl.aclrtGetDevice() == (107002, 0)
    assert acl.aclrtFree(pointer) == 107000


def test_aclnn_init_goes_together_with_acl_init(tmp_path):
    path = tmp_path / "acl.json"
    path.write_text('{"openaclnn": {"product": "Ascend950"}}')
    assert acl.aclnnInit(path) == 0
    assert acl.aclrtGetSocName() == "Ascend950"
    assert acl.aclInit(None) == 0
    assert acl.aclnnFinalize() == 0
    assert acl.aclFinalize() == 0
    assert acl.aclnnInit("/nowhere/at/all") == 100003
    assert acl.aclnnInit(None) == 0
    assert acl.aclnnFinalize() == 0


def test_configuration_is_kept_until_finalize(tmp_path):
    settings = {
        "err_msg_mode": "0",
        "openaclnn": {"product": "Ascend910B", "device": "cpu"},
        "defaultDevice": {"default_device": "0"},
    }
    path = tmp_path / "acl.json"
    path.write_text(json.dumps(settings))
    assert config.current() == {}
    assert acl.aclInit(str(path)) == 0
    assert config.current() == settings
    config.current()["openaclnn"]["product"] = "changed"
    assert config.current() == settings
    assert config.device_name() == "cpu"
    assert acl.aclrtGetSocName() == "Ascend910B"
    assert acl.aclInit(str(path)) == 100002
    assert acl.aclInit(None) == 100000
    assert acl.aclFinalize() == 0
    assert config.current() == {}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 100006),
        ("{", 100006),
        ("[1]", 100006),
        ("\xff\xfe{}", 100006),
        ("[" * 100000, 100006),
        ('{"a": ' * 101 + "1" + "}" * 101, 100006),
        ('{"err_msg_mode": "2"}', 100008),
        ('{"err_msg_mode": 1}', 100008),
        ('{"err_msg_mode": ["1"]}', 100008),
        ('{"openaclnn": 3}', 100008),
        ('{"openaclnn": {"device": 3}}', 100008),
        ('{"openaclnn": {"product": null}}', 100008),
        ('{"openaclnn": {"product": "abacus"}}', 100008),
        ('{"dump": {"dump_path": "x"}}', 100009),
        ('{"dump": {"dump_list": [], "dump_path": "/tmp", "dump_mode": "all"}}', 100009),
        ('{"dump": {"dump_scene": "lite_exception"}}', 100009),
        ('{"dump": "on"}', 100009),
        ('{"profiler": {"switch": "on", "output": "/tmp"}}', 100010),
        ('{"profiler": ["on"]}', 100010),
        ("{}" + " " * (10 * 1024 * 1024), 100005),
    ],
)
def test_bad_files(tmp_path, text, code):
    path = tmp_path / "acl.json"
    path.write_bytes(text.encode("latin-1"))
    assert acl.aclInit(path) == code
    assert acl.aclInit(None) == 0, "a refused file leaves the runtime uninitialised"


@pytest.mark.parametrize(
    "text",
    ['{"dump": {}}', '{"dump": null}', '{"profiler": {}}', '{"profiler": {"switch": "off"}}'],
)
def test_sections_that_ask_for_nothing(tmp_path, text):
    path = tmp_path / "acl.json"
    path.write_text(text)
    assert acl.aclInit(path) == 0


def test_a_dump_is_refused_aloud(tmp_path):
    path = tmp_path / "acl.json"
    path.write_text('{"dump": {"dump_path": "x"}}')
    assert acl.aclnnInit(path) == acl.ACL_ERROR_INVALID_DUMP_CONFIG
    assert "aclnnInit: dump: expected no dump section" in acl.aclGetRecentErrMsg()


def test_missing_file_directory_and_nonsense(tmp_path):
    assert acl.aclInit(tmp_path / "none.json") == 100003
    assert acl.aclInit(tmp_path) == 100003
    assert acl.aclInit("a\0b") == 100003
    assert acl.aclInit(3.5) == 100000


def test_a_path_that_is_no_utf8_is_told(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.json"
    for text, expected in ((b"{", "JSON"), (b"[]", "a JSON object")):
        with open(path, "wb") as file:
            file.write(text)
        assert acl.aclInit(path) == 100006
        message = acl.aclGetRecentErrMsg()
        assert f"aclInit: configPath: expected {expected}, got " in message
        message.encode()


def test_nesting_that_a_small_stack_may_not_hold_is_told(tmp_path):
    path = tmp_path / "acl.json"
    path.write_text('{"a":' + "[" * 100 + "]" * 100 + "}")
    assert acl.aclInit(path) == 100006
    assert f"got '{path}': one nested deeper than 100 levels" in acl.aclGetRecentErrMsg()
    brackets = "[{" * 200
    path.write_text(
        '{"a\\"' + brackets + '\\\\": "' + brackets + '", "b":' + "[" * 99 + "]" * 99 + "}"
    )
    assert acl.aclInit(path) == 0


def test_unknown_device_is_refused_with_the_known_names(tmp_path):
    path = tmp_path / "acl.json"
    path.write_text('{"openaclnn": {"device": "abacus"}}')
    assert acl.aclInit(path) == 0
    assert acl.aclrtSetDevice(0) == 507033
    message = acl.aclGetRecentErrMsg()
    assert "abacus" in message
    assert "cpu" in message


def test_messages_name_function_argument_and_both_sides():
    assert acl.aclrtMalloc(0) == (100000, 0)
    message = acl.aclGetRecentErrMsg()
    assert "aclrtMalloc: size: expected an integer in [1, " in message
    assert "got 0" in message
    assert "100000" in message
    assert acl.aclGetRecentErrMsg() is None


def test_messages_outlive_a_change_of_their_scope(tmp_path):
    """Those of all threads become the process's, and the process's those of the thread that finalises."""
    path = tmp_path / "acl.json"
    path.write_text('{"err_msg_mode": "1"}')
    acl.aclrtMalloc(0)
    said, go = threading.Event(), threading.Event()

    def fail_and_wait():
        acl.aclrtFree(None)
        said.set()
        go.wait(10)

    thread = threading.Thread(target=fail_and_wait)
    thread.start()
    said.wait(10)
    assert acl.aclInit(path) == 0
    acl.aclrtMallocHost(0)
    functions = [line.split(": ")[2] for line in acl.aclGetRecentErrMsg().splitlines()]
    assert functions == ["aclrtMallocHost", "aclrtMalloc", "aclrtFree"]
    acl.aclrtMallocHost(0)
    assert acl.aclFinalize() == 0
    go.set()
    thread.join()
    assert "aclrtMallocHost" in acl.aclGetRecentErrMsg()
    assert acl.aclInit(path) == 0
    assert acl.aclGetRecentErrMsg() is None


def test_last_error_is_per_thread():
    assert acl.aclrtPeekAtLastError(acl.ACL_RT_THREAD_LEVEL) == 0
    acl.aclrtFree(None)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(acl.aclrtPeekAtLastError(0)))
    thread.start()
    thread.join()
    assert seen == [0]
    assert acl.aclrtPeekAtLastError(0) == 100000
    assert acl.aclrtGetLastError(0) == 100000
    assert acl.aclrtGetLastError(0) == 0
    assert acl.aclrtGetLastError(7) == 100000


def test_wrong_number_of_arguments_is_a_python_mistake():
    with pytest.raises(TypeError):
        acl.aclrtFree()
    with pytest.raises(TypeError):
        acl.aclrtMalloc(1, 2, 3)


def test_public_names_are_complete():
    for name in acl.__all__:
        assert hasattr(acl, name), name
    assert len(set(acl.__all__)) == len(acl.__all__)
    expected = {
        "ACL_FLOAT": 0, "ACL_DT_UNDEFINED": -1, "ACL_BF16": 27, "ACL_FLOAT8_E4M3FN": 36,
        "ACL_HIFLOAT4_SCALE": 43, "ACL_FORMAT_ND": 2, "ACL_FRACTAL_Z_3D": 33,
        "ACL_FORMAT_FRACTAL_NZ_C0_8": 54, "ACL_MEMCPY_HOST_TO_DEVICE": 1, "ACL_MEMCPY_DEFAULT": 4,
        "ACL_MEMCPY_INTER_DEVICE_TO_DEVICE": 7, "ACL_MEM_MALLOC_HUGE_FIRST": 0,
        "ACL_MEM_MALLOC_HUGE1G_ONLY_P2P": 7, "ACL_MEM_ACCESS_USER_SPACE_READONLY": 0x100000,
        "ACL_HBM_MEM": 1, "ACL_MEM_P2P_HUGE1G": 17, "ACL_HOST": 1, "ACL_EVENT_STATUS_RESERVED": 2,
        "ACL_EVENT_STATUS_COMPLETE": 0, "ACL_EVENT_RECORDED_STATUS_COMPLETE": 1,
        "ACL_EVENT_WAIT_STATUS_RESERVED": 0xFFFF, "ACL_STREAM_STATUS_NOT_READY": 1,
        "ACL_EVENT_TIME_LINE": 8, "ACL_EVENT_IPC": 0x40, "ACL_STREAM_DEVICE_USE_ONLY": 0x20,
        "ACL_STOP_ON_FAILURE": 1, "ACL_RT_OVERFLOW_MODE_UNDEF": 2, "ACL_OPT_DETERMINISTIC": 0,
        "ACL_OPT_ENABLE_KERNEL_EARLY_START": 3, "ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT": 2,
        "ACL_ERROR": 3, "ACL_CANN_ATTR_UNDEFINED": -1, "ACL_SUCCESS": 0, "ACL_ERROR_NONE": 0,
        "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT": 507046, "ACLNN_ERR_PARAM_INVALID": 161002,
    }  # fmt: skip
    assert {name: getattr(acl, name) for name in expected} == expected
    with pytest.raises(AttributeError):
        _ = acl.ACL_NO_SUCH_NAME

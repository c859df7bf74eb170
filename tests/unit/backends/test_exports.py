"""The table of backends, their options, and backends of other packages."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from etscope.backends import BACKENDS, Backend, check_options, chosen, quantizing
from etscope.backends.registry import exports
from etscope.backends.registry.exports import options_of, parsed
from etscope.errors import MissingDependencyError, UsageError
from etscope.support.optional import require


def kinds(
    *,
    flag: bool = False,
    number: int = 1,
    share: float = 0.5,
    word: Literal["one", "two"] | None = None,
    bits: Literal[8, 4] = 8,
    names: tuple[str, ...] = (),
    text: str | None = None,
    any_value: Any = None,
    **more: Any,
) -> list[Any]:
    return [flag, number, share, word, bits, names, text, any_value, more]


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        *(("flag", "Yes", True), ("flag", "0", False), ("flag", True, True)),
        *(("number", "12", 12), ("share", "0.25", 0.25), ("word", "two", "two")),
        *(("bits", "4", 4), ("bits", 8, 8), ("text", "x", "x"), ("any_value", "x", "x")),
        *(("names", "a, b", ("a", "b")), ("names", ["a"], ("a",))),
    ],
)
def test_values_of_options(name: str, given: Any, value: Any) -> None:
    found = parsed(given, options_of(kinds)[name], name)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "given", "hint"),
    [
        *(("flag", "maybe", "true|false"), ("flag", 1, "true|false")),
        *(("number", "1.5", "NUMBER"), ("number", True, "NUMBER"), ("word", "three", "one|two")),
        *(("bits", "3", "8|4"), ("text", 3, "TEXT")),
        *(("names", 3, "TEXT,TEXT"), ("names", [3], "TEXT,TEXT")),
    ],
)
def test_values_that_an_option_does_not_take(name: str, given: Any, hint: str) -> None:
    with pytest.raises(UsageError, match=f"is not a value of x.{name}") as caught:
        parsed(given, options_of(kinds)[name], f"x.{name}")
    assert f"{name}={hint}" in str(caught.value.hint)


def test_the_options_are_the_parameters() -> None:
    assert set(options_of(kinds)) == {
        "flag", "number", "share", "word", "bits", "names", "text", "any_value"
    }  # fmt: skip
    with_options = [name for name, one in BACKENDS.items() if one.options()]
    assert {"xnnpack", "vulkan", "webgpu", "coreml", "openvino", "ethos-u"} <= set(with_options)
    for name in with_options:
        options = BACKENDS[name].options()
        assert "quantize" not in options
        assert all("=" in str(option) for option in options.values())


def test_every_package_that_a_backend_needs_has_an_install_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = {module for one in BACKENDS.values() for module in one.requires}
    assert needed >= {"coremltools", "openvino", "nncf", "tosa_serializer", "ethosu.vela"}
    for module in needed:
        monkeypatch.setitem(sys.modules, module, None)  # it cannot be imported
        monkeypatch.setitem(sys.modules, module.partition(".")[0], None)
        with pytest.raises(MissingDependencyError) as caught:
            require(module, wanted_by="a test")
        assert str(caught.value.hint).startswith("pip install 'etscope[")


def test_several_in_order_with_their_options() -> None:
    found = chosen("vulkan, xnnpack", {"force_fp16": "1", "xnnpack.per_op": "true"})
    assert [(one.name, one.options) for one in found] == [
        ("vulkan", {"force_fp16": True}),
        ("xnnpack", {"per_op": True}),
    ]
    assert [one.name for one in chosen("xnnpack,vulkan")] == ["xnnpack", "vulkan"]


@pytest.mark.parametrize(
    ("names", "options", "message", "hint"),
    [
        ("vulcan", {}, "unknown backend 'vulcan'", "vulkan"),
        ("", {}, "unknown backend ''", "portable"),
        ("vulkan,", {}, "unknown backend ''", "portable"),
        ("vulkan,vulkan", {}, "the same backend twice", None),
        ("portable,vulkan", {}, "cannot be combined", "leave out 'portable'"),
        ("vulkan", {"fp16": "1"}, "unknown option 'fp16'", "force_fp16=true|false"),
        ("portable", {"fp16": "1"}, "unknown option 'fp16'", "portable: none"),
        (
            "vulkan,webgpu",
            {"force_fp16": "1"},
            "several backends have",
            "vulkan.force_fp16 or webgpu",
        ),
        ("vulkan", {"xnnpack.per_op": "1"}, "did not choose", "vulkan"),
        ("vulkan", {"force_fp16": "x"}, "'x' is not a value", "true|false"),
    ],
)
def test_names_and_options_that_are_wrong(
    names: str, options: dict[str, str], message: str, hint: str | None
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        chosen(names, options)
    assert hint is None or hint in str(caught.value.hint)


def test_the_first_with_a_quantizer_quantizes() -> None:
    assert quantizing(chosen("native,vulkan,xnnpack")).name == "vulkan"
    with pytest.raises(UsageError, match="'portable' does not have a quantizer") as caught:
        quantizing(chosen("portable"))
    assert "ethos-u" in str(caught.value.hint)

    check_options(chosen("vulkan", {"weight_bits": 4}), quantize=True)
    with pytest.raises(UsageError, match="quantizer of vulkan"):
        check_options(chosen("vulkan", {"weight_bits": 4}), quantize=False)
    both = chosen("vulkan,xnnpack", {"per_channel": "no"})
    with pytest.raises(UsageError, match="quantizer of xnnpack, but the quantizer of vulkan"):
        check_options(both, quantize=True)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package with entry points."""
    information = tmp_path / "others-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    entries = {"function": "partitioners", "full": "full", "number": "number", "absent": "absent"}
    entries |= {"vulkan": "full"}  # does not take the place of ours
    lines = [f"{name} = etscope_other_backends:{at}" for name, at in entries.items()]
    (information / "entry_points.txt").write_text("\n".join(["[etscope.backends]", *lines, ""]))
    (tmp_path / "etscope_other_backends.py").write_text(
        "from etscope.backends import Backend\n"
        "number = 3\n"
        "def partitioners(*, level: int = 2, quantize=False):\n"
        "    return [('partitioner', level, quantize)]\n"
        "full = Backend('of others', partitioners, quantizer=lambda: 'quantizer')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    exports._entries.cache_clear()
    yield tmp_path
    exports._entries.cache_clear()
    sys.modules.pop("etscope_other_backends", None)


@pytest.mark.usefixtures("package")
def test_backends_of_other_packages() -> None:
    (found,) = chosen("function", {"level": "7"})
    assert found.partitioners(quantize=True) == [("partitioner", 7, True)]
    (full,) = chosen("full")
    assert full.backend.summary == "of others"
    assert full.partitioners(quantize=False) == [("partitioner", 2, False)]
    assert full.quantizer() == "quantizer"
    assert chosen("vulkan")[0].backend is BACKENDS["vulkan"]
    with pytest.raises(UsageError, match="'number' of another package is neither"):
        chosen("number")
    with pytest.raises(UsageError, match="cannot load the backend 'absent'") as caught:
        chosen("absent")
    assert "etscope_other_backends:absent" in str(caught.value.hint)
    with pytest.raises(UsageError) as caught:
        chosen("nothing")
    assert "function" in str(caught.value.hint)


def test_a_missing_package_is_told_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Backend("x", lambda: [1], requires=("etscope_no_such_package",))
    monkeypatch.setitem(BACKENDS, "x", made)  # type: ignore[arg-type]
    with pytest.raises(MissingDependencyError, match="the backend 'x'"):
        chosen("x")[0].partitioners(quantize=False)


def test_the_table_imports_neither_torch_nor_executorch() -> None:
    code = (
        "import sys, etscope.backends as b\n"
        "b.chosen('vulkan,xnnpack', {'force_fp16': '1'})\n"
        "print(sorted({'torch', 'executorch', 'coremltools'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""`etscope check`, as a pull request calls it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import ANY
from xml.etree import ElementTree

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from xmlschema import XMLSchema

from etscope.capture import open_capture
from etscope.check import CheckOptions, Outcome, check, read_baseline, read_options
from etscope.cli import main
from etscope.errors import UsageError
from tests.support.artifacts import artifacts
from tests.support.cli.fixtures import Run
from tests.support.cli.fixtures import run as run_command
from tests.support.schemas import VALIDATORS
from tests.support.timed_dumps import timed_dump

__all__ = ["run_command"]

OK, WORSE, UNKNOWN, NONE = (one.value for one in (
    Outcome.OK, Outcome.WORSE, Outcome.CANNOT_TELL, Outcome.NOT_COMPARED
))  # fmt: skip
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def run(run_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, in a folder without a pyproject.toml."""
    monkeypatch.chdir(tmp_path)
    return partial(run_command, "check")


def rows(run: Run, *words: object) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the rows of the JSON by quantity."""
    code, out, _ = run(*words, "-f", "json")
    document = json.loads(out)
    assert document["exit_code"] == code
    return code, {row["quantity"]: row for row in document["rows"]}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a dump, its program and its record."""
    folder = tmp_path_factory.mktemp("sides")
    made = artifacts("cnn_portable")
    assert made.etdump_timing is not None
    runs: dict[str, dict[str, Any]] = {
        "base": {"seed": 1},
        "same": {"seed": 2},
        "slower": {"seed": 3, "slower": dict.fromkeys(range(24), 1.2)},
        "few": {"seed": 4, "runs": 7},
    }
    for name, options in runs.items():
        side = folder / name
        side.mkdir()
        timed_dump(made.etdump_timing, side / "model.etdp", **{"runs": 100, **options})
        shutil.copy(made.pte, side / "model.pte")
        shutil.copy(str(made.etrecord), side / "model.etrecord")
    for name in ("cnn_xnnpack", "cnn_xnnpack_int8", "cnn_portable_inserted"):
        side = folder / name
        side.mkdir()
        shutil.copy(artifacts(name).pte, side / "model.pte")
        shutil.copy(str(artifacts(name).etrecord), side / "model.etrecord")
    return folder_of(folder)


def folder_of(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir()}


# -- what needs no clock


def test_a_new_kernel_is_worse_with_its_line(run: Run, sides: dict[str, Path]) -> None:
    code, found = rows(run, sides["base"], sides["cnn_portable_inserted"])
    assert code == 1
    worse = {name for name, row in found.items() if row["outcome"] == WORSE}
    assert worse == {"kernels", "bytes"}
    (part,) = found["kernels"]["parts"]
    assert part["name"] == "aten::sigmoid.out" and "cnn.py:" in part["source"]
    assert found["time"]["outcome"] == UNKNOWN  # the base has a run
    allowed = "-X", "max_kernels=1", "-X", "max_bytes=20%", "--allow-unknown"
    code, found = rows(run, sides["base"], sides["cnn_portable_inserted"], *allowed)
    assert code == 0 and found["kernels"]["outcome"] == OK


def test_nodes_that_leave_a_delegate_are_named(run: Run, sides: dict[str, Path]) -> None:
    code, found = rows(run, sides["cnn_xnnpack"], sides["base"])
    row = found["delegated"]
    assert code == 1 and row["outcome"] == WORSE and row["new"] == 0
    assert row["change"] == pytest.approx(row["base"])
    assert ["cnn.py:" in part["source"] for part in row["parts"]] == [True] * 3
    assert found["time"]["outcome"] == NONE and "BASE" in found["time"]["reason"]


def test_bytes_that_int8_needs_more_are_worse_than_their_threshold(
    run: Run, sides: dict[str, Path]
) -> None:
    given = sides["cnn_xnnpack_int8"], sides["cnn_xnnpack"]
    _, found = rows(run, *given)
    size = [Path(side / "model.pte").stat().st_size for side in given]
    assert (found["size"]["base"], found["size"]["new"]) == tuple(size)
    assert found["size"]["change"] == pytest.approx(size[1] / size[0] - 1)
    growth = sum(part["value"] for part in found["size"]["parts"])
    assert 0.5 * (size[1] - size[0]) < growth <= size[1] - size[0]
    share = f"{100 * (size[1] / size[0] - 1):.1f}"
    for threshold, outcome in ((f"{share}%", OK), ("off", NONE), ("1%", WORSE)):
        limit = threshold if threshold != f"{share}%" else f"{float(share) + 0.1}%"
        _, found = rows(run, *given, "--max-size", limit)
        assert found["size"]["outcome"] == outcome, limit


def test_a_new_fault_fails_the_check(run: Run, tmp_path: Path) -> None:
    made = artifacts("net_xnnpack")
    for name, program in (("right", made.extra("right.pte")), ("wrong", made.extra("scale.pte"))):
        (tmp_path / name).mkdir()
        shutil.copy(program, tmp_path / name / "model.pte")
        shutil.copy(str(made.etrecord), tmp_path / name / "model.etrecord")
    code, found = rows(run, tmp_path / "right", tmp_path / "wrong")
    assert code == 1 and found["faults"]["outcome"] == WORSE
    (part,) = found["faults"]["parts"]
    assert part["name"] == "other-weights" and "weights are not the record's" in part["text"]
    assert rows(run, tmp_path / "wrong", tmp_path / "wrong")[1]["faults"]["outcome"] == OK


@pytest.mark.parametrize("name", ["cnn_portable", "cnn_xnnpack", "cnn_xnnpack_int8"])
def test_work_is_that_of_inspect(run_command: Run, name: str) -> None:
    made = artifacts(name)
    files = made.etdump_timing, made.pte, made.etrecord
    _, out, _ = run_command("inspect", *files, "--work", "-f", "json")
    total = json.loads(out)["rows"][-1]
    found = check(None, open_capture(*(path for path in files if path is not None))).new
    amounts = {one.quantity: one for one in found.amounts}
    assert amounts["flops"].value == total["flops"]
    assert amounts["bytes"].value == total["bytes"]
    for quantity in ("size", "flops", "bytes"):
        assert sum(p.value for p in amounts[quantity].parts) == amounts[quantity].value


# -- times


def test_a_slower_run_is_worse_with_its_operators(run: Run, sides: dict[str, Path]) -> None:
    code, found = rows(run, sides["base"], sides["same"])
    assert code == 0 and found["time"]["outcome"] == OK
    code, found = rows(run, sides["base"], sides["slower"])
    assert code == 1
    assert [name for name, row in found.items() if row["outcome"] == WORSE] == ["time"]
    time = found["time"]
    assert time["low"] < 0.2 < time["high"] and len(time["parts"]) == 3
    assert all("cnn.py:" in part["source"] for part in time["parts"])
    _, found = rows(run, sides["base"], sides["slower"], "--max-time", "30%")
    assert found["time"]["outcome"] == OK


def test_the_work_decides_where_the_clock_cannot(
    run: Run, sides: dict[str, Path], tmp_path: Path
) -> None:
    code, found = rows(run, sides["base"], sides["few"])
    assert code == 0 and "both ran the same program" in found["time"]["reason"]
    # Without the program nothing else decides.
    given = sides["base"] / "model.etdp", sides["few"] / "model.etdp"
    code, found = rows(run, *given)
    assert code == 4 and found["time"]["outcome"] == UNKNOWN
    assert rows(run, *given, "--allow-unknown")[0] == 0
    # Another operator: the few runs cannot tell, and the work is not the same.
    other = tmp_path / "other"
    shutil.copytree(sides["cnn_portable_inserted"], other)
    timed_dump(artifacts("cnn_portable_inserted").etdump, other / "model.etdp", runs=7)
    code, found = rows(run, sides["base"], other, "-X", "max_kernels=1", "-X", "max_bytes=20%")
    assert code == 4 and found["time"]["outcome"] == UNKNOWN
    # The reverse removes an operator, and adds none.
    code, found = rows(run, other, sides["few"])
    assert code == 0 and "no other operators" in found["time"]["reason"]


def test_times_of_other_machines_are_not_compared(
    run: Run, sides: dict[str, Path], tmp_path: Path
) -> None:
    for name, side, cpu in (("base", "base", "A1"), ("new", "slower", "B2")):
        folder = tmp_path / name
        folder.mkdir()
        shutil.copy(sides[side] / "model.etdp", folder / "run.etdp")
        conditions = {"cpu": cpu, "cpus": "0", "cores": 1, "governors": [], "load": 0.0}
        (folder / "run.json").write_text(json.dumps({"conditions": conditions}))
    code, found = rows(run, tmp_path / "base", tmp_path / "new")
    assert code == 4 and "the sides differ in processor: A1 and B2" in found["time"]["reason"]


# -- outputs


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a bundled program: four samples with expected outputs."""
    folder = tmp_path_factory.mktemp("samples")
    shutil.copy(str(artifacts("bundled").bpte), folder / "model.bpte")
    words = ["run", str(folder / "model.bpte"), "--iterations", "1", "--save", str(folder / "ran")]
    assert main(words) == 0
    return folder / "ran"


def test_the_worst_sample_has_a_threshold_of_its_own(
    run: Run, samples: Path, tmp_path: Path
) -> None:
    worse = shutil.copytree(samples, tmp_path / "worse")
    with np.load(samples / "outputs.npz") as file:
        outputs = {name: file[name] for name in file.files}
    name = next(one for one in outputs if one.startswith("2/"))
    noise = np.random.default_rng(0).standard_normal(outputs[name].shape)
    noise *= np.linalg.norm(outputs[name]) / np.linalg.norm(noise)
    for decibels, outcome in ((40, WORSE), (100, OK)):
        outputs[name] = (outputs[name] + noise * 10 ** (-decibels / 20)).astype(np.float32)
        np.savez(worse / "outputs.npz", **outputs)
        code, found = rows(run, samples, worse)
        assert found["sqnr"]["outcome"] == OK
        row = found["worst_sample"]
        assert (code, row["outcome"]) == (int(outcome == WORSE), outcome)
        if outcome == WORSE:
            assert row["new"] == pytest.approx(decibels, abs=0.5)
            assert [part["name"] for part in row["parts"]] == ["call 2"]
        with np.load(samples / "outputs.npz") as file:
            outputs[name] = file[name]


def test_new_nan_in_outputs_is_worse(run: Run, samples: Path, tmp_path: Path) -> None:
    broken = shutil.copytree(samples, tmp_path / "broken")
    with np.load(samples / "outputs.npz") as file:
        outputs = {name: file[name] for name in file.files}
    name = next(one for one in outputs if one.startswith("1/"))
    outputs[name].flat[0] = np.nan
    np.savez(broken / "outputs.npz", **outputs)
    code, found = rows(run, samples, broken)
    assert (code, found["worst_sample"]["outcome"]) == (1, WORSE)
    assert found["worst_sample"]["new"] == "nan"
    assert rows(run, broken, broken)[0] == rows(run, broken, samples)[0] == 0


def test_outputs_of_other_inputs_are_not_compared(run: Run, samples: Path, tmp_path: Path) -> None:
    assert rows(run, samples, samples)[0] == 0
    stored = tmp_path / "base.json"
    assert run(samples, "-o", stored)[0] == 0
    document = json.loads(stored.read_text())
    for amount in document["new"]["amounts"]:
        if amount["quantity"] == "sqnr":
            amount["basis"]["inputs"], amount["value"] = "other", 30.0
    stored.write_text(json.dumps(document))
    code, found = rows(run, stored, samples)
    assert code == 4 and "differ in inputs" in found["sqnr"]["reason"]


# -- baselines


def test_a_stored_baseline_gives_the_same_rows(run: Run, sides: dict[str, Path]) -> None:
    for base, new in (
        ("base", "slower"),
        ("cnn_xnnpack", "base"),
        ("cnn_xnnpack", "cnn_xnnpack_int8"),
    ):
        code, out, _ = run(sides[base], "-o", f"{base}.json")
        assert (code, out) == (0, "")
        live = rows(run, sides[base], sides[new])
        live[1]["time"]["command"] = ANY  # diff needs the files of BASE
        assert live == rows(run, f"{base}.json", sides[new])
        # The JSON of a check is a baseline, too.
        run(f"{base}.json", sides[new], "-o", "checked.json")
        assert live == rows(run, f"{base}.json", "checked.json")
        assert read_baseline("checked.json") == check(None, open_capture(sides[new])).new


def test_every_damage_of_a_baseline_is_a_bad_file(
    run: Run, sides: dict[str, Path], tmp_path: Path
) -> None:
    run(sides["base"], "-o", "base.json")
    whole = json.loads(Path("base.json").read_text())

    def damaged() -> Any:
        for key in ("schema", "new"):
            yield {name: value for name, value in whole.items() if name != key}
        for key in ("name", "paths", "operators", "missing"):
            yield {**whole, "new": {n: v for n, v in whole["new"].items() if n != key}}
        for key, value in (("name", 3), ("amounts", {}), ("operators", {"a": "b"}), ("paths", [])):
            yield {**whole, "new": {**whole["new"], key: value}}
        for key, value in (
            ("quantity", None), ("value", "much"), ("samples", ["a"]), ("parts", [{}]),
            ("basis", 1), ("quantity", "luck"), ("basis", {"clock": "h"}),
        ):  # fmt: skip
            first = {**whole["new"]["amounts"][-1], key: value}
            yield {**whole, "new": {**whole["new"], "amounts": [first]}}

    for document in damaged():
        Path("bad.json").write_text(json.dumps(document))
        code, out, err = run("bad.json", sides["base"])
        assert (code, out) == (3, "") and "bad.json" in err and "bug" not in err, err
        assert run("bad.json")[0] == 3
        assert not VALIDATORS["check"].is_valid(document), document
    Path("bad.json").write_text(json.dumps({**whole, "schema": "etscope.check/9"}))
    code, _, err = run("bad.json", sides["base"])
    assert code == 3 and "etscope.check/9" in err and "see:" in err
    Path("bad.json").write_text('{"schema": "etscope.check/1", "new"')
    assert run("bad.json", sides["base"])[0] == 3
    Path("bad.json").write_text('{"program": "model.pte"}')  # a run.json
    assert run("bad.json", sides["base"])[0] == 3


# -- mistakes


def test_mistakes(run: Run, sides: dict[str, Path], tmp_path: Path) -> None:
    base, other = sides["base"], artifacts("transformer_portable")
    for given, wanted, said in (
        ((base, other.pte), 3, "of different models"),
        ((base, other.etrecord), 4, "neither a program nor a run"),
        ((base, "nothing"), 2, "not found"),
        ((base, base, base), 2, ""),
        ((base, base, "-m", "backward"), 4, "backward"),
        ((base, base, "--max-size", "much"), 2, "max-size is 'much'"),
        ((base, base, "--max-size", "2"), 2, "2% or 0.02"),
        ((base, base, "--max-size", "-1%"), 2, "max-size"),
        ((base, base, "--max-size", "nan"), 2, "max-size"),
        ((base, base, "--max-time", "0%"), 2, "max-time"),
        ((base, base, "--max-sqnr-drop", "1%"), 2, "1dB"),
        ((base, base, "-X", "max_kernels=0.5"), 2, "max-kernels"),
        ((base, base, "--max-flops", "1%"), 2, "-X max_flops="),
    ):
        code, out, err = run(*given)
        assert (code, out) == (wanted, "") and said in err, (given, err)
    code, found = rows(run, base, other.pte, "--force")
    names = [part["name"].partition(":")[0] for part in found["interface"]["parts"]]
    assert code == 1 and names == ["forward input 0", "forward output 0"]
    # A quantity that was asked for is not a pass where a side lacks it.
    assert run(base / "model.pte", base / "model.pte")[0] == 0
    code, found = rows(run, base / "model.pte", base, "--max-time", "5%")
    assert code == 4 and found["time"]["outcome"] == UNKNOWN and "BASE" in found["time"]["reason"]


def test_the_table_of_pyproject_toml(run: Run, sides: dict[str, Path], tmp_path: Path) -> None:
    table = Path("pyproject.toml")
    given = sides["base"], sides["slower"]
    table.write_text('[tool.etscope.check]\nmax-time = "30%"\n')
    assert run(*given)[0] == 0
    assert run(*given, "--max-time", "5%")[0] == 1
    inner = tmp_path / "inner"
    inner.mkdir()
    assert read_options(inner) == CheckOptions(max_time="30%")
    for text, code, said in (
        ("[tool.other]\na = 1", 1, ""),
        ("[tool.etscope.check]\nmax-tim = 1", 2, "unknown key max-tim"),
        ('[tool.etscope.check]\nmax-time = "soon"', 2, "max-time is 'soon'"),
        ("[tool.etscope.check]\nmax-time = true", 2, "is not a text or number"),
        ("[tool.etscope.check]\nallow-unknown = 1", 2, "is not true or false"),
        ("[tool.etscope]\ncheck = 1", 2, "is not a table"),
        ("[tool.etscope.check", 3, "is not TOML"),
    ):
        table.write_text(text)
        found, _, err = run(*given)
        assert found == code and said in err, (text, err)
    with pytest.raises(UsageError, match="max-size"):
        check(None, open_capture(sides["base"]), max_size="x")


# -- what it writes


def test_markdown_is_short_and_folds_the_rest(run: Run, sides: dict[str, Path]) -> None:
    code, out, err = run(
        sides["cnn_xnnpack"], sides["base"], "-o", "comment.md", "-o", "new.json", "-o", "table.txt"
    )
    assert (code, out) == (1, "") and err.startswith("worse: ")
    head, _, rest = Path("comment.md").read_text().partition("\n")
    assert head.startswith("### ❌ etscope check: worse: ") and "planned memory" in head
    shown = rest.partition("<details>")[0]
    assert shown.count("\n| ") == 12  # the head, its line and ten quantities
    assert "| ❌ worse |" in shown and "cnn.py" not in shown
    assert rest.count("<details>") == rest.count("</details>") == 3 and "cnn.py:" in rest
    assert Path("table.txt").read_text().startswith("worse: ")
    code, out, _ = run("new.json", sides["base"], "-f", "md")
    assert code == 0 and out.startswith("### ✅ etscope check: ok")


@pytest.mark.parametrize("new", ["slower", "cnn_portable_inserted", "cnn_xnnpack"])
def test_the_commands_run(run_command: Run, sides: dict[str, Path], new: str) -> None:
    base = sides["cnn_xnnpack_int8" if new == "cnn_xnnpack" else "base"]
    found = check(open_capture(base), open_capture(sides[new]))
    assert found.commands()
    for command in found.commands().values():
        code, out, err = run_command(*shlex.split(command)[1:])
        assert code in (0, 1) and out and "error" not in err, command


def test_a_text_fits_the_terminal(
    run: Run, sides: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in (80, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        _, out, _ = run(sides["cnn_xnnpack"], sides["base"])
        table = out.partition("More on")[0]
        assert max(map(len, table.splitlines())) <= width


# -- for a CI


SARIF = Draft202012Validator(
    json.loads((ROOT / "tests" / "schemas" / "sarif-used.json").read_text()),
    format_checker=Draft202012Validator.FORMAT_CHECKER,
)


@pytest.fixture
def repository(sides: dict[str, Path], tmp_path: Path) -> Path:
    """A folder with the file of the model where its lines are, at the end of the export's path."""
    source = Path(str(part_source(sides)))
    place = tmp_path.joinpath(*source.parts[-2:])
    place.parent.mkdir()
    place.write_text("# The model.\n")
    return place.relative_to(tmp_path)


def part_source(sides: dict[str, Path]) -> str:
    found = check(open_capture(sides["cnn_xnnpack"]), open_capture(sides["base"]))
    (row,) = (row for row in found.rows if row.quantity.name == "delegated")
    return str(row.parts[0].source).rpartition(":")[0]


def test_sarif_stands_at_lines_of_the_repository(
    run: Run, sides: dict[str, Path], repository: Path
) -> None:
    code, out, _ = run(sides["cnn_xnnpack"], sides["base"], "-f", "sarif")
    document = json.loads(out)
    SARIF.validate(document)
    ((run_of_tool,), rules) = document["runs"], document["runs"][0]["tool"]["driver"]["rules"]
    _, found = rows(run, sides["cnn_xnnpack"], sides["base"])
    wanted = {name: "error" for name, row in found.items() if row["outcome"] == WORSE}
    assert code == 1 and {r["ruleId"]: r["level"] for r in run_of_tool["results"]} == wanted
    for result in run_of_tool["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        if result["ruleId"] == "delegated":
            places = [one["physicalLocation"] for one in result["locations"]]
            assert {one["artifactLocation"]["uri"] for one in places} == {repository.as_posix()}
            lines = [part["source"].rpartition(":")[2] for part in found["delegated"]["parts"]]
            assert [str(p["region"]["startLine"]) for p in places] == list(dict.fromkeys(lines))


def test_junit_has_a_case_for_each_quantity(run: Run, sides: dict[str, Path]) -> None:
    xsd = XMLSchema(ROOT / "tests" / "schemas" / "junit-10.xsd")
    for words, errors in (((), 1), (("--allow-unknown",), 0)):
        given = sides["base"], sides["cnn_portable_inserted"], *words
        _, out, _ = run(*given, "-f", "junit")
        xsd.validate(out)
        suite = ElementTree.fromstring(out.encode())[0]
        _, found = rows(run, *given)
        outcomes = [row["outcome"] for row in found.values()]
        assert [case.attrib["name"] for case in suite] == [r["title"] for r in found.values()]
        numbers = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors")}
        assert numbers == {
            "tests": len(found), "failures": outcomes.count(WORSE), "errors": errors,
        }  # fmt: skip
        assert "aten::sigmoid.out" in out and "cnn.py:" in out


def test_annotations_of_one_line_are_one(
    run: Run, sides: dict[str, Path], repository: Path
) -> None:
    code, out, _ = run(sides["cnn_xnnpack"], sides["base"], "-f", "github")
    *commands, headline = out.splitlines()
    assert code == 1 and headline.startswith("worse: ")
    pattern = r"::(error|warning) (?:file=([^,:]+),line=(\d+),)?title=etscope check::(.+)"
    found = [re.fullmatch(pattern, line) for line in commands]
    assert all(found), out
    places = [match.group(1, 2, 3) for match in found if match is not None]
    assert len(set(places)) == len(places)
    assert repository.as_posix() in [place[1] for place in places]
    told = " ".join(match[4] for match in found if match is not None)
    assert "delegated share: worse" in told and "%25" in told and "%0A" in told


def test_hostile_names_stay_data(run: Run, sides: dict[str, Path], tmp_path: Path) -> None:
    run(sides["base"], "-o", "base.json")
    run("base.json", sides["cnn_portable_inserted"], "-o", "new.json")
    document = json.loads(Path("new.json").read_text())
    evil = "a\n::error::b%0A<script>`|@x\r\u001b[31m\ud800"
    for amount in document["new"]["amounts"]:
        amount["parts"] += [
            {"name": evil, "value": 1e9, "module": evil, "source": f"/../../{evil}.py:3"}
        ]
    Path("new.json").write_text(json.dumps(document))
    for format in ("table", "md", "json", "sarif", "junit", "github"):
        code, out, _ = run("base.json", "new.json", "-f", format)
        assert code == 1 and "\x1b" not in out and "\r" not in out
        assert not any(line.startswith("::error::b") for line in out.splitlines())
        if format == "md":
            assert "<script>" not in out
        if format == "junit":
            ElementTree.fromstring(out.encode())
        if format == "sarif":
            SARIF.validate(json.loads(out))


def test_a_method_of_a_baseline(run: Run, sides: dict[str, Path]) -> None:
    run(sides["base"], "-o", "base.json")
    assert rows(run, "base.json", sides["same"], "-m", "forward")[0] == 0
    code, _, err = run("base.json", sides["same"], "-m", "backward")
    assert code == 4 and "no method 'backward'" in err

"""etdb in an editor: a scripted client over standard input and output; each message that it gets is
checked against the protocol's schema."""

from __future__ import annotations

import base64
import io
import random
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")
pytest.importorskip("debugpy")  # has the schema

from etscope.errors import FormatError  # noqa: E402
from etscope.etdb.dap.adapter import REQUESTS as ADAPTER  # noqa: E402
from etscope.etdb.dap.framing import Channel  # noqa: E402
from etscope.export import export  # noqa: E402
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.etdb import lookup  # noqa: E402
from tests.support.etdb.dap_client import Client  # noqa: E402
from tests.support.etdb.lookup import Lookup, write_lookup  # noqa: E402
from tests.support.etdb.server import children, serving, state_of  # noqa: E402
from tests.support.rogue_programs import endless  # noqa: E402
from tests.support.waiting import until  # noqa: E402

SOURCE = lookup.__file__
LINES = Path(SOURCE).read_text().splitlines()


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES, 1) if text in line)


SCALED, WORDS, SUM = (
    line_of(text) for text in ("self.scale(x)", "self.words(index)", "torch.relu(")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("dap")
    write_lookup(found)
    with np.load(found / "known.npz") as known:
        numbers, index = (known[name] for name in known.files)
    numbers[1, 2] = np.nan
    np.savez(found / "nan.npz", numbers, index)
    return found


def _first_inputs(artifact: Any) -> Path:
    """The inputs of an artefact's first call, as a file."""
    path: Path = artifact.inputs.with_name("first.npz")
    if not path.exists():
        with np.load(artifact.inputs) as arrays:
            np.savez(path, *(arrays[key] for key in arrays.files if key.split("/")[1] == "0"))
    return path


def opened(client: Client, folder: Path, inputs: str = "known", **more: Any) -> None:
    files = folder / "model.etrecord", folder / "model.pte"
    client.launch(*files, inputs=folder / f"{inputs}.npz", **more)


def lines(client: Client, *wanted: dict[str, Any]) -> list[dict[str, Any]]:
    body = client.ask("setBreakpoints", source={"path": SOURCE}, breakpoints=list(wanted))
    found: list[dict[str, Any]] = body["breakpoints"]
    return found


def begun(client: Client) -> dict[str, Any]:
    client.ask("configurationDone")
    return client.event("stopped")


def test_to_a_nan_back_to_what_made_it_and_on_with_another_value(folder: Path) -> None:
    with Client() as client:
        opened(client, folder, "nan")
        assert [
            one["verified"] for one in lines(client, {"line": SUM, "condition": "isnan($)"})
        ] == [True]
        stopped = begun(client)
        assert stopped["reason"] == "breakpoint" and len(stopped["hitBreakpointIds"]) == 1
        name, line = client.where()
        assert name.startswith("aten_add_tensor in forward") and line == SUM
        read = client.variables("Inputs")
        assert list(read) == ["aten_addmm_default", "aten_embedding_default"]
        assert "6 NaN" not in read["aten_embedding_default"]["value"]
        assert "NaN" in read["aten_addmm_default"]["value"]
        assert client.move("stepBack")["reason"] == "step"
        client.move("stepBack")
        assert client.where()[1] == SCALED
        reference = client.variables("Reference")
        assert "NaN" in reference["ref($)"]["value"]  # PyTorch has it, too: the inputs are wrong
        output = client.variables("Output")["$"]
        rows = client.children(output["variablesReference"])
        assert list(rows)[:6] == ["min", "max", "mean", "std", "NaN", "Inf"]
        assert rows["NaN"]["value"] == "4"
        client.ask("setExpression", expression=rows["[1]"]["evaluateName"], value="0")
        lines(client)
        client.ask("continue", threadId=1)
        assert client.event("stopped")["description"] == "run 0 is over"
        answer = client.ask("evaluate", expression="print aten_relu_default", context="repl")
        assert "NaN" not in answer["result"].splitlines()[0]
        client.ask("disconnect")
        assert client.receive() is not None  # terminated
        assert client.process.wait(30) == 0


@pytest.mark.parametrize("target", ["runtime", "live"])
def test_values_are_those_of_pytorch(folder: Path, target: str) -> None:
    torch.manual_seed(0)
    model = Lookup().eval()
    with np.load(folder / "known.npz") as known:
        x, index = (torch.from_numpy(known[name]) for name in known.files)
    with torch.no_grad():
        expected = {SCALED: model.scale(x), WORDS: model.words(index), SUM: model(x, index)}
    compared = 0
    with Client() as client:
        opened(client, folder, target=target, stopOnEntry=True)
        assert begun(client)["reason"] == "entry"
        ends: dict[int, list[list[float]]] = {}
        while client.where()[0] != "the run is over":
            line = client.where()[1]
            tensor = client.variables("Output")["$"]
            rows = client.children(tensor["variablesReference"], filter="indexed")
            ends[line] = [
                [float(one["value"]) for one in client.children(row["variablesReference"]).values()
                 if one["name"].startswith("[")]
                for row in rows.values()
            ]  # fmt: skip
            client.move("stepIn")
        for line, values in expected.items():
            np.testing.assert_allclose(ends[line], values.numpy(), rtol=2e-4, atol=1e-5)
            compared += values.numel()
    assert compared == 36


def test_breakpoints_of_all_kinds(folder: Path) -> None:
    with Client() as client:
        opened(client, folder)
        no, own = lines(client, {"line": 1}, {"line": WORDS, "logMessage": "words {$.shape[0]}"})
        assert not no["verified"] and "nearest line" in no["message"] and own["verified"]
        body = client.ask(
            "setFunctionBreakpoints", breakpoints=[{"name": "op:relu"}, {"name": "x:"}]
        )
        assert [one["verified"] for one in body["breakpoints"]] == [True, False]
        info = client.ask("dataBreakpointInfo", name="aten_addmm_default")
        client.ask("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])
        assert client.ask("dataBreakpointInfo", name="nowhere")["dataId"] is None
        asked = {"filterId": "divergence", "condition": "gap(max_abs) > 1e9"}
        client.ask("setExceptionBreakpoints", filters=["nan"], filterOptions=[asked])
        assert begun(client)["reason"] == "data breakpoint"
        assert client.where()[1] == SCALED
        assert client.move("continue")["reason"] == "function breakpoint"
        assert client.where()[0].startswith("aten_relu_default")
        assert "words 3\n" in client.console
        client.ask("setFunctionBreakpoints", breakpoints=[])
        client.ask("setDataBreakpoints", breakpoints=[])
        client.ask("setExceptionBreakpoints", filters=[], filterOptions=[
            {"filterId": "divergence", "condition": "$.max() > -1e9"}])  # fmt: skip
        assert client.move("reverseContinue")["reason"] == "exception"
        assert client.where()[0].startswith("aten_add_tensor")
        assert "$.max() > -1e9" in client.ask("exceptionInfo", threadId=1)["exceptionId"]
        assert lines(client, {"line": WORDS, "hitCondition": "2"})[0]["verified"]
        client.ask("setExceptionBreakpoints", filters=[])
        client.ask("restart")
        assert (
            client.event("stopped")["description"] == "run 0 is over"
        )  # the second hit never came


def test_an_operator_that_fails_is_an_exception(folder: Path) -> None:
    with Client() as client:
        opened(client, folder, "unknown")
        stopped = begun(client)
        assert stopped["reason"] == "exception" and "aten_embedding_default" in stopped["text"]
        assert client.where()[1] == WORDS
        assert "99 >= weight" in client.ask("exceptionInfo", threadId=1)["description"]
        assert "it has no value" in client.variables("Output")["$"]["value"]
        client.move("stepBack")
        assert client.where()[1] == SCALED


def test_a_recorded_run_and_what_is_asked_of_it() -> None:
    artifact = artifacts("cnn_portable")
    assert artifact.etdump is not None and artifact.debug_buffer is not None
    with Client() as client:
        client.launch(artifact.etrecord, artifact.etdump, artifact.debug_buffer, stopOnEntry=True)
        begun(client)
        (source, *_) = client.ask("loadedSources")["sources"]
        if reference := source.get("sourceReference"):
            assert client.ask("source", sourceReference=reference)["content"]
        assert client.ask("modules")["totalModules"] > 1
        targets = client.ask("completions", text="break op:soft", column=14)["targets"]
        assert {"label": "op:_softmax", "start": 6, "length": 7} in targets or targets
        old = client.variables("Output")["$"]["variablesReference"]
        client.move("next")
        assert "earlier stop" in client.refused("variables", variablesReference=old + 1000)
        assert "cannot be changed" in client.refused("setExpression", expression="$", value="0")
        assert "no value is called" in client.refused("evaluate", expression="nowhere")
        answer = client.ask("evaluate", expression="step", context="repl")
        assert "[2]" in answer["result"] and client.event("stopped")["reason"] == "step"


@pytest.fixture
def recorded() -> Iterator[Client]:
    """A client at the first operator of a recorded run."""
    artifact = artifacts("cnn_portable")
    assert artifact.etdump is not None and artifact.debug_buffer is not None
    with Client() as client:
        client.launch(
            artifact.etrecord, artifact.pte, artifact.etdump, artifact.debug_buffer,
            stopOnEntry=True, inputs=_first_inputs(artifact),
        )  # fmt: skip
        begun(client)
        yield client


def operator(client: Client) -> str:
    return client.where()[0].split()[0]


def test_goto_and_the_restart_of_a_frame(recorded: Client) -> None:
    source = {"path": recorded.ask("loadedSources")["sources"][0]["path"]}
    line = recorded.where()[1]
    targets = recorded.ask("gotoTargets", source=source, line=line)["targets"]
    assert len(targets) == 18 and "aten_convolution_default" in targets[0]["label"]
    assert recorded.move("goto", targetId=targets[-1]["id"])["reason"] == "goto"
    assert operator(recorded) == "aten_relu_default_5"
    frames = recorded.ask("stackTrace", threadId=1)["stackFrames"]
    assert [one["moduleId"] for one in frames] == ["stages.2.second", "stages.2", "(root)"]
    for frame, wanted in zip(
        frames,
        ("aten_convolution_default_5", "aten_convolution_default_4", "aten_convolution_default"),
        strict=True,
    ):
        recorded.move("restartFrame", frameId=frame["id"])
        assert operator(recorded) == wanted
        recorded.move("goto", targetId=targets[-1]["id"])
    assert "nearest line" in recorded.refused("gotoTargets", source=source, line=1)
    recorded.ask("goto", threadId=1, targetId=10**6)
    recorded.event("stopped")
    assert "stop 1000000 does not exist" in recorded.console
    assert operator(recorded) == "aten_relu_default_5"


def test_instructions_have_breakpoints_and_lines(recorded: Client) -> None:
    found = recorded.ask(
        "disassemble", memoryReference="20", instructionOffset=-1, instructionCount=6
    )["instructions"]
    assert [one["address"] for one in found] == ["19", "20", "21", "22", "23", "24"]
    assert found[1]["symbol"] == "aten_avg_pool2d_default"
    assert "native_call_avg_pool2d.out" in found[1]["instruction"]
    assert Path(found[1]["location"]["path"]).name == "cnn.py" and found[1]["line"]
    assert found[-1]["presentationHint"] == "invalid"
    wanted = [{"instructionReference": "18", "offset": 2}, {"instructionReference": "0x99"},
              {"instructionReference": "x"}]  # fmt: skip
    points = recorded.ask("setInstructionBreakpoints", breakpoints=wanted)["breakpoints"]
    assert [one["verified"] for one in points] == [True, False, False]
    assert recorded.move("continue")["reason"] == "instruction breakpoint"
    assert operator(recorded) == "aten_avg_pool2d_default"


def test_the_bytes_of_a_tensor(recorded: Client) -> None:
    variable = recorded.variables("Output")["$"]
    reference = variable["memoryReference"]
    read = recorded.ask("readMemory", memoryReference=reference, offset=6, count=8)
    whole = recorded.ask("readMemory", memoryReference=reference, count=1 << 40)
    content = base64.b64decode(whole["data"])
    assert base64.b64decode(read["data"]) == content[6:14] and read["address"] == "6"
    numbers = np.frombuffer(content, np.float32)
    assert len(numbers) == 8 * 16 * 16
    first = recorded.ask("evaluate", expression="$[0, 0, 0, 0]")["result"]
    assert float(first) == pytest.approx(float(numbers[0]), rel=1e-4)
    beyond = recorded.ask("readMemory", memoryReference=reference, offset=1 << 20, count=4)
    assert beyond == {"address": str(1 << 20), "unreadableBytes": 4}
    assert "is not a tensor" in recorded.refused("readMemory", memoryReference="1 + 1", count=4)


def test_pytorch_is_a_second_thread(recorded: Client) -> None:
    names = [one["name"] for one in recorded.ask("threads")["threads"]]
    assert names == ["forward, run 1 (recorded)", "the same in PyTorch"]
    frames = recorded.ask("stackTrace", threadId=2)["stackFrames"]
    ids = {one["id"] for one in recorded.ask("stackTrace", threadId=1)["stackFrames"]}
    assert ids.isdisjoint(one["id"] for one in frames)
    (scope,) = [one for one in recorded.ask("scopes", frameId=frames[0]["id"])["scopes"]
                if one["name"] == "Output"]  # fmt: skip
    reference = recorded.children(scope["variablesReference"])["$"]
    assert reference["evaluateName"] == "ref()"
    device = recorded.variables("Output")["$"]
    assert reference["type"] == device["type"]
    stopped = recorded.move("next", threadId=2)
    assert stopped["threadId"] == 2 and stopped["allThreadsStopped"]


def test_names_of_python_have_values(folder: Path) -> None:
    with Client() as client:
        opened(client, folder, stopOnEntry=True)
        begun(client)
        assert list(client.variables("Locals")) == ["x", "index"]
        lines(client, {"line": SUM})
        client.move("continue")
        assert list(client.variables("Locals")) == ["x", "index", "scaled", "words"]
        frame = {"frameId": 1, "context": "hover"}
        for name, node in (("scaled", "aten_addmm_default"), ("words", "aten_embedding_default")):
            hover = client.ask("evaluate", expression=name, **frame)
            assert hover["result"] == client.ask("evaluate", expression=node)["result"]
        answer = client.ask("evaluate", expression="info locals", context="repl")["result"]
        assert re.search(r"words +aten_embedding_default", answer)


LOOP = """
import torch


class Loop(torch.nn.Module):
    def forward(self, x):
        for _ in range(4):
            x = torch.relu(x + x)  # two operators each
        return x
"""


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loop")
    (folder / "loop.py").write_text(LOOP)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        from loop import Loop  # type: ignore[import-not-found]

        export(Loop().eval(), (torch.ones(40),)).save(folder, "loop", bundle=False)
    np.savez(folder / "drawn.npz", np.random.default_rng(0).normal(0, 3, 40).astype(np.float32))
    return folder


def test_a_line_of_a_loop_is_hit_once_each_time(loop: Path) -> None:
    def set_line(**of: object) -> None:
        client.ask(
            "setBreakpoints",
            source={"path": str(loop / "loop.py")},
            breakpoints=[{"line": 8, **of}],
        )

    with Client() as client:
        client.launch(loop / "loop.etrecord", loop / "loop.pte")
        for count, names in (("1", ["add_tensor", "relu_default"]), ("3", ["add_tensor_2"])):
            set_line(hitCondition=count)
            client.ask("restart")
            for name in names:
                assert client.event("stopped")["reason"] == "breakpoint"
                assert operator(client) == f"aten_{name}"
                client.ask("continue", threadId=1)
            client.event("stopped")
        set_line(hitCondition="2", condition="$.max() > 3")
        client.ask("restart")
        client.event("stopped")
        assert operator(client) == "aten_add_tensor_2"


@pytest.mark.parametrize("target", ["runtime", "live"])
def test_the_bytes_of_every_operator_are_those_of_eager_pytorch(loop: Path, target: str) -> None:
    with np.load(loop / "drawn.npz") as drawn:
        (x,) = (torch.from_numpy(drawn[name]) for name in drawn.files)
    expected = []
    for _ in range(4):
        expected += [x + x, torch.relu(x + x)]
        x = expected[-1]
    found = []
    with Client() as client:
        files = loop / "loop.etrecord", loop / "loop.pte"
        client.launch(*files, inputs=loop / "drawn.npz", target=target, stopOnEntry=True)
        begun(client)
        for _ in expected:
            (reference,) = (one["memoryReference"] for one in client.variables("Output").values())
            data = client.ask("readMemory", memoryReference=reference, count=1 << 10)["data"]
            found.append(np.frombuffer(base64.b64decode(data), np.float32))
            client.move("stepIn")
    # Additions of floats and relu are exact in IEEE 754, so that all bits are equal.
    np.testing.assert_array_equal(found, [one.numpy() for one in expected])
    assert sum(one.size for one in found) == 320


def test_a_request_that_waits_is_cancelled(tmp_path: Path) -> None:
    program = endless(tmp_path)
    np.savez(tmp_path / "in.npz", np.ones(1 << 16, np.float32))
    with Client() as client:
        client.ask("initialize", adapterID="etdb", supportsProgressReporting=True)
        client.ask("launch", files=[str(program)], inputs=[str(tmp_path / "in.npz")])
        assert client.event("progressStart")["title"] == "etdb: opening the files"
        client.event("progressEnd")
        client.event("initialized")
        running = client.answer("configurationDone")["request_seq"]  # and the run has no end
        waiting = client.send("modules")
        client.send("cancel", {"requestId": waiting})
        client.send("cancel", {"requestId": running})
        answers: dict[str, bool] = {}
        while "modules" not in answers:
            message = client.receive()
            assert message is not None
            if message["type"] == "response":
                answers[message["command"]] = message["success"]
            else:
                client.events.append(message)
        assert answers == {"cancel": True, "modules": False}
        assert client.event("stopped")["reason"] == "pause"


@pytest.mark.parametrize("ending", ["pause", "restart", "disconnect"])
def test_a_run_without_an_end_is_ended(tmp_path: Path, ending: str) -> None:
    program = endless(tmp_path)
    np.savez(tmp_path / "in.npz", np.ones(1 << 16, np.float32))
    with Client() as client:
        client.launch(program, inputs=tmp_path / "in.npz", stopOnEntry=ending == "restart")
        if ending == "restart":
            assert begun(client)["reason"] == "entry"
            client.ask("continue", threadId=1)
        else:
            client.ask("configurationDone")
        client.ask(ending)
        if ending != "disconnect":
            assert client.event("stopped")["reason"] == "pause"
        if ending == "restart":
            assert client.event("stopped")["reason"] == "entry"
        if ending == "disconnect":
            while client.receive() is not None:
                pass
            assert client.process.wait(100) == 0


REQUESTS = [*sorted({*ADAPTER} - {"disconnect", "terminate"}), "cancel", "nothing"]
VALUES = [None, -1, 0, 1, 7, 1 << 70, 0.5, "", "x", "$", "aten_addmm_default", "print $", [], {},
          [1], ["x"], {"path": SOURCE}, [{"line": 1}], [{"name": "op:relu"}], "2", True, SUM,
          [{"instructionReference": "2", "hitCondition": "2"}], "hover", "repl"]  # fmt: skip
NAMES = re.findall(
    r"\w+",
    """files inputs target source breakpoints filters filterOptions name value
    variablesReference expression context frameId start count text column sourceReference line
    targetId threadId memoryReference offset instructionCount instructionOffset requestId""",
)
# The arguments that a request needs: a client that is sound but for one or two of them.
SOUND = {
    "setBreakpoints": {"source": {"path": SOURCE}, "breakpoints": [{"line": SUM}]},
    "setFunctionBreakpoints": {"breakpoints": [{"name": "op:relu"}]},
    "setInstructionBreakpoints": {"breakpoints": [{"instructionReference": "2"}]},
    "setExceptionBreakpoints": {"filters": ["nan"]},
    "dataBreakpointInfo": {"name": "aten_addmm_default"},
    "setDataBreakpoints": {"breakpoints": [{"dataId": "aten_addmm_default"}]},
    "scopes": {"frameId": 1},
    "variables": {"variablesReference": 1},
    "evaluate": {"expression": "$.max()", "frameId": 1},
    "setVariable": {"variablesReference": 1, "name": "$", "value": "0"},
    "setExpression": {"expression": "$[0]", "value": "1"},
    "gotoTargets": {"source": {"path": SOURCE}, "line": SUM},
    "goto": {"targetId": 1},
    "restartFrame": {"frameId": 1},
    "readMemory": {"memoryReference": "$", "count": 8},
    "disassemble": {"memoryReference": "0", "instructionCount": 3},
    "completions": {"text": "print a", "column": 8},
    "cancel": {"requestId": 1},
}


def drawn(chance: random.Random) -> tuple[str, Any]:
    """A request: sound, or with other arguments."""
    command = chance.choice(REQUESTS)
    arguments: Any = dict(SOUND.get(command, {"threadId": 1}))
    kind = chance.random()
    if kind < 0.1:
        return command, chance.choice(VALUES)
    if kind < 0.6:
        for name in chance.sample(NAMES, chance.randrange(4)):
            arguments[name] = chance.choice(VALUES)
    return command, arguments


def is_sound(client: Client, chance: random.Random, count: int) -> None:
    """Ask `count` requests in a row; each must have an answer of the schema, which is no bug."""
    for _ in range(count):
        command, arguments = drawn(chance)
        answer = client.answer(command, arguments)
        assert "a bug of etdb" not in answer.get("message", ""), (command, arguments, answer)


@pytest.mark.parametrize(
    "sequences", [24, pytest.param(1000, marks=pytest.mark.nightly)], ids=["24", "1000"]
)
def test_sequences_of_requests_end_in_answers(folder: Path, sequences: int) -> None:
    seed = 20261129 if sequences < 100 else random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for first in range(0, sequences, 6):
        # A sequence is of a session; a session at its entry again is as good as a new one.
        with Client() as client:
            opened(client, folder, target=("runtime", "live")[first // 6 % 2], stopOnEntry=True)
            begun(client)
            for _ in range(6):
                is_sound(client, chance, chance.randrange(5, 25))
                client.answer("restart")
            client.answer("disconnect")
            while client.receive() is not None:
                pass
            assert client.process.wait(100) == 0


def test_what_is_asked_before_a_session_is_answered() -> None:
    with Client() as client:
        is_sound(client, random.Random(20261129), 100)
        assert client.answer(["not text"])["success"] is False


@pytest.mark.parametrize(
    ("received", "told"),
    [
        (b"", None),
        (b"Content-Length: 5\r\n\r\n{", None),  # cut off
        (b"Content-Le", None),
        (b"GET / HTTP/1.1\r\n\r\n", "no Content-Length"),
        (b"Content-Length: 99999999999\r\n\r\n", "a length of"),
        (b"Content-Length: -3\r\n\r\n", "a length of"),
        (b"A: b\r\n" * 2000, "too large"),
        (b"Content-Length: 3\r\n\r\n{x}", "broken JSON"),
    ],
)
def test_what_is_not_a_message_ends_the_stream(received: bytes, told: str | None) -> None:
    channel = Channel(io.BytesIO(received), io.BytesIO())
    if told is None:
        assert list(channel.messages()) == []
    else:
        with pytest.raises(FormatError, match=told):
            list(channel.messages())


def test_a_client_that_goes_leaves_no_process() -> None:
    with Client(sys.executable) as client:
        assert client.process.stdin is not None
        client.process.stdin.write(b"GET / HTTP/1.1\r\n\r\n")
        client.process.stdin.close()
        assert client.process.wait(100) == 0
        client.process.stdin = None


@pytest.mark.parametrize("request_name", ["launch", "attach"])
def test_a_client_that_goes_leaves_no_runner(tmp_path: Path, request_name: str) -> None:
    program = endless(tmp_path)
    np.savez(tmp_path / "in.npz", np.ones(1 << 16, np.float32))
    with ExitStack() as stack:
        server = stack.enter_context(serving()) if request_name == "attach" else None
        client = stack.enter_context(Client(sys.executable))
        client.ask("initialize", adapterID="etdb")
        target = "runtime" if server is None else f"remote 127.0.0.1:{server.port}"
        given = {"files": [str(program)], "inputs": [str(tmp_path / "in.npz")], "target": target}
        client.ask(request_name, **given)
        client.event("initialized")
        parent = client.process.pid if server is None else server.process.pid
        runners = children(parent)
        assert runners
        client.ask("configurationDone")  # and the run has no end
        assert client.process.stdin is not None
        client.process.stdin.close()
        assert client.process.wait(100) == 0
        client.process.stdin = None
        until(lambda: all(state_of(pid) == "Z" for pid in runners))


def test_a_socket_of_this_machine() -> None:
    command = [sys.executable, "-m", "etscope.etdb", "--dap", "--listen", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        port = int(process.stderr.readline().rpartition(b":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            content = b'{"seq": 1, "type": "request", "command": "initialize"}'
            client.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(content), content))
            assert b"supportsStepBack" in client.recv(65536)
        assert process.wait(30) == 0

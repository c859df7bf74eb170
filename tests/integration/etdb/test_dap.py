"""etdb in an editor: a scripted client over standard input and output; each message that it gets is
checked against the protocol's schema."""

from __future__ import annotations

import io
import random
import re
import socket
import subprocess
import sys
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
from tests.support.artifacts import artifacts  # noqa: E402
from tests.support.etdb import lookup  # noqa: E402
from tests.support.etdb.dap_client import Client  # noqa: E402
from tests.support.etdb.lookup import Lookup, write_lookup  # noqa: E402
from tests.support.rogue_programs import endless  # noqa: E402

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
        while client.ask("stackTrace", threadId=1)["stackFrames"][0]["line"]:
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
        assert client.move("continue")["reason"] == "breakpoint"
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
            assert client.process.wait(30) == 0


REQUESTS = [*sorted({*ADAPTER} - {"disconnect", "terminate"}), "goto", "readMemory", "nothing"]
VALUES = [None, -1, 0, 1, 7, 1 << 70, 0.5, "", "x", "$", "aten_addmm_default", "print $", [], {},
          [1], ["x"], {"path": SOURCE}, [{"line": 1}], [{"name": "op:relu"}], True]  # fmt: skip
NAMES = re.findall(
    r"\w+",
    """files inputs target source breakpoints filters filterOptions name value
    variablesReference expression context frameId start count text column sourceReference""",
)


@pytest.mark.parametrize("is_open", [False, True])
def test_whatever_is_asked_is_answered(folder: Path, is_open: bool) -> None:
    chance = random.Random(20261129)
    with Client() as client:
        if is_open:
            opened(client, folder)
        for _ in range(200):
            names = chance.sample(NAMES, chance.randrange(5))
            arguments: Any = {name: chance.choice(VALUES) for name in names}
            if chance.random() < 0.1:
                arguments = chance.choice(VALUES)
            command = chance.choice(REQUESTS)
            answer = client.answer(command, arguments)
            assert "a bug of etdb" not in answer.get("message", ""), (command, arguments)
        assert client.answer(["not text"])["success"] is False
        client.answer("disconnect")
        while client.receive() is not None:
            pass
        assert client.process.wait(30) == 0


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
    with Client() as client:
        assert client.process.stdin is not None
        client.process.stdin.write(b"GET / HTTP/1.1\r\n\r\n")
        client.process.stdin.close()
        assert client.process.wait(30) == 0
        client.process.stdin = None


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

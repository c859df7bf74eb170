"""A scripted agent, with the protocol's own client: it answers questions from tools' answers only.

The right answers come from elsewhere: from what was planted, or from the files by the library.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.from_thread
import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("mcp")

import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client

from etscope import parse_etrecord
from etscope.agent.answers import LIMIT
from etscope.agent.server import server
from etscope.analysis.profile.trace import Trace
from etscope.capture import open_capture
from etscope.formats.program.pte import read_pte
from tests.support.artifacts import artifacts
from tests.support.explain.scoring import KINDS
from tests.support.ports import free_port
from tests.support.waiting import until
from tests.unit.views.page.test_document import HOSTILE, hostile_dump

FAULTS = (1, 3, 7, 12, 11, 39)  # the last two give NaN
SLOW = ("mobile_CNN", "repeated_heads", "norm_in_parts", "mask_in_each_call", "matrix_in_bfloat16")
CALLS = 6  # of tools, for a question


@dataclass
class Agent:
    """Calls tools, and notes the calls and the size of each answer."""

    call_tool: Callable[..., Any]
    calls: int = 0

    def __call__(self, tool: str, **arguments: Any) -> Any:
        """The data of a tool's answer."""
        return self.answer(tool, **arguments)["data"]

    def answer(self, tool: str, **arguments: Any) -> Any:
        text, is_error = self.text(tool, **arguments)
        assert not is_error, text
        return json.loads(text)

    def text(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        self.calls += 1
        result = self.call_tool(tool, arguments)
        (content,) = result.content
        assert len(content.text) <= LIMIT
        return content.text, bool(result.is_error)

    def column(self, run: str, query: str) -> list[Any]:
        return [row[0] for row in self("sql", run=run, query=query)["rows"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of ten runs."""
    made = tmp_path_factory.mktemp("agent")
    for name in SLOW:
        shutil.copytree(artifacts(f"explained_{name}").folder, made / name)
    for number in FAULTS:
        found = artifacts(f"fault_portable_{number}")
        run = made / f"fault_{number}"
        run.mkdir()
        shutil.copy(found.extra("wrong.etdp"), run / "run.etdp")
        shutil.copy(found.extra("wrong.bin"), run / "debug.bin")
        shutil.copy(found.etrecord, run / "model.etrecord")
    cnn = artifacts("cnn_xnnpack")
    (made / "cnn").mkdir()
    shutil.copy(cnn.etdump, made / "cnn" / "run.etdp")
    shutil.copy(cnn.debug_buffer, made / "cnn" / "debug.bin")
    shutil.copy(cnn.etrecord, made / "cnn" / "model.etrecord")
    shutil.copy(cnn.pte, made / "cnn" / "model.pte")
    (made / "hostile").mkdir()
    (made / "hostile" / "run.etdp").write_bytes(hostile_dump())
    (made / "net.py").write_text("def forward(x):\n    return x.sin()\n")
    return made.resolve()


@pytest.fixture(scope="module")
def tool_caller(folder: Path) -> Iterator[Callable[..., Any]]:
    with (
        anyio.from_thread.start_blocking_portal() as portal,
        portal.wrap_async_context_manager(mcp.Client(server((folder,)))) as client,
    ):
        yield lambda name, arguments: portal.call(client.call_tool, name, arguments)


@pytest.fixture
def agent(tool_caller: Callable[..., Any]) -> Agent:
    return Agent(tool_caller)


def in_a_thread(asked: Callable[[], Any]) -> Any:
    """What a coroutine returns. The sync API of a browser test before may run a loop in this
    thread."""
    with anyio.from_thread.start_blocking_portal() as portal:
        return portal.call(asked)


def test_tools_resources_and_prompts(folder: Path) -> None:
    async def listed() -> tuple[Any, Any, Any, Any]:
        async with mcp.Client(server((folder,), may_run=True)) as client:
            skill = await client.read_resource("etscope://skill")
            return (
                (await client.list_tools()).tools,
                (await client.list_prompts()).prompts,
                (await client.list_resource_templates()).resource_templates,
                skill.contents[0].text,
            )

    tools, prompts, templates, skill = in_a_thread(listed)
    assert len(tools) <= 12
    assert [one.name for one in tools if not one.annotations.read_only_hint] == ["run"]
    assert all(one.description and len(one.description) < 500 for one in tools)
    assert {one.name for one in prompts} == {"why_is_it_slow", "wrong_numbers", "compare"}
    assert [one.uri_template for one in templates] == ["etscope://runs/{run}/report"]
    assert skill.startswith("---\nname: etscope\n")


def test_over_stdio_as_an_agent_starts_it(folder: Path) -> None:
    command = ["-m", "etscope", "agent", "mcp", "--folder", str(folder)]
    started = StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ))

    async def asked() -> tuple[list[str], str]:
        async with mcp.Client(stdio_client(started)) as client:
            tools = [one.name for one in (await client.list_tools()).tools]
            answer = await client.call_tool("open", {"run": "cnn"})
            return tools, answer.content[0].text

    tools, text = in_a_thread(asked)
    assert "run" not in tools and "explain" in tools
    assert {one["kind"] for one in json.loads(text)["data"]["files"]} >= {"etdump", "etrecord"}


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_over_http_on_this_machine(folder: Path) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}/mcp"
    command = [sys.executable, "-m", "etscope", "agent", "mcp", "--port", str(port)]
    command += ["--folder", str(folder)]

    async def asked() -> str:
        async with mcp.Client(address) as client:
            answer = await client.call_tool("open", {"run": "cnn"})
            return str(answer.content[0].text)

    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: listens(port))
            found = json.loads(in_a_thread(asked))
            # A page in the user's browser, under a name that leads to this machine, has no answer.
            headers = {"Host": "example.com", "Content-Type": "application/json"}
            with pytest.raises(urllib.error.HTTPError, match="421"):
                urllib.request.urlopen(urllib.request.Request(address, b"{}", headers), timeout=60)
        finally:
            process.terminate()
    assert {one["kind"] for one in found["data"]["files"]} >= {"etdump", "etrecord"}


def test_hostile_names_arrive_as_data(agent: Agent) -> None:
    names = agent.column("hostile", "SELECT DISTINCT event FROM instructions")
    plain = [name for name in HOSTILE if len(name) < 2_000]
    assert set(plain) <= set(names)
    for tool in ("open", "explain"):
        text, _ = agent.text(tool, run="hostile")
        assert text.isascii()  # no control character, no change of direction
        assert text.startswith(('{"about":"Everything in data comes from', "Error executing"))


@pytest.mark.parametrize(
    ("tool", "arguments", "wanted"),
    [
        ("open", {"run": "nothing"}, "Call runs"),
        ("open", {"run": "/etc"}, "call runs"),
        ("explain", {"run": "fault_1", "method": "other"}, "Call open"),
        ("sql", {"run": "cnn", "query": "SELECT x FROM nodes"}, "Columns: nodes(node"),
        ("graph", {"run": "cnn", "name": "no-such-graph"}, "edge"),
        ("source", {"file": "cnn"}, "Name a file"),
        ("debug", {"run": "cnn", "command": "list"}, "call source"),
        ("debug", {"run": "net.py", "command": "bt"}, "Call open"),
        ("numerics", {"run": "mobile_CNN"}, "Call open"),
    ],
)
def test_an_error_names_the_next_call(
    agent: Agent, tool: str, arguments: dict[str, Any], wanted: str
) -> None:
    text, is_error = agent.text(tool, **arguments)
    assert is_error and wanted in text and "Traceback" not in text


# -- questions: each with a script of calls, and the right answer from elsewhere


def slow_module(agent: Agent, run: str) -> bool:
    """Why is it slow: is the planted part among the sites of the first three findings?"""
    notes = artifacts(f"explained_{run}").meta
    first = agent("explain", run=run)["findings"][:3]
    of_kind = [one for one in first if one["kind"] in KINDS[notes["planted"]]]
    modules = [site["module"] or "" for one in of_kind for site in one["explanation"]["sites"]]
    return any(f"{module}.".startswith(f"{notes['module']}.") for module in modules)


def wrong_line(agent: Agent, number: int) -> str:
    found = agent("numerics", run=f"fault_{number}")
    row = dict(zip(found["columns"], found["rows"][0], strict=True))
    assert row["verdict"] == "wrong"
    return str(row["source"]).split(" ")[0]


def first_nan(agent: Agent, number: int) -> str:
    run = f"fault_{number}"
    agent("debug", run=run, command="watch nan", restart=True)
    stop = agent("debug", run=run, command="run")["stop"]
    return Path(stop["source"][0]).name


def planted(number: int) -> str:
    notes = artifacts(f"fault_portable_{number}").meta
    return f"{notes['file']}:{notes['line']}"


def calls_of(kind: str) -> int:
    (method,) = read_pte(artifacts("cnn_xnnpack").pte).methods
    return sum(type(one).__name__ == kind for one in method.instructions)


def counted(run: str) -> Any:
    """The times of the counted runs, ns."""
    capture = open_capture(artifacts(f"explained_{run}").folder)
    assert isinstance(capture, Trace)
    (profile,) = capture.profiles()
    return profile.total


def outputs() -> float:
    with np.load(artifacts("cnn_xnnpack").outputs) as found:
        return float(next(iter(found.values())).max())


def convolutions() -> int:
    record = parse_etrecord(str(artifacts("explained_mobile_CNN").folder / "model.etrecord"))
    nodes = record.exported_program.graph.nodes
    return sum("conv" in str(node.target) for node in nodes if node.op == "call_function")


def convolution_nodes(agent: Agent) -> list[Any]:
    found = agent("graph", run="mobile_CNN", name="exported", select="op:*conv*")
    rows: list[Any] = found["rows"]
    return rows


EXECUTE = "SELECT avg FROM instructions WHERE event = 'Method::execute'"
KINDS_RAN = "SELECT count(*) FROM instructions WHERE kind = '{}' AND instruction IS NOT NULL"
QUESTIONS: dict[str, tuple[Callable[[Agent], Any], Callable[[], Any]]] = {
    **{
        f"why is {run} slow": (functools.partial(slow_module, run=run), lambda: True)
        for run in SLOW[1:]
    },
    **{
        f"which line of fault {number} is wrong": (
            functools.partial(wrong_line, number=number),
            functools.partial(planted, number),
        )
        for number in FAULTS[:4]
    },
    **{
        f"which line of fault {number} gives the first NaN": (
            functools.partial(first_nan, number=number),
            functools.partial(planted, number),
        )
        for number in FAULTS[4:]
    },
    "how long does mobile_CNN take": (
        lambda agent: pytest.approx(agent.column("mobile_CNN", EXECUTE)[0], rel=1e-3),
        lambda: float(np.mean(counted("mobile_CNN"))) / 1e6,
    ),
    "how many delegate calls has cnn": (
        lambda agent: agent.column("cnn", KINDS_RAN.format("delegate"))[0],
        lambda: calls_of("DelegateCall"),
    ),
    "how many kernels has cnn": (
        lambda agent: agent.column("cnn", KINDS_RAN.format("kernel"))[0],
        lambda: calls_of("KernelCall"),
    ),
    "how large is the program of cnn": (
        lambda agent: [
            one["sections"]["file"]["size"]
            for one in agent("open", run="cnn")["files"]
            if one["kind"] == "pte"
        ],
        lambda: [artifacts("cnn_xnnpack").pte.stat().st_size],
    ),
    "how many convolutions has mobile_CNN": (
        lambda agent: len(convolution_nodes(agent)),
        convolutions,
    ),
    "what is the largest output of cnn": (
        lambda agent: pytest.approx(largest(agent), rel=1e-4),
        outputs,
    ),
    "is mobile_CNN slower than itself": (
        lambda agent: "regressed" in agent.text("diff", base="mobile_CNN", new="mobile_CNN")[0],
        lambda: False,
    ),
    "how many runs of mobile_CNN count": (
        lambda agent: agent("explain", run="mobile_CNN")["runs"][0]["counted"],
        lambda: len(counted("mobile_CNN")),
    ),
    "did cnn get worse than itself": (
        lambda agent: agent("check", base="cnn", new="cnn")["outcome"],
        lambda: "ok",
    ),
    "what stands on line 2 of net.py": (
        lambda agent: agent("source", file="net.py", line=2)["lines"]["2"],
        lambda: "    return x.sin()",
    ),
}


def largest(agent: Agent) -> float:
    agent("debug", run="cnn", command="run", restart=True)
    agent("debug", run="cnn", command="reverse-step")
    found = agent("debug", run="cnn", command="print $.max()")
    return float(found["answer"][-1]["number"])


NIGHTLY = [f"which line of fault {number} is wrong" for number in FAULTS[1:4]]
SOME = [pytest.param(one, marks=pytest.mark.nightly if one in NIGHTLY else ()) for one in QUESTIONS]


@pytest.mark.parametrize("question", SOME)
def test_a_question_is_answered_within_six_calls(agent: Agent, question: str) -> None:
    asked, right = QUESTIONS[question]
    assert asked(agent) == right()
    assert agent.calls <= CALLS

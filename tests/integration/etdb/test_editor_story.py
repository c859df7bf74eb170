"""A model that gives NaN on the runtime only, debugged as in an editor: by a scripted client, and
by the client that the protocol's authors publish, which reads tensors as the extension does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.exir")

from etscope.export import export  # noqa: E402
from hatch_build import find_node  # noqa: E402
from tests.support.etdb import weather  # noqa: E402
from tests.support.etdb.dap_client import Client  # noqa: E402

SOURCE = Path(weather.__file__)
EXTENSION = Path(__file__).parents[3] / "editors" / "vscode"
LINES = SOURCE.read_text().splitlines()
NORM, HEAD = (
    next(number for number, line in enumerate(LINES, 1) if text in line)
    for text in ("self.norm(pressures)", "self.head(features)")
)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return weather.Weather().eval()


@pytest.fixture(scope="module")
def folder(model: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("story")
    export(model, model.example_inputs()).save(found, "model", bundle=False)
    return found


def test_from_a_nan_to_its_operator_and_on_with_the_right_value(
    model: torch.nn.Module, folder: Path
) -> None:
    with Client() as client:
        client.launch(folder / "model.etrecord", folder / "model.pte")
        asked = {"line": HEAD, "condition": "isnan($)"}
        client.ask("setBreakpoints", source={"path": str(SOURCE)}, breakpoints=[asked])
        client.ask("configurationDone")
        assert client.event("stopped")["reason"] == "breakpoint"
        assert client.where()[1] == HEAD
        read = client.variables("Inputs")
        assert "NaN" in read["aten_relu_default"]["value"]
        reference = client.ask("evaluate", expression="ref(aten_relu_default)", context="watch")
        assert "NaN" not in reference["result"]
        while client.where()[1] != NORM:
            assert client.move("stepBack")["reason"] == "step"
        outputs = client.children(client.variables("Output")["$"]["variablesReference"])
        assert "NaN" in outputs["[0]"]["value"]
        assert "NaN" not in client.variables("Inputs")["pressures"]["value"]
        client.ask("setExpression", expression="$", value="ref()")
        client.move("continue")
        assert client.where() == ("the run is over", HEAD)
        (output,) = client.variables("Model outputs").values()
        rows = client.children(output["variablesReference"])
        given = [
            [float(one["value"]) for name, one in client.children(
                rows[f"[{row}]"]["variablesReference"]).items() if name.startswith("[")]
            for row in range(4)
        ]  # fmt: skip
        with torch.no_grad():
            np.testing.assert_allclose(given, model(*model.example_inputs()), rtol=1e-4)


def test_another_client_reads_the_tensors_of_the_extension(folder: Path) -> None:
    node = str(find_node()[0])
    bundle = EXTENSION / "dist" / "client.test.js"
    if not (EXTENSION / "node_modules" / "esbuild").is_dir():
        pytest.skip("the extension is not built: make extension")
    esbuild = [node, "node_modules/esbuild/bin/esbuild", "test/client.test.ts", "--bundle",
               "--platform=node", f"--outfile={bundle}"]  # fmt: skip
    subprocess.run(esbuild, cwd=EXTENSION, check=True, capture_output=True)
    command = [sys.executable, "-m", "etscope.etdb", "--dap", "--listen", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as adapter:
        assert adapter.stderr is not None
        story = {
            "port": int(adapter.stderr.readline().rpartition(b":")[2]),
            "files": [str(folder / "model.etrecord"), str(folder / "model.pte")],
            "source": str(SOURCE),
            "line": NORM,
            "inputs": weather.Weather().example_inputs()[0].tolist(),
        }
        done = subprocess.run(
            [node, "--test", str(bundle)],
            env={**os.environ, "ETSCOPE_STORY": json.dumps(story)},
            capture_output=True,
            text=True,
            check=False,
        )
        adapter.kill()
    assert done.returncode == 0, done.stdout

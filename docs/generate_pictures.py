"""Make the pictures of the README and of three tutorials: ``python docs/generate_pictures.py``.

`inspect` is drawn from what the command prints, in the folder of ``make demo``. The tutorials'
pictures are screenshots of reports: the tutorial's own commands run in a new folder, up to the
section that the picture is for; on a busy machine times differ much. Names choose some pictures.
Those of the lab, of TensorBoard and of the other views come from tests/e2e/browser, with
``ETSCOPE_SCREENSHOTS=DIR``.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.browser.launched import FLAGS  # noqa: E402 - the root is on the path from here

IMAGES = ROOT / "docs" / "images"
COMMAND = ("inspect", "--limit", "6")
WIDTH = 132


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture of a report. `until` is the heading after the part of the tutorial to run; `files`
    are the arguments of `etscope report`; `view` is the address of the tab in the page."""

    tutorial: str
    until: str
    files: tuple[str, ...]
    view: str
    height: int


SHOTS = {
    "tutorial-summary": Shot("why-is-it-slow", "## 2", ("slow",), "summary", 800),
    "tutorial-numerics": Shot(
        "wrong-numbers",
        "## 4",
        ("lm/ran", "lm/model.etrecord"),
        "numerics/0?sort.numerics=-excess",
        740,
    ),
    "tutorial-generation": Shot(
        "language-model",
        "## 2",
        ("ran",),
        "generation/0?generation.calls=typical&generation.by=source",
        740,
    ),
}


def main() -> None:
    for name in sys.argv[1:] or ["inspect", *SHOTS]:
        if name == "inspect":
            draw_table()
        else:
            take(SHOTS[name], IMAGES / f"{name}.png")


def draw_table() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "etscope", "--color", "always", *COMMAND],
        cwd=ROOT / "demo-output",
        env={**os.environ, "COLUMNS": str(WIDTH)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ etscope {' '.join(COMMAND)}", style="bold"))
    console.print(Text.from_ansi(shown))
    picture = IMAGES / "inspect.svg"
    console.save_svg(str(picture), title="etscope")
    # Lines without the spaces that rich leaves at their ends.
    lines = picture.read_text(encoding="utf-8").splitlines()
    picture.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")


def take(shot: Shot, picture: Path) -> None:
    environment = {**os.environ, "COLUMNS": "100"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    )
    with tempfile.TemporaryDirectory() as folder:
        page, report = Path(folder) / "tutorial.md", Path(folder) / "report.html"
        text = (ROOT / f"docs/tutorials/{shot.tutorial}.md").read_text(encoding="utf-8")
        page.write_text(text.partition(f"\n{shot.until}")[0], encoding="utf-8")
        for command in (
            ["tests.support.docs.pages", str(page)],
            ["etscope", "report", *shot.files, "-o", str(report)],
        ):
            subprocess.run(
                [sys.executable, "-m", *command], cwd=folder, env=environment, check=True
            )
        photograph(report, shot, picture)


def photograph(report: Path, shot: Shot, picture: Path) -> None:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": shot.height})
        page.goto(f"{report.as_uri()}#run0/{shot.view}")
        page.wait_for_timeout(2000)  # charts are drawn some frames after the page is there
        image = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    # 256 colours are enough for text and charts, in half the bytes.
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main()

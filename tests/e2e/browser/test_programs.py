"""Two programs in a report: the graphs side by side, in one view with one selection."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from etscope.analysis.comparison.programs import Side
from etscope.cli import main
from etscope.formats.program.pte import read_pte
from tests.support.artifacts import artifacts
from tests.support.browser.chromium import draw, screenshot, set_scheme

DRAWN = '[data-testid="graph-drawn"]'
PANES = '[data-testid="compared-canvas"]'
NEXT = '[data-testid="compare-next"]'
STATUS = '[data-testid="compared-status"]'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs and records: a network, one with a layer more, and one with another weight."""
    made = tmp_path_factory.mktemp("programs")
    for name in ("cnn_portable", "cnn_portable_inserted"):
        files = artifacts(name)
        assert files.etrecord is not None
        (made / f"{name}.pte").write_bytes(files.pte.read_bytes())
        (made / f"{name}.etrecord").write_bytes(files.etrecord.read_bytes())
    data = bytearray(artifacts("cnn_portable").pte.read_bytes())
    weights = Side("", read_pte(bytes(data))).weights
    largest = max(weights, key=lambda one: one.tensor.span.size)
    struct.pack_into("<f", data, largest.tensor.span.offset, 1e3)
    (made / "reweighted.pte").write_bytes(data)
    return made


def report(folder: Path, *arguments: str) -> str:
    out = folder / f"{len(list(folder.iterdir()))}.html"
    paths = [str(folder / one) if not one.startswith("-") else one for one in arguments]
    assert main(["report", *paths, "-o", str(out)]) == 0
    return out.as_uri()


@pytest.fixture(scope="module")
def inserted(folder: Path) -> str:
    names = ("cnn_portable", "cnn_portable_inserted")
    records = [word for name in names for word in ("-r", f"{name}.etrecord")]
    return report(folder, *(f"{name}.pte" for name in names), *records)


def pixels(page: Any) -> list[int]:
    """A hash of what each canvas shows."""
    found: list[int] = page.eval_on_selector_all(
        PANES,
        """all => all.map(one => {
          const {data} = one.getContext('2d').getImageData(0, 0, one.width, one.height);
          let sum = 0;
          for (let at = 0; at < data.length; at++) sum = (sum * 31 + data[at]) | 0;
          return sum;
        })""",
    )
    return found


def still(page: Any, moved_from: Sequence[int] = (0, 0)) -> list[int]:
    """What the canvases show when nothing moves any more; both are other than before the move."""
    before: list[int] = []
    while True:
        draw(page)
        now = pixels(page)
        if now == before and not any(map(int.__eq__, now, moved_from)):
            return now
        before = now


def counts(page: Any) -> dict[str, int]:
    page.wait_for_selector('[data-testid="compare-counts"]')
    found: list[list[str]] = page.eval_on_selector_all(
        '[data-testid="compare-counts"] [data-status]',
        "all => all.map(one => [one.dataset.status, one.dataset.count])",
    )
    return {status: int(count) for status, count in found}


def test_two_programs_have_the_words_of_diff(
    page: Any, folder: Path, inserted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [folder / f"{name}.pte" for name in ("cnn_portable", "cnn_portable_inserted")]
    records = [text for name in names for text in ("-r", str(name.with_suffix(".etrecord")))]
    capsys.readouterr()
    assert main(["diff", *map(str, names), *records, "-f", "json"]) == 1
    (told,) = json.loads(capsys.readouterr().out)["reports"]

    page.goto(f"{inserted}#run0/compare/0")
    texts = page.locator('[data-testid="program-summary"] p').all_text_contents()

    assert texts == told["summary"]
    assert "aten::sigmoid.out" in texts[0]
    page.select_option('[data-testid="compare-table-select"]', "instructions")
    rows = page.locator('[data-testid="programs-table"] [role="row"]')
    assert rows.count() > len(told["sections"]["instructions"])  # with the head
    assert "compare.table=instructions" in page.url
    assert page.failures == []


def test_partners_are_at_one_place_and_move_in_step(page: Any, inserted: str) -> None:
    page.goto(f"{inserted}#run0/compare/0?compare.graph=executed/forward")
    page.wait_for_selector(DRAWN, state="attached")
    assert counts(page)["added"] == 1
    first = still(page)
    assert first[0] != first[1]  # one has a layer more

    box = page.locator(PANES).first.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.wheel(0, -300)
    zoomed = still(page, moved_from=first)

    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 + 120)
    page.mouse.up()
    still(page, moved_from=zoomed)

    # A search finds on both sides.
    page.fill('[data-testid="graph-search"]', "sigmoid")
    page.wait_for_selector('[data-testid="graph-found"]')
    page.press('[data-testid="graph-search"]', "Enter")
    assert page.wait_for_selector(STATUS).get_attribute("data-status") == "added"
    assert "find.compared" in page.url
    assert page.failures == []


def test_what_one_side_has_is_an_outline_of_the_other(page: Any, inserted: str) -> None:
    page.goto(f"{inserted}#run0/compare/0?compare.graph=executed/forward&compare.only=on")
    few = int(page.wait_for_selector(DRAWN, state="attached").get_attribute("data-nodes"))
    page.click(NEXT)
    details = page.wait_for_selector('[data-testid="details"]')
    assert "sigmoid" in details.inner_text()
    assert page.get_attribute(STATUS, "data-status") == "added"
    # It is in the second program, which is looked at now; the address has all of that.
    assert "#run1/compare/0/node-" in page.url and "compare.only=on" in page.url
    shown = still(page)
    screenshot(page, "programs-side-by-side")

    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector(STATUS)
    assert page.get_attribute(STATUS, "data-status") == "added"
    page.click('[data-testid="compare-only"] [data-key="all"]')
    page.wait_for_function(
        f"few => Number(document.querySelector('{DRAWN}')?.dataset.nodes) > few", arg=few
    )
    assert shown[0] != shown[1]
    assert page.failures == []


def test_a_changed_weight_is_told_with_its_reader_without_records(page: Any, folder: Path) -> None:
    address = report(folder, "cnn_portable.pte", "reweighted.pte")
    page.goto(f"{address}#run0/compare/0")
    page.wait_for_selector(DRAWN, state="attached")
    page.click(NEXT)

    told = page.wait_for_selector('[data-testid="compared"]').inner_text()
    assert "reweighted.pte" in told
    assert "elements differ, by" in told
    assert page.get_attribute(STATUS, "data-status") == "changed"
    for width, scheme in ((1400, "light"), (390, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        set_scheme(page, scheme)
        still(page)
        screenshot(page, f"programs-{width}-{scheme}")

    page.click('[data-testid="compared-partner"]')
    page.wait_for_function("location.hash.startsWith('#run1/')")
    assert "cnn_portable.pte" in page.wait_for_selector('[data-testid="compared"]').inner_text()
    assert page.failures == []


def test_a_program_and_itself_are_said_to_be_identical(page: Any, folder: Path) -> None:
    same = folder / "copy.pte"
    same.write_bytes((folder / "cnn_portable.pte").read_bytes())
    page.goto(f"{report(folder, 'cnn_portable.pte', 'copy.pte')}#run0/compare/0")
    told = page.wait_for_selector('[data-testid="program-summary"]').inner_text()
    assert "copy.pte is identical to cnn_portable.pte" in told
    assert page.query_selector(PANES) is None
    assert page.failures == []

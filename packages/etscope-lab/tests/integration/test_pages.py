"""The lab's pages over HTTP: what they show of jobs in every state, and what they refuse."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from etscope import Inspector
from etscope_lab.jobs.records import Job, State
from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from lab_support.pages_lab import HOSTILE, MARKS, ended, latency, measured, running, spec
from tests.support.artifacts import artifacts
from tests.support.waiting import until

RECORD = artifacts("cnn_xnnpack").etrecord
AB = {
    "verdict": "regressed", "relative": 0.052, "low": 0.04, "high": 0.06, "p": 0.001,
    "confidence": 0.99, "min_effect": 0.03, "noise_floor": 0.01, "rounds": 6, "judged": 5,
    "rounds_needed": None, "reason": "", "failed": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab.open(tmp_path_factory.mktemp("lab")) as opened:
        yield opened


@pytest.fixture(scope="module")
def client(lab: Lab) -> Iterator[TestClient]:
    with TestClient(create_app(lab), base_url="http://127.0.0.1", follow_redirects=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def done(lab: Lab) -> Job:
    wanted = spec(etrecord=str(RECORD), name="dir/My model.v2.pte", labels={"branch": "main"})
    summary = {"method": "forward", "backend": "XnnpackBackend", "latency": latency()}
    return ended(lab, wanted, files=measured(lab), summary=summary, marks=MARKS)


def made(client: TestClient, path: str) -> Response:
    """The answer when it is there."""
    until(lambda: client.get(path).status_code != 202)
    return client.get(path)


def csrf(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found
    return found[1]


def test_an_empty_lab_says_what_to_do(tmp_path: Path) -> None:
    with Lab.open(tmp_path) as empty:
        client = TestClient(create_app(empty), base_url="http://127.0.0.1")
        assert "etscope lab submit" in client.get("/").text
        assert "No history yet" in client.get("/history").text
        assert "Nothing to compare" in client.get("/compare").text
        assert "not seen yet" in client.get("/devices").text


def test_a_done_job_shows_its_numbers_with_their_caveats(client: TestClient, done: Job) -> None:
    text = client.get(f"/jobs/{done.id}").text
    for number in ("3.0000 ms", "9.0000 ms", "20.300 µs", "21.500 µs", "34.600 µs"):
        assert re.search(rf"{number}\s*<a class=\"mark\"", text), number
    assert "a &lt;virtual&gt; machine" in text and "<virtual>" not in text
    assert "41.5 °C" in text
    assert '"y": [0.02, 0.021, 0.022, 0.04]' in text  # the chart's
    assert "\\x1b[31mred\n&lt;b&gt;" in text  # the log
    assert 'data-refresh="' not in text
    # A beginning of the id will do.
    assert client.get(f"/jobs/{done.id[:8]}").status_code == 200


def test_a_sustained_load_is_drawn_with_its_device(client: TestClient, lab: Lab) -> None:
    samples = [1_000_000_000] * 60
    samples[30] = 3_000_000_000
    run = {"latencies": [{"traced": None, "method": "forward", "samples_ns": samples}]}
    readings: list[dict[str, Any]] = [
        {"at": 100.0 + n, "temperature_c": 40.0 + n, "frequencies_mhz": [2000.0 - n], "busy_s": n}
        for n in range(60)
    ]
    for n, one in enumerate(readings[1:], 1):
        one["execution"] = n
    readings[5]["disturbance"] = "the room <burnt>"
    files = [
        lab.store.put_stream([json.dumps(run).encode()], "run.json"),
        lab.store.put_stream([json.dumps(readings).encode()], "conditions.json"),
    ]
    sustained = {
        "verdict": "throttled", "reason": "the clock fell", "seconds": 62.0, "executions": 60,
        "begin_ms": 1.0, "end_ms": 1.5, "relative": 0.5, "after_s": 40.0,
    }  # fmt: skip
    summary = {"latency": latency(), "sustained": sustained}
    job = ended(lab, spec(duration_seconds=60), files=files, summary=summary)
    text = client.get(f"/jobs/{job.id}").text
    assert "Sustained load: throttled" in text and "The clock fell." in text
    assert "Throttled under sustained load: +50.0% after 40 s; the clock fell." in text
    assert "Shaded: the room &lt;burnt&gt;." in text
    charts = [json.loads(one) for one in re.findall(r'application/json">(.*?)</script>', text)]
    [samples_chart] = [one for one in charts if one.get("x") == "execution"]
    assert samples_chart["disturbed"] == [[4, 5, "the room <burnt>"]]
    assert samples_chart["series"][1] == {"name": "disturbed", "x": [31], "y": [3000.0]}
    [course] = [one for one in charts if one["series"][0]["name"] == "temperature"]
    assert [one["name"] for one in course["series"]] == ["temperature", "clock", "busy cores"]
    assert course["series"][1]["x"] == list(range(1, 60))
    assert course["series"][2]["y"] == [None] + [1.0] * 58
    assert text.count('<td class="number" title="">') == 12  # of 60 readings, every fifth one
    [series] = [one for one in lab.history() if one.points[0].job_id == job.id]
    assert series.metric == "sustained execution"


def test_the_dump_is_saved_under_the_name_of_its_job(client: TestClient, done: Job) -> None:
    answer = client.get(f"/jobs/{done.id}/files/run.etdp")
    assert answer.content == artifacts("cnn_xnnpack").etdump_timing.read_bytes()
    assert answer.headers["content-disposition"] == (
        "attachment; filename=\"My-model.v2.etdp\"; filename*=UTF-8''My-model.v2.etdp"
    )
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert client.get(f"/jobs/{done.id}/files/other").status_code == 404
    assert client.get(f"/jobs/{done.id}/files/..%2Fkey").status_code == 404


def test_an_invalid_job_is_unmistakably_no_result(client: TestClient, lab: Lab) -> None:
    summary = {"latency": latency()}
    job = ended(
        lab, spec(name="too hot"), State.INVALID, measured(lab), summary, error="90 °C, limit 80 °C"
    )
    text = client.get(f"/jobs/{job.id}").text
    assert "Invalid: not a result." in text
    assert "90 °C, limit 80 °C" in text
    assert "Measured, but not a result" in text
    assert '<section aria-labelledby="times-title" class="void">' in text
    assert '<tr class="invalid">' in client.get("/?state=invalid").text
    assert job.id not in client.get("/history").text


def test_a_history_without_verdicts_says_why(client: TestClient, lab: Lab) -> None:
    summary = {"method": "forward", "backend": "portable", "latency": latency()}
    for load in (0.61, 1.55):
        mark = f"the device was busy before the run: a load of {load} a core"
        ended(lab, spec(name="unjudged"), summary=summary, marks=(mark,))
    [series] = [one for one in lab.history() if one.points[0].marked and len(one.points) == 2]
    assert series.unjudged.startswith("None of 2 results is judged. ")
    text = client.get(f"/history?model={series.model}").text
    assert f'<p class="note">{series.unjudged}</p>' in text
    assert "busy before the run: a load of … a core (2)" in text


def test_how_it_ended_badly_is_said(client: TestClient, lab: Lab) -> None:
    for state, words in (
        (State.FAILED, "The job failed."),
        (State.USER_ERROR, "What was submitted cannot run."),
        (State.TIMEOUT, "The time limit was reached."),
        (State.DEVICE_LOST, "The device was lost."),
    ):
        job = ended(lab, spec(name=f"ends {state}"), state, error="because of <that>")
        text = client.get(f"/jobs/{job.id}").text
        assert words in text and "because of &lt;that&gt;" in text
        assert "Open in TensorBoard" not in text


def test_an_ab_job_shows_verdict_and_both_sides(client: TestClient, lab: Lab) -> None:
    side = {"p50_ms": 2.0, "runs": 6}
    found = {
        **AB, "sides": {"model": side, "baseline": side},
        "failed": [{"round": 3, "error": "it <fell>"}],
    }  # fmt: skip
    pte = str(artifacts("cnn_xnnpack").pte)
    job = ended(lab, spec(kind="ab", baseline=pte), summary={"ab": found}, marks=MARKS)
    text = client.get(f"/jobs/{job.id}").text
    assert re.search(r"verdict-regressed\">regressed\s*<small>\+5.2 %", text)
    assert "5.20 % longer than the baseline (+4.00 % to +6.00 % with 99.0% confidence)" in text
    assert "it &lt;fell&gt;" in text
    assert "regressed" in client.get("/?kind=ab").text


def test_hostile_names_are_text_everywhere(client: TestClient, lab: Lab) -> None:
    labels = {"<b>": HOSTILE}
    job = ended(
        lab, spec(name="<img src=x onerror=alert(1)></script>", labels=labels),
        summary={"latency": latency(), "backend": HOSTILE, "method": HOSTILE},
        files=measured(lab), error=HOSTILE, marks=(HOSTILE,),
        environment={"device": {"a": HOSTILE}},
    )  # fmt: skip
    for path in ("/", f"/jobs/{job.id}", "/history", f"/compare?first={job.id}&second={job.id}"):
        text = client.get(path).text
        assert "<img" not in text
        assert "</script>\\u202e" not in text and "\u202e" not in text
        assert "&lt;img" in text or "\\u003cimg" in text


def test_what_is_at_work_refreshes_itself_and_can_be_cancelled(
    client: TestClient, lab: Lab
) -> None:
    job = running(lab, spec(name="at work"))
    text = client.get(f"/jobs/{job.id}").text
    assert 'data-refresh="' in text and 'data-refresh="' in client.get("/").text
    for form in ({"other": "x"}, {"csrf": "x"}, {"csrf": ""}):
        assert client.post(f"/jobs/{job.id}/cancel", data=form).status_code == 403
    assert not lab.job(job.id).cancel_requested
    answer = client.post(f"/jobs/{job.id}/cancel", data={"csrf": csrf(text)})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job.id}")
    assert lab.job(job.id).cancel_requested
    assert "to be cancelled" in client.get(f"/jobs/{job.id}").text


def test_a_job_is_run_again(client: TestClient, lab: Lab, done: Job) -> None:
    token = csrf(client.get(f"/jobs/{done.id}").text)
    answer = client.post(f"/jobs/{done.id}/again", data={"csrf": token})
    new = lab.job(answer.headers["location"].rpartition("/")[2])
    assert new.id != done.id
    assert new.spec == done.spec and new.state is State.QUEUED
    assert "The job waits for a device" in client.get(f"/jobs/{new.id}").text


def test_jobs_are_filtered_and_paged(client: TestClient, lab: Lab, done: Job) -> None:
    for number in range(60):
        lab.submit(spec(name=f"many {number}", device="nowhere-*", labels={"n": str(number)}))
    first = client.get("/?text=many").text
    assert "60 of all jobs" in first and "many 59" in first and "many 3<" not in first
    older = re.search(r'rel="next" href="([^"]+)"', first)
    assert older
    assert "many 3<" in client.get(older[1].replace("&amp;", "&")).text
    assert f"/jobs/{done.id}" in client.get("/?label=branch%3Dmain&state=done").text
    assert "No job matches" in client.get("/?text=nothing+like+that").text
    assert f"/jobs/{done.id}" in client.get(f"/?model={done.spec.model.sha256}&state=done").text
    for wrong in ("/?state=broken", "/?kind=other", "/?label=nothing"):
        assert client.get(wrong).status_code == 400, wrong


def test_the_operators_come_from_a_child_process(client: TestClient, done: Job) -> None:
    path = f"/jobs/{done.id}/operators"
    text = made(client, path).text
    assert "Convolution (NHWC, F32) IGEMM" in text
    assert "stages.0.first.conv" in text
    # In microseconds, unless the machine that made the dump takes longer than a millisecond.
    executed = Inspector(artifacts("cnn_xnnpack").etdump_timing).event_blocks[-1]
    (whole,) = [e.perf_data for e in executed.events if e.name == "Method::execute"]
    assert whole is not None
    assert f"avg ({'us' if whole.p50 < 1 else 'ms'})" in text
    # Then the page itself has them, and says what matters.
    text = client.get(f"/jobs/{done.id}").text
    assert "stages.0.first.conv" in text and "What matters" in text
    # What takes most time depends on the machine that made the dump.
    assert "What takes most memory is " in text
    assert f'href="/jobs/{done.id}/report#run0/' in text


def test_dashboards_are_saved_queries_with_charts(client: TestClient, lab: Lab, done: Job) -> None:
    own = lab.home.folder / "dashboards"
    own.mkdir()
    (own / "mean.sql").write_text(
        "-- question: How long?\n-- chart: mean_ms over recorded_at by model\n"
        "-- param least int = 0: executions\n"
        "SELECT model, recorded_at, mean_ns / 1e6 AS mean_ms FROM results "
        "WHERE len(samples_ns) >= $least"
    )
    (own / "broken.sql").write_text("-- asks: How long?\nSELECT 1")
    index = client.get("/dashboards").text
    assert 'href="/dashboards/slowest-ops"' in index and "How long?" in index
    assert "broken.sql: line 1: invalid head line: -- asks" in index
    page = client.get("/dashboards/mean?least=2").text
    assert 'name="least" value="2"' in page
    result = made(client, "/dashboards/mean/result?least=2").text
    (chart,) = re.findall(r'data-chart="samples".*?json">(.*?)</script>', result)
    found = json.loads(chart)
    assert (found["time"], found["unit"], found["more"]) == (True, "ms", 0)
    series = {one["name"]: one for one in found["series"]}["dir/My model.v2.pte"]
    ended_at = lab.job(done.id).finished_at
    assert ended_at is not None
    assert series["y"][0] == pytest.approx(0.02575)
    assert series["x"][0] == pytest.approx(ended_at.timestamp())
    assert "No rows." in made(client, "/dashboards/mean/result?least=99").text
    bars = made(client, "/dashboards/slowest-ops/result").text
    assert '<rect width="100.0"' in bars and "Convolution (NHWC, F32) IGEMM" in bars
    (own / "mean.sql").write_text("-- chart: ns by model\nSELECT model FROM results")
    assert (
        "column &#39;ns&#39; is not in the result" in made(client, "/dashboards/mean/result").text
    )
    (own / "mean.sql").write_text("SELECT * FROM read_csv('/etc/passwd')")
    assert "can only read the views" in made(client, "/dashboards/mean/result").text
    for path, status in (("broken", 422), ("none", 404), ("slowest-ops/result?top=x", 400)):
        assert client.get(f"/dashboards/{path}").status_code == status, path


def test_the_report_is_in_a_sandbox(client: TestClient, done: Job) -> None:
    answer = made(client, f"/jobs/{done.id}/report")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy and "connect-src 'none'" in policy
    assert 'id="etscope-data"' in answer.text and "stages.0.first.conv" in answer.text


def test_tensorboard_is_served_below_the_job(client: TestClient, done: Job) -> None:
    answer = made(client, f"/jobs/{done.id}/tensorboard")
    below = f"/jobs/{done.id}/tensorboard/"
    assert (answer.status_code, answer.headers["location"]) == (303, below)
    assert "TensorFlow" in client.get(below).text
    plugins = client.get(f"{below}data/plugins_listing").json()
    assert {name for name, found in plugins.items() if found["enabled"]} >= {"graphs", "text"}
    assert plugins["executorch"]["enabled"]
    assert "edge" in client.get(f"{below}data/plugin/graphs/info").text
    assert client.get(f"{below}nothing").status_code == 404


def test_what_is_not_there_is_a_page(client: TestClient, done: Job) -> None:
    for path in ("/jobs/nope", "/jobs/nope/report", "/jobs/nope/tensorboard/", "/assets/other.js"):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert "Not found" in answer.text
    assert client.get("/compare/verdict?first=a").status_code == 400


def test_nothing_may_come_from_elsewhere(client: TestClient, done: Job) -> None:
    answer = client.get(f"/jobs/{done.id}")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r'(src|href)="(https?:)?//', answer.text)
    assert " style=" not in answer.text and "onclick" not in answer.text
    for path in re.findall(r'"(/assets/[^"]+)"', answer.text):
        assert client.get(path).status_code == 200, path


def test_pages_may_be_below_a_path_of_a_proxy(lab: Lab, done: Job) -> None:
    client = TestClient(create_app(lab), base_url="http://127.0.0.1", root_path="/lab")
    text = client.get(f"/lab/jobs/{done.id}").text
    links = re.findall(r'(?:src|href|action|data-piece|data-frame)="(/[^"]*)"', text)
    assert links and all(link.startswith("/lab/") for link in links)


def test_a_device_with_few_repeats_names_no_percentage(lab: Lab, client: TestClient) -> None:
    for p50 in (1.0, 1.3):
        found = {"latency": {**latency(), "p50_ms": p50}}
        ended(lab, spec(iterations=77), summary=found)
    text = client.get("/devices/host/noise").text
    assert "not known: 2 repeated jobs are too few" in text


def test_compare_lets_jobs_be_chosen(tmp_path: Path) -> None:
    with Lab.open(tmp_path) as lab:
        summary = {"latency": latency()}
        jobs = [
            ended(lab, spec(name=name, labels={"commit": commit}), summary=summary)
            for name, commit in (("net", "c1"), ("net", "c2"), ("other <net>", "c3"))
        ]
        client = TestClient(create_app(lab), base_url="http://127.0.0.1")
        text = client.get(f"/compare?second={jobs[1].id}").text
        assert re.findall(r'<optgroup label="([^"]+)">', text)[:2] == ["net", "other &lt;net&gt;"]
        options = re.findall(r'<option value="(\w+)"( selected)?>([^<]+)', text)
        assert [one[0] for one in options] == [
            job.id for _ in range(2) for job in (jobs[1], jobs[0], jobs[2])
        ]
        assert [one[0] for one in options if one[1]] == [jobs[1].id]
        assert options[0][2].startswith("commit=c2 · ")
        found = client.get("/compare?text=c3").text
        assert jobs[2].id in found and jobs[0].id not in found
        both = client.get("/compare?first=commit=c1&second=commit=c2").text
        for job in jobs[:2]:
            assert f'href="/jobs/{job.id}"' in both
        missing = client.get("/compare?first=commit=c9&second=commit=c2")
        assert missing.status_code == 404 and "no done job has the label commit=c9" in missing.text


def test_an_ab_job_has_one_verdict(client: TestClient, lab: Lab) -> None:
    """Operators of the sides are of one process each, and their sum cannot tell what all rounds
    tell."""
    made_of = artifacts("cnn_xnnpack")
    assert made_of.etdump_timing is not None
    dumps = [
        lab.store.put_file(made_of.etdump_timing, name)
        for name in ("run.etdp", "baseline.run.etdp")
    ]
    found = {**AB, "rounds": 20, "judged": 19}
    wanted = spec(kind="ab", baseline=str(made_of.pte))
    job = ended(lab, wanted, files=dumps, summary={"ab": found})
    text = client.get(f"/jobs/{job.id}").text
    assert "verdict-regressed" in text and "of 19 rounds" in text
    sides = made(client, f"/jobs/{job.id}/sides").text
    assert "<caption>forward</caption>" in sides
    closing = re.findall(r'<tr class="closing">.*?</tr>', sides, re.S)
    assert closing and not any("verdict-" in row for row in closing)

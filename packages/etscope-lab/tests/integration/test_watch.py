"""The lab's watch: a suspicion, an A/B job, an alarm, people who are told."""

from __future__ import annotations

import csv
import io
import json
import threading
from collections.abc import Iterator
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiosmtpd.controller import Controller
from fastapi.testclient import TestClient
from markupsafe import escape

from etscope.cli import main
from etscope.errors import LabError, UsageError
from etscope_lab.client import Client
from etscope_lab.config import EmailConfig, GithubConfig
from etscope_lab.jobs.records import Alarm, AlarmState, Job, Outcome, State
from etscope_lab.lab import Lab
from etscope_lab.server.app import create_app
from etscope_lab.sinks import Email, GithubStatus, Slack, Webhook
from etscope_lab.watch import Watch, sentence
from lab_support.jobs import claimed, run_through, spec_of_number
from lab_support.server import running
from tests.support.ports import free_port

QUIET = np.random.default_rng(0).lognormal(0, 0.01, 12) * 10


class Told:
    """A sink that keeps what it is told; the first `failures` messages fail."""

    name = "told"

    def __init__(self, failures: int = 0) -> None:
        self.texts: list[str] = []
        self.failures = failures

    def tell(self, alarm: Alarm, text: str, link: str | None) -> None:
        if self.failures:
            self.failures -= 1
            raise LabError("told: not there")
        self.texts.append(text)


def nights(lab: Lab, *times: float, first: int = 0, **more: Any) -> list[Job]:
    """A done job for each time, each of another commit and program."""
    found = []
    for number, time in enumerate(times, first):
        if "model" not in more:
            content = lab.store.put_stream([f"program {number}".encode()], "net.pte").sha256
        else:
            content = more["model"]
        spec = spec_of_number(number, labels={"commit": f"c{number}"}, model_name="net.pte")
        ref = spec.model.model_copy(update={"sha256": content})
        found.append(run_through(lab.database, spec.model_copy(update={"model": ref}), time))
    return found


def watch_of(lab: Lab, *sinks: Told) -> Watch:
    return Watch(lab.home, lab.database, lab, sinks)


def end(lab: Lab, job_id: str | None, verdict: str, state: State = State.DONE) -> None:
    """End an A/B job with a verdict."""
    job = lab.job(str(job_id))
    token = claimed(lab.database, job)
    ab = {"verdict": verdict, "relative": 0.06, "low": 0.05, "high": 0.07, "judged": 20}
    summary = {"ab": ab} if state is State.DONE else {}
    assert lab.database.finish(Outcome(job.id, token, state, summary, error="it broke"))


def test_an_alarm_opens_when_the_ab_job_confirms_it(lab: Lab) -> None:
    told = Told(failures=1)
    watch = watch_of(lab, told)
    jobs = nights(lab, *QUIET, 10.6)
    watch.look()
    (alarm,) = lab.alarms()
    job = lab.job(str(alarm.ab_job))
    assert (alarm.state, job.submitter, job.spec.kind) == ("checking", "watch", "ab")
    assert job.spec.baseline is not None
    assert (job.spec.baseline.sha256, job.spec.model.sha256) == (
        jobs[-2].spec.model.sha256, jobs[-1].spec.model.sha256,
    )  # fmt: skip
    assert job.spec.device.name == "host"
    watch.look()  # nothing changes until the A/B job has ended
    assert (len(lab.alarms()), told.texts) == (1, [])
    end(lab, alarm.ab_job, "regressed")
    watch.look()  # the sink fails, and is told at the next look
    watch.look()
    watch.look()
    (alarm,) = lab.alarms()
    assert (alarm.state, alarm.told) == ("open", ("told",))
    assert told.texts == [
        "net.pte (forward) is 6.0% slower on host: 10 to 10.6 ms, between commits c11 and c12. "
        f"A/B job {job.id} of 20 rounds confirms it, +5.0% to +7.0%."
    ] == [sentence(alarm)]  # fmt: skip
    # The next nights are at the new level: no second alarm.
    nights(lab, *QUIET[:4] * 1.06, first=13)
    watch.look()
    assert len(lab.alarms()) == 1
    (series,) = lab.history()
    assert [str(point.standing) for point in series.points[-5:]] == ["regressed"] + ["steady"] * 4


def test_an_ab_job_without_a_difference_tells_nobody(lab: Lab) -> None:
    told = Told()
    watch = watch_of(lab, told)
    nights(lab, *QUIET, 10.6)
    watch.look()
    (alarm,) = lab.alarms()
    end(lab, alarm.ab_job, "no difference")
    for _ in range(2):
        watch.look()
    (alarm,) = lab.alarms()
    assert (alarm.state, alarm.verdict, told.texts) == ("dismissed", "no difference", [])
    # A later step is another suspicion.
    nights(lab, 10.1, 11.8, first=13)
    watch.look()
    assert [one.state for one in lab.alarms()] == ["checking", "dismissed"]


def test_without_an_ab_job_a_sure_change_opens_the_alarm(lab: Lab) -> None:
    told = Told()
    watch = watch_of(lab, told)
    same = lab.store.put_stream([b"program"], "net.pte").sha256
    nights(lab, *QUIET, 11.5, model=same)
    watch.look()  # suspicious only
    assert lab.alarms() == []
    nights(lab, 11.6, first=13, model=same)
    watch.look()
    (alarm,) = lab.alarms()
    assert alarm.state == "open"
    assert told.texts[0].endswith(
        "2 jobs in a row are slower; the program is the same: the device or its software changed."
    )


def test_energy_is_a_series_that_no_ab_job_judges(lab: Lab, capsys: Any) -> None:
    """The times stay as they are, and each execution takes more energy."""
    told = Told()
    for number, mj in enumerate((*QUIET, 11.5, 11.6)):
        spec = spec_of_number(number, labels={"commit": f"c{number}"}, model_name="net.pte")
        latency = {"p50_ms": 10.0, "p90_ms": 11.0, "load_ms": 1.0, "first_ms": 12.0}
        summary = {"latency": latency, "energy": {"per_inference_j": mj / 1e3}}
        run_through(lab.database, spec, summary=summary)
    watch_of(lab, told).look()
    (alarm,) = lab.alarms()
    assert (alarm.state, alarm.ab_job, alarm.series["metric"]) == ("open", None, "energy")
    assert told.texts[0].startswith("net.pte (forward) takes 15")
    assert "more energy on host: 10.01 to 11.55 mJ, between commits c11 and c13." in told.texts[0]
    assert told.texts[0].endswith("2 jobs in a row take more; A/B jobs measure times.")
    assert (
        main(["lab", "--home", str(lab.home.folder), "history", "net.pte", "--format", "csv"]) == 0
    )
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["p50_ms"] for row in rows if row["metric"] == "energy"] == [""] * 14
    last = [row for row in rows if row["metric"] == "energy"][-1]
    assert (float(last["energy_mJ"]), last["standing"]) == (11.6, "steady")
    with TestClient(create_app(lab), base_url="http://127.0.0.1") as client:
        assert "11.6 mJ" in client.get("/history").text


def test_a_failed_ab_job_leaves_it_to_the_series(lab: Lab) -> None:
    watch = watch_of(lab, told := Told())
    nights(lab, *QUIET, 11.5)
    watch.look()
    (alarm,) = lab.alarms()
    end(lab, alarm.ab_job, "", State.FAILED)
    watch.look()
    assert [one.state for one in lab.alarms()] == ["dismissed"]
    nights(lab, 11.6, first=13)
    watch.look()
    assert [one.state for one in lab.alarms()] == ["open", "dismissed"]
    assert "the A/B job that should confirm it failed" in told.texts[0]


def test_a_series_is_judged_again_when_it_has_another_result(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, history, judged = watch_of(lab), lab.history, list[tuple[str, ...]]()

    def noted(*names: str, **more: Any) -> Any:
        judged.append(names)
        return history(*names, **more)

    monkeypatch.setattr(lab, "history", noted)
    nights(lab, *QUIET)
    watch.look()
    watch.look()
    assert judged == [("net.pte", "host")]
    nights(lab, 10.0, first=12)
    watch.look()
    assert len(judged) == 2


def test_people_acknowledge_and_the_lab_closes(lab: Lab) -> None:
    watch = watch_of(lab)
    nights(lab, *QUIET, 11.5)
    watch.look()
    (alarm,) = lab.alarms()
    with pytest.raises(UsageError, match="is checking and cannot be closed"):
        lab.set_alarm(alarm.id, AlarmState.CLOSED)
    end(lab, alarm.ab_job, "regressed")
    watch.look()
    assert lab.set_alarm(alarm.id[:6], AlarmState.ACKNOWLEDGED, "ann").by == "ann"
    nights(lab, 11.5, 11.6, 11.4, *QUIET[:5], first=13)
    watch.look()
    (alarm,) = lab.alarms((AlarmState.CLOSED,))
    assert alarm.reason.endswith("is as fast as before")


def opened(lab: Lab) -> Alarm:
    """An open alarm of a lab with thirteen jobs."""
    watch = watch_of(lab)
    nights(lab, *QUIET, 11.5)
    watch.look()
    end(lab, lab.alarms()[0].ab_job, "regressed")
    watch.look()
    (alarm,) = lab.alarms()
    return alarm


def test_the_command_shows_history_and_alarms(lab: Lab, capsys: Any) -> None:
    def etscope_lab(*words: str) -> int:
        return main(["lab", "--home", str(lab.home.folder), *words])

    def rows_of(*words: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        etscope_lab(*words, "--format", "json")
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
        return found

    assert etscope_lab("history") == 4
    nights(lab, 10.0, first=20)
    assert etscope_lab("history", "--fail-on", "suspicious") == 4
    alarm = opened(lab)
    rows = rows_of("history", "net.pte")
    assert [(row["standing"], row["commit"]) for row in rows[-2:]] == [
        ("steady", "c11"), ("regressed", "c12"),
    ]  # fmt: skip
    assert etscope_lab("history", "--fail-on", "regressed") == 1
    (row,) = rows_of("alarms")
    assert (row["id"], row["commits"]) == (alarm.id, "c11..c12")
    assert etscope_lab("alarms") == 1
    assert etscope_lab("alarms", "close", alarm.id[:4]) == 0
    assert etscope_lab("alarms") == 0
    assert etscope_lab("alarms", "close") == 2
    assert etscope_lab("alarms", "close", "zz") == 4


def test_the_page_and_the_client_show_alarms(lab: Lab) -> None:
    alarm = opened(lab)
    with running(lab) as url, Client(url) as client:
        assert client.alarms() == [alarm]
        assert client.alarms((AlarmState.CLOSED,)) == []
        assert client.set_alarm(alarm.id, AlarmState.ACKNOWLEDGED).state is AlarmState.ACKNOWLEDGED
    with TestClient(create_app(lab), base_url="http://127.0.0.1") as browser:
        page = browser.get("/alarms").text
        assert escape(sentence(alarm)) in page
        csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        page = browser.post(f"/alarms/{alarm.id}/closed", data={"csrf": csrf}).text
        assert "Open again" in page


@pytest.fixture
def received() -> Iterator[list[tuple[str, dict[str, str], Any]]]:
    """Requests to a local server: path, headers, body. Paths with "fail" are answered by 500."""
    found: list[tuple[str, dict[str, str], Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(500 if "fail" in self.path else 201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.append((f"http://127.0.0.1:{server.server_port}", {}, None))
    yield found
    server.shutdown()
    server.server_close()


def test_sinks_over_http(
    lab: Lab, received: list[tuple[str, dict[str, str], Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = received.pop()[0]
    alarm = opened(lab)
    Webhook(f"{url}/hook").tell(alarm, "text", None)
    Slack(f"{url}/slack").tell(alarm, "a <!channel> & b", "http://lab/alarms")
    github = GithubStatus(GithubConfig(repository="a/b", url=url, token_env="TOKEN_OF_TEST"))
    with pytest.raises(LabError, match="TOKEN_OF_TEST is not set"):
        github.tell(alarm, "text", None)
    monkeypatch.setenv("TOKEN_OF_TEST", "secret")
    github.tell(alarm, "x" * 200, "http://lab/alarms")
    hook, slack, status = received
    assert hook[2]["alarm"]["id"] == alarm.id and hook[2]["alarm"]["state"] == "open"
    assert slack[2] == {"text": "a &lt;!channel&gt; &amp; b <http://lab/alarms|Alarm>"}
    assert status[0] == "/repos/a/b/statuses/c12"
    assert status[1]["Authorization"] == "Bearer secret"
    assert (status[2]["state"], len(status[2]["description"])) == ("failure", 140)
    with pytest.raises(LabError, match="answered 500"):
        Webhook(f"{url}/fail").tell(alarm, "text", None)


def test_an_email_is_sent(lab: Lab) -> None:
    class Handler:
        message: Any = None

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            self.message = message_from_bytes(envelope.content)
            return "250 OK"

    alarm = opened(lab)
    handler = Handler()
    server = Controller(handler, hostname="127.0.0.1", port=free_port())
    server.start()
    try:
        mail = EmailConfig(server=f"127.0.0.1:{server.port}", sender="lab@a.b", to=("x@c.d",))
        Email(mail).tell(alarm, "what it says", "http://lab/alarms")
    finally:
        server.stop()
    message = handler.message
    assert (message["From"], message["To"]) == ("lab@a.b", "x@c.d")
    assert message["Subject"].startswith("net.pte is ") and "slower on host" in message["Subject"]
    assert message.get_payload().splitlines() == ["what it says", "", "http://lab/alarms"]
    with pytest.raises(LabError, match="e-mail to"):
        Email(mail).tell(alarm, "text", None)  # the server is gone


def test_lab_yaml_names_the_sinks(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(
        "watch:\n  webhooks: [https://a.example/x]\n  slack: [https://b.example/y]\n"
        "  email: {server: mail, sender: a@b.c, to: [d@e.f]}\n  github: {repository: a/b}\n"
    )
    with Lab.open(tmp_path) as lab:
        assert [sink.name for sink in Watch(lab.home, lab.database, lab)._sinks] == [
            "webhook a.example", "Slack b.example", "e-mail to d@e.f", "GitHub a/b",
        ]  # fmt: skip

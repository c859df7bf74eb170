"""Users of a real OpenID Connect provider, a process of its own, sign in and send ID tokens."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from etscope_lab.client import Client
from etscope_lab.config import OidcConfig, OidcGrant
from etscope_lab.lab import Lab
from etscope_lab.server.settings import Settings
from lab_support.server import a_job, running
from tests.support.ports import free_port
from tests.support.waiting import until

USERS = (
    {"sub": "1", "email": "ann@example.org", "groups": ["vision", "other"]},
    {"sub": "2", "email": "boss@example.org", "groups": ["admins", "vision"]},
    {"sub": "3", "email": "eve@example.org", "email_verified": False, "groups": []},
)
GRANTS = (
    OidcGrant(group="vision", scope="submit", project="vision"),
    OidcGrant(group="admins", scope="admin"),
)


@pytest.fixture(scope="module")
def issuer() -> Iterator[str]:
    port = free_port()
    claims = [part for user in USERS for part in ("--user-claims", json.dumps(user))]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), *claims]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(f"{url}/.well-known/openid-configuration"))
        yield httpx.get(f"{url}/.well-known/openid-configuration").json()["issuer"]
    finally:
        process.kill()
        process.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETSCOPE_LAB_OIDC_SECRET", "any: the provider takes all")


@contextmanager
def serving(lab: Lab, issuer: str, client_id: str = "etscope-lab") -> Iterator[str]:
    oidc = OidcConfig(issuer=issuer, client_id=client_id, grants=GRANTS)
    with running(lab, Settings(oidc=oidc)) as url:
        yield url.rstrip("/")


def sign_in(browser: httpx.Client, url: str, user: str) -> httpx.Response:
    """What a browser does: the lab's page, the provider's form, and back."""
    page = browser.get(f"{url}/devices")
    assert page.url.path == "/sign-in"
    link = re.search(r'href="(/sign-in/oidc[^"]*)"', page.text)
    assert link is not None
    asked = browser.get(url + link[1])
    assert "code_challenge" in str(asked.url) and "nonce=" in str(asked.url)
    return browser.post(asked.url, data={"sub": user})


def id_token(issuer: str, user: str, client_id: str = "etscope-lab") -> str:
    """An ID token as a program gets it, for a client of the provider."""
    query = {
        "response_type": "code", "client_id": client_id, "redirect_uri": "http://127.0.0.1/x",
        "scope": "openid email profile",
    }  # fmt: skip
    with httpx.Client() as http:
        sent = http.post(f"{issuer}/oauth2/authorize", params=query, data={"sub": user})
        code = httpx.URL(sent.headers["location"]).params["code"]
        form = {"grant_type": "authorization_code", "code": code, **query, "client_secret": "x"}
        answer = http.post(f"{issuer}/oauth2/token", data=form)
        return str(answer.json()["id_token"])


def test_a_user_signs_in_and_has_the_rights_of_the_groups(lab: Lab, issuer: str) -> None:
    job = a_job(lab)
    with serving(lab, issuer) as url, httpx.Client(follow_redirects=True) as browser:
        assert httpx.get(f"{url}/api/v1/jobs").status_code == 401
        back = sign_in(browser, url, "1")
        assert back.status_code == 200, back.text
        assert 'content="0; url=/devices"' in back.text
        assert browser.get(f"{url}/devices").url.path == "/devices"
        page = browser.get(f"{url}/jobs/{job.id}")
        csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert csrf is not None
        assert browser.get(f"{url}/api/v1/tokens").status_code == 403
        headers = {"X-CSRF-Token": csrf[1]}
        spec = {"model": f"sha256:{job.spec.model.sha256}"}
        made = browser.post(f"{url}/api/v1/jobs?again=true", json=spec, headers=headers).json()
        assert (made["submitter"], made["project"]) == ("ann@example.org", "vision")
        assert browser.get(f"{url}/sign-in/oidc/callback").status_code == 403  # without a state
        browser.post(f"{url}/sign-out")
        assert browser.get(f"{url}/devices").url.path == "/sign-in"


def test_a_user_without_a_grant_and_a_forged_answer_are_refused(lab: Lab, issuer: str) -> None:
    with serving(lab, issuer) as url, httpx.Client(follow_redirects=True) as browser:
        refused = sign_in(browser, url, "3")
        assert refused.status_code == 403
        assert "3 has no rights in this lab" in refused.text  # its e-mail is not verified
        assert browser.get(f"{url}/devices").url.path == "/sign-in"
        forged = browser.get(f"{url}/sign-in/oidc/callback?code=1&state=2")
        assert (forged.status_code, "is not valid" in forged.text) == (403, True)
    with running(lab) as url:
        assert httpx.get(f"{url}sign-in/oidc").status_code == 404


def test_programs_send_id_tokens_and_others_are_refused(lab: Lab, issuer: str) -> None:
    job = a_job(lab)
    good = id_token(issuer, "2")
    with serving(lab, issuer) as url:
        with Client(url, good) as boss:
            assert boss.cancel(job.id).state == "cancelled"
            assert boss.tokens() == []
            assert boss.audit(1)[0].by == "boss@example.org"
        head, body, signature = good.split(".")
        middle = signature[:-8] + ("A" * 4 + signature[-4:])
        for wrong in (
            id_token(issuer, "2", client_id="another-program"),
            f"{head}.{body}.{middle}",
            f"{head}.{body[:-4]}AAAA.{signature}",
            "a.b.c",
        ):
            headers = {"Authorization": f"Bearer {wrong}"}
            assert httpx.get(f"{url}/api/v1/jobs", headers=headers).status_code == 401, wrong
    with Lab.open(lab.home.folder) as other, serving(other, "http://127.0.0.1:9/") as url:
        headers = {"Authorization": f"Bearer {good}"}
        answer = httpx.get(f"{url}/api/v1/jobs", headers=headers)
        assert (answer.status_code, "does not answer" in answer.text) == (503, True)
        secret = other.database.add_token("ann", ["read"])  # tokens of the lab go on
        headers = {"Authorization": f"Bearer {secret}"}
        assert httpx.get(f"{url}/api/v1/jobs", headers=headers).status_code == 200


def test_the_issuer_must_not_be_reached_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must begin with https"):
        OidcConfig(issuer="http://login.example.org", client_id="x", grants=GRANTS)

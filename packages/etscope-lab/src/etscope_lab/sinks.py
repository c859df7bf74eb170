"""Sinks of alarms: webhooks, Slack, e-mail, and the status of a commit on GitHub.

A sink that fails raises `LabError`; the lab tries again at its next look.
"""

from __future__ import annotations

import os
import smtplib
import ssl
from dataclasses import asdict, dataclass
from email.message import EmailMessage
from typing import Protocol

import httpx

from etscope.errors import LabError
from etscope_lab.config import EmailConfig, GithubConfig, WatchConfig
from etscope_lab.database.schema import plain
from etscope_lab.jobs.records import Alarm

_TIMEOUT = 10.0  # seconds
_DESCRIPTION = 140  # characters that GitHub takes for a status


class Sink(Protocol):
    """Something that alarms are sent to. name: unique, and the same after a restart."""

    @property
    def name(self) -> str: ...

    def tell(self, alarm: Alarm, text: str, link: str | None) -> None:
        """Send an alarm. link: the URL of the lab's page, if it is served. Raises `LabError`."""
        ...


def sinks_of(config: WatchConfig) -> list[Sink]:
    """The sinks of lab.yaml."""
    found: list[Sink] = [Webhook(url) for url in config.webhooks]
    found += [Slack(url) for url in config.slack]
    if config.email is not None:
        found.append(Email(config.email))
    if config.github is not None:
        found.append(GithubStatus(config.github))
    return found


@dataclass(frozen=True, slots=True)
class Webhook:
    """POST of `{"text": sentence, "link": URL, "alarm": {…}}`, the fields of `Alarm`."""

    url: str

    @property
    def name(self) -> str:
        return f"webhook {httpx.URL(self.url).host}"

    def tell(self, alarm: Alarm, text: str, link: str | None) -> None:
        _post(self.name, self.url, {"text": text, "link": link, "alarm": plain_alarm(alarm)})


@dataclass(frozen=True, slots=True)
class Slack:
    """An incoming webhook of Slack, or of what takes its messages (Mattermost, Rocket.Chat)."""

    url: str

    @property
    def name(self) -> str:
        return f"Slack {httpx.URL(self.url).host}"

    def tell(self, alarm: Alarm, text: str, link: str | None) -> None:
        for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(character, entity)  # else a model's name could be a mention
        _post(self.name, self.url, {"text": f"{text} <{link}|Alarm>" if link else text})


@dataclass(frozen=True, slots=True)
class GithubStatus:
    """The status "failure" of the newer commit, from the label `commit` of its job. A token that
    may write statuses is enough; check runs need a GitHub App."""

    config: GithubConfig

    @property
    def name(self) -> str:
        return f"GitHub {self.config.repository}"

    def tell(self, alarm: Alarm, text: str, link: str | None) -> None:
        commits = alarm.found.get("commits")
        if not commits:
            return  # nothing to mark
        token = _secret(self.name, self.config.token_env)
        series = alarm.series
        status = {
            "state": "failure",
            "context": f"etscope lab: {series['model']} on {series['device']}",
            "description": text if len(text) <= _DESCRIPTION else f"{text[: _DESCRIPTION - 1]}…",
            "target_url": link,
        }
        url = f"{self.config.url.rstrip('/')}/repos/{self.config.repository}/statuses/{commits[1]}"
        _post(self.name, url, status, {"Authorization": f"Bearer {token}"})


@dataclass(frozen=True, slots=True)
class Email:
    """A message by SMTP, encrypted where the server offers it."""

    config: EmailConfig

    @property
    def name(self) -> str:
        return f"e-mail to {', '.join(self.config.to)}"

    def tell(self, alarm: Alarm, text: str, link: str | None) -> None:
        message = EmailMessage()
        # A line end in a header would begin another one; EmailMessage refuses it.
        title = " ".join(str(alarm.series["model"]).split())
        message["Subject"] = f"{title} is {alarm.relative:.1%} slower on {alarm.series['device']}"
        message["From"], message["To"] = self.config.sender, ", ".join(self.config.to)
        message.set_content(text if link is None else f"{text}\n\n{link}\n")
        host, _, port = self.config.server.partition(":")
        try:
            with smtplib.SMTP(host, int(port or 25), timeout=_TIMEOUT) as server:
                server.ehlo()
                if server.has_extn("starttls"):
                    server.starttls(context=ssl.create_default_context())
                if self.config.user is not None:
                    server.login(self.config.user, _secret(self.name, self.config.password_env))
                server.send_message(message)
        except (OSError, smtplib.SMTPException, ValueError) as error:
            raise LabError(f"{self.name}: {error}") from error


def plain_alarm(alarm: Alarm) -> dict[str, object]:
    """Plain JSON of an alarm, times in ISO 8601."""
    found = {**asdict(alarm), "state": alarm.state.value}
    for name in ("opened_at", "changed_at"):
        found[name] = getattr(alarm, name).isoformat()
    result: dict[str, object] = plain(found)
    return result


def _secret(name: str, variable: str) -> str:
    found = os.environ.get(variable)
    if not found:
        raise LabError(f"{name}: ${variable} is not set", hint="set it for etscope lab serve")
    return found


def _post(name: str, url: str, body: object, headers: dict[str, str] | None = None) -> None:
    try:
        answer = httpx.post(url, json=body, headers=headers, timeout=_TIMEOUT)
    except httpx.HTTPError as error:
        raise LabError(f"{name}: {error or type(error).__name__}") from error
    if not answer.is_success:  # the URL may hold a secret: do not show it
        raise LabError(f"{name} answered {answer.status_code}: {answer.text[:200]}")

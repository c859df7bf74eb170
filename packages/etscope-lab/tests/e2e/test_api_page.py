"""The API's documentation in a browser that reaches nothing but this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etscope_lab.lab import Lab
from lab_support.server import a_job, running
from tests.support.browser.chromium import screenshot


def test_the_documentation_works_offline_and_signing_in_by_form(page: Any, tmp_path: Path) -> None:
    with Lab.open(tmp_path) as lab, running(lab) as url:
        job = a_job(lab)
        page.goto(f"{url}api/docs")
        operation = page.locator("#operations-jobs-list_jobs_api_v1_jobs_get")
        operation.wait_for()
        screenshot(page, "lab-api")
        assert page.locator(".opblock").count() >= 18
        operation.click()
        operation.get_by_role("button", name="Try it out").click()
        operation.get_by_role("button", name="Execute").click()
        answer = operation.locator(".live-responses-table .highlight-code").first
        answer.wait_for()
        assert job.id in answer.inner_text()
        assert page.failures == []

        secret = lab.database.add_token("ann", ["read"])
        page.goto(f"{url}devices")
        assert "/sign-in?next=/devices" in page.url
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Sign in").click()
        assert "not valid" in page.get_by_role("alert").inner_text()
        page.get_by_label("Token").fill(secret)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{url}devices")

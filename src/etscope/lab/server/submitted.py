"""A job's specification as it comes over HTTP: like any other, but files are named by content."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict, Field

from etscope.lab.jobs.spec import SHA256, FileRef, JobSpec


def _plain(schema: dict[str, Any]) -> None:
    """Instead of the conditions of `FileRef`: `sha256` is required here."""
    schema.pop("anyOf", None)


class StoredFile(FileRef):
    """A file that the lab has: `PUT /files/{sha256}` came before. A text is short for it."""

    model_config = ConfigDict(json_schema_extra=_plain)
    _short_form = r"^sha256:[0-9a-f]{64}$"
    _short_words = "sha256:…: a path means nothing to the lab, a file is sent to it before"

    path: None = Field(None, description="Means nothing to the lab.")
    sha256: str = Field(pattern=SHA256, description="Of the content.")


class SubmittedSpec(JobSpec):
    """One benchmark, accuracy or A/B job. Files are named by the SHA-256 of their content."""

    model: StoredFile = Field(description="An ETRecord that holds its program, a .pte or a .bpte.")
    etrecord: StoredFile | None = Field(None, description="Of the export, when model is a program.")
    data: StoredFile | None = Field(None, description="The program's external weights (.ptd).")
    baseline: StoredFile | None = Field(
        None, description="Of an A/B job: what model is held against."
    )
    inputs: StoredFile | None = Field(
        None, description=".npz, .npy, .safetensors or .pt; else a bundle's cases, else of seed."
    )

    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.model_dump())

"""Builds the extension for Visual Studio Code: dist/etscope.vsix.

    python editors/vscode/build.py          build it
    python editors/vscode/build.py check    type check and unit tests

A .vsix is a zip with a manifest. vsce, which makes one too, brings 200 packages for signing in to
the marketplace. Node and npm are those that build the page of the report.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr
from zipfile import ZIP_DEFLATED, ZipFile

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from hatch_build import install, run  # noqa: E402

VSIX = HERE / "dist" / "etscope.vsix"
_TYPES = {"vsixmanifest": "text/xml", "json": "application/json", "js": "application/javascript",
          "md": "text/markdown", "txt": "text/plain"}  # fmt: skip


def build() -> None:
    """Write VSIX, with the version of etscope."""
    install(HERE, everything=True)
    _bundle("src/extension.ts", "--platform=node", "--external:vscode", "--target=node20")
    _bundle("src/tensor_page.ts", "--platform=browser", "--target=es2022")
    package = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    version = runpy.run_path(str(ROOT / "src" / "etscope" / "_version.py"))["__version__"]
    package = {**package, "version": version}
    del package["devDependencies"]
    with ZipFile(VSIX, "w", ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", _content_types())
        file.writestr("extension.vsixmanifest", _manifest(package))
        file.writestr("extension/package.json", json.dumps(package, indent=2))
        file.write(HERE / "README.md", "extension/README.md")
        file.write(ROOT / "LICENSE", "extension/LICENSE.txt")
        for script in ("extension.js", "tensor_page.js"):
            file.write(HERE / "dist" / script, f"extension/dist/{script}")


def check() -> None:
    """Type check and unit tests."""
    install(HERE, everything=True)
    run("the type check of the extension", ["node_modules/typescript/bin/tsc"], folder=HERE)
    _bundle("test/unit.test.ts", "--platform=node")
    run("the tests of the extension", ["--test", "dist/unit.test.js"], folder=HERE)


def _bundle(entry: str, *options: str) -> None:
    arguments = [
        "node_modules/esbuild/bin/esbuild",
        entry,
        "--bundle",
        "--outdir=dist",
        "--format=cjs",
    ]
    run(f"the build of {entry}", [*arguments, "--log-level=warning", *options], folder=HERE)


def _content_types() -> str:
    types = "".join(
        f'<Default Extension=".{name}" ContentType="{kind}"/>' for name, kind in _TYPES.items()
    )
    where = "http://schemas.openxmlformats.org/package/2006/content-types"
    return f'<?xml version="1.0" encoding="utf-8"?><Types xmlns="{where}">{types}</Types>'


_ASSETS = {
    "Code.Manifest": "package.json",
    "Services.Content.Details": "README.md",
    "Services.Content.License": "LICENSE.txt",
}


def _manifest(package: dict[str, Any]) -> str:
    """The manifest of a .vsix, from package.json."""
    identity = {"Language": "en-US", "Id": package["name"], "Version": package["version"],
                "Publisher": package["publisher"]}  # fmt: skip
    properties = {"Code.Engine": package["engines"]["vscode"], "Code.ExtensionKind": "workspace"}
    lines = [
        "<Metadata>",
        f"<Identity {' '.join(f'{key}={quoteattr(text)}' for key, text in identity.items())}/>",
        f"<DisplayName>{escape(package['displayName'])}</DisplayName>",
        f'<Description xml:space="preserve">{escape(package["description"])}</Description>',
        f"<Categories>{escape(','.join(package['categories']))}</Categories>",
        "<Properties>",
        *(
            f'<Property Id="Microsoft.VisualStudio.{name}" Value={quoteattr(text)}/>'
            for name, text in properties.items()
        ),
        "</Properties>",
        "<License>extension/LICENSE.txt</License>",
        "</Metadata>",
        '<Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>',
        "<Dependencies/>",
        "<Assets>",
        *(
            f'<Asset Type="Microsoft.VisualStudio.{name}" Path="extension/{path}" '
            'Addressable="true"/>'
            for name, path in _ASSETS.items()
        ),
        "</Assets>",
    ]
    where = "http://schemas.microsoft.com/developer/vsx-schema/2011"
    return (
        f'<?xml version="1.0" encoding="utf-8"?><PackageManifest Version="2.0.0" xmlns="{where}">'
        f"{''.join(lines)}</PackageManifest>"
    )


if __name__ == "__main__":
    check() if sys.argv[1:] == ["check"] else build()

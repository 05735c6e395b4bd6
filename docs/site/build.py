"""Builds the site of the documentation: ``python docs/site/build.py [FOLDER]``, or ``make docs``.

The pages lie in ``docs/`` in a form that code hosts show: their links lead to files of the repository. This
script copies them to ``build/site-pages`` with three changes, and runs Zensical there.

* A link to a program or to another file in ``docs/`` leads to a page that shows the file.
* A link to a file outside ``docs/`` becomes plain text: the site has no such file.
* Pages for the public names of `mesh` and `protocols` are added. mkdocstrings fills them from the source.

The build needs no network. It fails if a link or an anchor leads nowhere.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
EXTRA_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")
COPIED = (".svg", ".png", ".css")
LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".toml": "toml", ".json": "json", ".c": "c"}
LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"^\s*```")

API = {
    "mesh": (
        ("Clients", "Client BlockingClient Subscription Delivery Batch Receipt Pending OutboxState"),
        ("Durable work", "Job Work idempotent Inbox"),
        ("Questions", "Answer SurveyResult"),
        ("Brokers", "Broker Listen HttpListen Limits Principal Environment"),
        (
            "Errors",
            "MeshError NotAccepted NotReady Unknown BatchFailed NoResponders MeshTimeout Disconnected "
            "Detached HeldElsewhere OtherPatterns TopicError ConfigError ListenError Locked "
            "StorageError OutboxError OutboxDamaged",
        ),
    ),
    "protocols": (
        ("Sockets", "Socket Pair0 Pair1 Push0 Pull0 Pub0 Sub0 Req0 Rep0 Surveyor0 Respondent0 Bus0 Star0"),
        (
            "Contexts, requests, surveys",
            "Context RequestContext SubContext SurveyContext Channel Conversation Receiver Answer "
            "SurveyResult",
        ),
        ("Raw sockets and devices", "RawSocket Message Device DeviceStatistics FlowStatistics"),
        (
            "Connections",
            "Listener SharedListener Dialer Pipe PipeView PipeEvent PipeEvents PipeStatistics "
            "SocketStatistics PeerIdentity",
        ),
        (
            "Options and addresses",
            "SocketOptions DEFAULT TlsConfig ProtocolNumber check_url check_dialable is_wildcard "
            "register_transport",
        ),
        (
            "Errors",
            "SPError AddressError AddressInUse Closed ClosedPipe ConnectionRefused HandshakeError "
            "LocalProtocolError MessageTooLarge NoPeers NotSupported PartlySent PipeRefused "
            "ProtocolError RemoteProtocolError RequestLost StateError SurveyOver Timeout "
            "TlsConfigError WouldBlock",
        ),
    ),
}
"""The public names of each package, by what a reader looks for. A test compares them with ``__all__``."""


class Pages:
    """The folder that Zensical reads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown: set[Path] = set()
        """Files in ``docs/`` for which there is a page that shows them."""

    def write(self, name: str, text: str) -> None:
        page = self.folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)

    def add(self, source: Path, name: str) -> None:
        """Adds a page. Links in code blocks stay as they are."""
        lines, in_code = [], False
        for line in source.read_text().splitlines(keepends=True):
            in_code ^= bool(FENCE.match(line))
            lines.append(line if in_code else LINK.sub(lambda link: self._link(link, source, name), line))
        self.write(name, "".join(lines))

    def _link(self, link: re.Match[str], source: Path, name: str) -> str:
        target = link["target"]
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        path = Path(os.path.normpath(source.parent / target))
        staged = self._staged(path)
        if staged is None:
            return link["text"]
        relative = os.path.relpath(staged, Path(name).parent)
        return f"{link['image']}[{link['text']}]({relative}{link['anchor'] or ''})"

    def _staged(self, path: Path) -> str | None:
        """The name of the page or picture that stands for a file of the repository."""
        if path.parent == ROOT and path.name in EXTRA_PAGES:
            return path.name
        if not path.is_relative_to(DOCS) or path.is_dir():
            return None
        name = str(path.relative_to(DOCS))
        if path.suffix == ".md" or path.suffix in COPIED:
            return name
        if path not in self.shown:
            self.shown.add(path)
            fence = f"```{LANGUAGES.get(path.suffix, 'text')}"
            self.write(f"{name}.md", f"# {path.name}\n\n{fence}\n{path.read_text().rstrip()}\n```\n")
        return f"{name}.md"


def api_page(package: str) -> str:
    """The page of a package: a heading for each part, and a line for mkdocstrings for each name."""
    lines = [
        f"# Module {package}",
        "",
        f"All public names of `{package}`, with their signatures, from the source.",
    ]
    for title, names in API[package]:
        lines += ["", f"## {title}"]
        for name in names.split():
            lines += ["", f"::: {package}.{name}", "    options:", "      heading_level: 3"]
    return "\n".join(lines) + "\n"


def stage(folder: Path) -> None:
    """Puts all pages of the site into `folder`, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = Pages(folder)
    for source in sorted(DOCS.rglob("*")):
        name = str(source.relative_to(DOCS))
        if source.suffix == ".md":
            pages.add(source, name)
        elif source.suffix in COPIED:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
    for name in EXTRA_PAGES:
        pages.add(ROOT / name, name)
    for package in API:
        pages.write(f"reference/api/{package}.md", api_page(package))


def main(arguments: list[str]) -> int:
    """Builds the site in a folder, by default ``build/site``. Returns the exit code."""
    site = Path(arguments[0]).resolve() if arguments else ROOT / "build" / "site"
    staged = site.with_name(f"{site.name}-pages")
    stage(staged)
    shutil.rmtree(site, ignore_errors=True)
    settings = staged.with_suffix(".yml")  # paths in it count from the folder of the file
    text = (ROOT / "mkdocs.yml").read_text()
    text = text.replace("docs_dir: build/site-pages", f"docs_dir: {staged.name}")
    text = text.replace("site_dir: build/site", f"site_dir: {site.name}")
    settings.write_text(text.replace('paths: ["."]', f'paths: ["{ROOT}"]'))
    zensical = Path(sys.executable).with_name("zensical")
    command = [str(zensical), "build", "--strict", "--clean", "-f", str(settings)]
    code = subprocess.run(command, cwd=site.parent).returncode
    if code == 0:
        print(f"the site is in {site}: python -m http.server --directory {site}")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""``mesh context``: brokers, and the credentials for them, under names."""

from __future__ import annotations

import os
from typing import Any

from cyclopts import App, Parameter

from mesh import config as configuration
from mesh.cli.documents import to_json
from mesh.cli.exits import CommandFailed, ExitCode
from mesh.config.contexts import PATHS, VARIABLE
from mesh.listen import separate_urls
from mesh.printable import printable
from mesh.storage import disk_advice, write_atomic
from protocols import AddressError, check_dialable

app = App(
    name="context",
    help="Keep brokers and the credentials for them under names.",
    help_format="plaintext",
    default_parameter=Parameter(negative=()),
)


@app.command
def add(
    name: str,
    /,
    *,
    url: list[str],
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    tls_server_name: str | None = None,
    tls_insecure: bool = False,
    key_file: str | None = None,
    token_file: str | None = None,
    use: bool = False,
    replace: bool = False,
) -> int:
    """Keep a broker under a name. Nothing is dialled, and files stay where they are.

    Parameters
    ----------
    name
        Letters, digits, dots, hyphens and underscores.
    url
        Where the broker is; may be repeated: any of them.
    tls_ca
        PEM file with the authorities trusted.
    tls_cert
        PEM file with a certificate to show.
    tls_key
        PEM file with its private key.
    tls_server_name
        Name the broker's certificate has.
    tls_insecure
        Trust any certificate: no protection from impostors.
    key_file
        File with the private key by which the broker knows this client.
    token_file
        The same, with a token.
    use
        Use it from now on.
    replace
        Replace the context of this name, if there is one.
    """
    contexts = configuration.read_contexts(os.environ)
    if name in contexts.by_name and not replace:
        raise CommandFailed(ExitCode.FAILED, f"there is a context {name!r} already; --replace replaces it")
    given: dict[str, Any] = {
        "url": ",".join(_checked(url)),
        "tls_ca": tls_ca,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_server_name": tls_server_name,
        "tls_insecure": tls_insecure,
        "key_file": key_file,
        "token_file": token_file,
    }
    values = {key: os.path.abspath(value) if key in PATHS else value for key, value in given.items() if value}
    contexts = contexts.with_context(name, values)
    _save(contexts.using(name) if use else contexts)
    print(f"context {name} is kept{' and in use' if use or contexts.in_use == name else ''}")
    return ExitCode.OK


@app.command(usage="Usage: mesh context use [OPTIONS] [NAME]")
def use(name: str = "", /, *, none: bool = False) -> int:
    """Use a context from now on, in every command that talks to a broker.

    Parameters
    ----------
    name
        Its name.
    none
        Use none.
    """
    if bool(name) == none:
        raise CommandFailed(ExitCode.USAGE, "give the name of a context, or --none")
    _save(configuration.read_contexts(os.environ).using(name))
    print(f"context {name} is in use" if name else "no context is in use")
    return ExitCode.OK


@app.command(name="list")
def list_(*, json: bool = False) -> int:
    """List all contexts; a star marks the one in use.

    Parameters
    ----------
    json
        Print one JSON document.
    """
    contexts = configuration.read_contexts(os.environ)
    in_use = os.environ.get(VARIABLE) or contexts.in_use
    if json:
        document = {"file": contexts.path, "in_use": in_use or None}
        print(to_json({**document, "contexts": contexts.by_name}, indent=2))
        return ExitCode.OK
    for name in sorted(contexts.by_name):
        values = contexts.by_name[name]
        more = [f"{key}={value}" for key, value in values.items() if key != "url"]
        line = f"{'*' if name == in_use else ' '} {name:<16} {values.get('url', '')} {' '.join(more)}"
        print(printable(line.rstrip()))
    return ExitCode.OK


@app.command
def rm(name: str, /) -> int:
    """Forget a context. The files that it names stay.

    Parameters
    ----------
    name
        Its name.
    """
    _save(configuration.read_contexts(os.environ).without(name))
    print(f"context {name} is forgotten")
    return ExitCode.OK


def _checked(urls: list[str]) -> list[str]:
    separate = [each for url in urls for each in separate_urls(url)]
    if not separate:
        raise AddressError("a context needs the URL of a broker")
    return [check_dialable(each) for each in separate]


def _save(contexts: configuration.Contexts) -> None:
    try:
        os.makedirs(os.path.dirname(contexts.path), mode=0o700, exist_ok=True)
        write_atomic(contexts.path, contexts.as_toml().encode())
    except OSError as error:
        raise CommandFailed(ExitCode.CANNOT_CREATE, f"{contexts.path}: {disk_advice(error)}") from error

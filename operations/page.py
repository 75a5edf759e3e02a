"""The status page, as a Flask app and as an answer to a mitmproxy request.

It is at ``breakwater.internal`` through the proxy, and at the proxy's own address.
"""

from __future__ import annotations

import hmac
import io
import ipaddress
import itertools
import logging
import secrets
import time
import traceback
from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote_to_bytes

from flask import Flask, Response, abort, g, render_template, request
from mitmproxy import http
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Response as BaseResponse

from operations import metrics
from operations.page_text import CODES, LANGUAGES, WORDS
from operations.status import Status
from policies.comments import Comment
from policies.research.report import probability

logger = logging.getLogger("breakwater")

HOST = "breakwater.internal"
NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
"""Names of the proxy's own address. No other one counts: a name of somebody else's may be pointed at loopback."""
DIRECT = frozenset({"regular", "upstream"})
"""Modes in which a request can be for the proxy itself; in the others all of it is an upstream's."""
HTTP = 80
SITE = "breakwater.site"
"""Key of a request's environment: the authority at which the page is asked for."""
ACTIONS = frozenset({"open", "close", "reset", "forget"})
FORM_BYTES = 4096
ROWS_AT_MOST = 50
"""Rows of one table on the page; status.json has them all."""
NOTICE_AT_MOST = 300
"""Characters of what an action says."""

Row = TypeVar("Row")
_alike = attrgetter("upstream", "wire", "path", "finding", "reason", "status")
_remembered = attrgetter("kind", "upstream", "account")


class Source(Protocol):
    """Where the page reads, and what its buttons do."""

    @property
    def token(self) -> str:
        """A secret of this run, at least 16 random bytes as text; in the page's forms and nowhere else."""

    def status(self) -> Status: ...

    def act(self, action: str, upstream: str | None, model: str | None) -> Comment:
        """Do one of `ACTIONS` and say what was done; ValueError, with the comment that says why, if it cannot be."""


class _App(Flask):
    """Says a fault once of its kind: the page asks again every two seconds."""

    def log_exception(self, exc_info: Any) -> None:
        kind, _, trace = exc_info
        words = f"{kind.__name__} {'in ' + traceback.extract_tb(trace)[-1].name if trace else ''}".strip()
        if words not in self.extensions:
            self.extensions[words] = True
            logger.warning("Breakwater: the status page cannot be shown (%s); traffic is not concerned", words)
            logger.debug("Breakwater: status page, at\n%s", "".join(traceback.format_tb(trace)))


def site(flow: http.HTTPFlow) -> str:
    """Authority under which a request asks for the page, in lower case; empty where it asks for something else."""
    asked = flow.request
    if asked.host == HOST:
        return HOST
    here = flow.client_conn.sockname
    if not here or asked.port != here[1] or asked.host.lower() not in NAMES:
        return ""
    if flow.client_conn.proxy_mode.type_name not in DIRECT or not is_loopback(flow.client_conn.peername):
        return ""
    name = f"[{asked.host}]" if ":" in asked.host else asked.host.lower()
    authority = (asked.host_header or "").lower()
    return authority if authority == f"{name}:{asked.port}" or (asked.port == HTTP and authority == name) else ""


def is_loopback(peer: tuple[str, ...] | tuple[str, int] | tuple[str, int, int, int] | None) -> bool:
    """Tell whether a peer's address is this machine's loopback, written as IPv4, IPv6 or the one within the other."""
    try:
        address = ipaddress.ip_address(peer[0] if peer else "")
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def make_app(source: Source) -> Flask:
    """The app. It answers for the page's own authorities alone; everything else is a 404."""
    app = _App("breakwater", static_folder=None, root_path=str(Path(__file__).parent))
    app.config.update(MAX_CONTENT_LENGTH=FORM_BYTES, PROPAGATE_EXCEPTIONS=False)
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True}
    app.url_map.merge_slashes = False
    app.before_request(_guard_host)
    app.after_request(_seal)
    app.register_error_handler(HTTPException, _plain_error)
    for path, view in (
        ("/", lambda: _page(source)),
        ("/status.json", lambda: source.status().as_json(request.args.get("parts"))),
        ("/metrics", lambda: _metrics(source)),
        ("/healthz", lambda: Response("ok\n", mimetype="text/plain")),
    ):
        app.add_url_rule(path, path, view, provide_automatic_options=False)
    app.add_url_rule("/act", "/act", lambda: _act(source), methods=["POST"], provide_automatic_options=False)
    app.add_template_filter(lambda wall: _clock(wall, "%H:%M:%S"), "clock")
    app.add_template_filter(lambda wall: _clock(wall, "%m-%d %H:%M"), "day")
    app.add_template_filter(lambda number: f"{number:,}", "thousands")
    app.add_template_filter(probability)
    for name in ("status.html", "status.css", "status.js"):
        # Compiled now: 0.1 s in the middle of the traffic would stall every stream.
        app.jinja_env.get_template(name)
    return app


def answer(app: Flask, asked: http.Request, site: str = HOST) -> http.Response:
    """Run the app for one request, here and now. ``site``: the authority that was found to be the page's.

    In the caller's thread, so that the state which it reads does not change under it; a page takes a few milliseconds.
    """
    response = BaseResponse.from_app(app.wsgi_app, {**_environ(asked), SITE: site}, buffered=True)
    return http.Response.make(
        response.status_code,
        response.get_data(),
        [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers],
    )


def _environ(asked: http.Request) -> dict[str, Any]:
    """By hand, since the builders of test clients stumble over paths that a client may well send."""
    path, _, query = asked.path.partition("?")
    body = asked.get_content(strict=False) or b""
    host = asked.host_header or asked.pretty_host
    environ: dict[str, Any] = {
        f"HTTP_{name.decode('latin-1').upper().replace('-', '_')}": value.decode("latin-1")
        for name, value in asked.headers.fields
    }
    environ |= {
        "REQUEST_METHOD": asked.method.upper(),
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "HTTP_HOST": host,
        "SERVER_NAME": HOST,
        "SERVER_PORT": "443" if asked.scheme == "https" else "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "CONTENT_TYPE": asked.headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "https" if asked.scheme == "https" else "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": False,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    return environ


def _guard_host() -> None:
    if request.host.lower() != request.environ[SITE]:
        abort(404)
    g.nonce = secrets.token_urlsafe(16)


def _page(source: Source, notice: str = "") -> str:
    status, language = source.status(), _language()
    busy = [row for row in status.upstreams if row.busy]
    return render_template(
        "status.html",
        status=status,
        counts=status.counters.freeze(),
        token=source.token,
        nonce=g.nonce,
        notice=notice,
        language=language,
        code=lambda name: CODES.get(name, "") if language == "zh" else "",
        say=lambda key, **values: WORDS[key].told(language).format(**values),
        pick=lambda english, chinese: chinese if language == "zh" else english,
        rows_at_most=ROWS_AT_MOST,
        decisions=_runs(status.decisions, _alike),
        refusals=_runs(
            sorted(status.refusals, key=lambda row: (row.kind, row.upstream, row.account, -row.seconds_left)), _remembered
        ),
        would="would_" if status.mode == "observe" else "",
        busy=sorted(busy, key=lambda row: (row.state != "open", row.state == "closed")),
        idle=[row for row in status.upstreams if not row.busy],
        paused=[row for row in status.upstreams if row.state == "open"],
        on_trial=any(row.state in ("probing", "half_open") for row in status.upstreams),
        total=lambda numbers: sum(numbers.values()),
    )


def _runs(rows: Iterable[Row], alike: Callable[[Row], Hashable]) -> list[tuple[Row, int]]:
    """First of each run of rows alike, and how many there are: an open breaker says one thing a hundred times."""
    return [(next(run), 1 + sum(1 for _ in run)) for _, run in itertools.groupby(rows, alike)]


def _metrics(source: Source) -> Response:
    content_type, text = metrics.render(source.status(), request.headers.get("Accept", ""))
    return Response(text, content_type=content_type)


def _act(source: Source) -> Any:
    """Only from our own page: its token, and a browser's word that the form was on it."""
    if not hmac.compare_digest(request.form.get("token", "").encode(), source.token.encode()) or not _same_origin():
        abort(403)
    action = request.form.get("action", "")
    if action not in ACTIONS:
        abort(400)
    try:
        comment: Comment = source.act(action, request.form.get("upstream") or None, request.form.get("model") or None)
    except ValueError as error:
        comment = error.args[0]
    said = comment.told(_language())[:NOTICE_AT_MOST]
    return {"said": said} if request.headers.get("Accept", "").startswith("application/json") else _page(source, said)


def _same_origin() -> bool:
    """Sec-Fetch-Site is sent to trustworthy origins only, which plain http is not; Origin comes with every POST."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    origins = {f"{scheme}://{request.environ[SITE]}" for scheme in ("http", "https")}
    if site not in (None, "same-origin") or (origin is not None and origin not in origins):
        return False
    return site is not None or origin is not None


def _language() -> str:
    asked = request.args.get("lang", "")
    return asked if asked in LANGUAGES else request.accept_languages.best_match(LANGUAGES, "en")


def _clock(wall: float | None, form: str) -> str:
    """Local time of the machine that runs the proxy."""
    if wall is None:
        return ""
    try:
        return time.strftime(form, time.localtime(wall))
    except (OverflowError, ValueError, OSError):
        return "?"


def _seal(response: Response) -> Response:
    """Nothing from elsewhere, nothing to elsewhere, nothing kept. Not `no-referrer`: it would blank a form's Origin."""
    nonce = f"'nonce-{g.nonce}'" if "nonce" in g else "'none'"
    response.headers.update(
        {
            "Content-Security-Policy": f"default-src 'none'; script-src {nonce}; style-src {nonce}; img-src data:; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        },
    )
    return response


def _plain_error(error: HTTPException) -> Response:
    """The status and its name; not what was asked."""
    code = 404 if error.code in (None, 405) else error.code
    return Response(f"{error.name if code == error.code else 'Not Found'}\n", status=code, mimetype="text/plain")

"""The page of a scan on localhost: records paged from the files, decisions saved as they are made."""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from cleanse.errors import CleanseError
from cleanse.report import decisions as decided
from cleanse.report.listing import Filter, Listing
from cleanse.report.page import build_live, live_values
from cleanse.report.scan_facts import ScanFacts
from cleanse.summary import FILE as SUMMARY

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Mount, Route
except ImportError as error:
    raise CleanseError(
        f"the review server needs {error.name}, which is not installed: pip install 'corpus-cleanse[review]'"
    ) from error

HOST = "127.0.0.1"
MOST_BODY = 4 << 20
MOST_RECORDS = 200
_HEADERS = {
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Review:
    """One scan under review. Safe to use from several threads."""

    def __init__(self, out: Path) -> None:
        """Raises CleanseError where ``out`` holds no finished scan, UsageError where its decisions are broken."""
        self._out = out
        self._path = out / decided.FILE
        self._decisions = decided.load(self._path)
        self._lock = threading.Lock()
        self._read_at = 0
        self._read()

    def _read(self) -> None:
        """Reads the scan, and again when a release has changed it."""
        changed = (self._out / SUMMARY).stat().st_mtime_ns if (self._out / SUMMARY).exists() else -1
        if changed != self._read_at:
            self._facts = ScanFacts(self._out)
            self._listing = Listing(self._facts)
            self._values = live_values(self._facts)
            self._read_at = changed

    def page(self) -> bytes:
        """The page, with the decisions made so far."""
        with self._lock:
            self._read()
            return build_live(self._facts, self._values, [item._asdict() for item in self._decisions.values()])

    def records(self, wanted: Filter, offset: int, limit: int) -> dict[str, Any]:
        """Some records that fit a filter."""
        with self._lock:
            self._read()
            kinds = {item.id: item.decision for item in self._decisions.values()}
            total, records = self._listing.page(wanted, kinds, offset, min(limit, MOST_RECORDS))
        return {"total": total, "records": records}

    def decide(self, changes: list[Any]) -> bool:
        """Takes decisions in and saves all there are; False, and nothing is changed, where one is not a decision."""
        with self._lock:
            changed = dict(self._decisions)
            for change in changes:
                if isinstance(change, dict) and isinstance(change.get("id"), str) and change.get("decision") is None:
                    changed.pop(change["id"], None)
                    continue
                decision = decided.one(change)
                if decision is None:
                    return False
                changed[decision.id] = decision
            decided.save(self._path, changed.values())
            self._decisions = changed
        return True


class _Site:
    """What is answered at each address."""

    def __init__(self, review: Review) -> None:
        self._review = review

    async def page(self, _: Request) -> Response:
        return _answer(await run_in_threadpool(self._review.page), "text/html")

    async def records(self, request: Request) -> Response:
        asked = request.query_params
        wanted = Filter(**{name: asked.get(name, "")[:1000] for name in Filter._fields})
        try:
            offset, limit = max(0, int(asked.get("offset", "0"))), max(1, int(asked.get("limit", "20")))
        except ValueError:
            return _answer(b"offset and limit are numbers", status=400)
        return _json(await run_in_threadpool(self._review.records, wanted, offset, limit))

    async def decide(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _answer(b"expected application/json", status=415)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BODY:
                return _answer(b"too many decisions at once", status=413)
        try:
            changes = orjson.loads(body)["changes"]
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return _answer(b'expected {"changes": [...]}', status=400)
        if not isinstance(changes, list) or not await run_in_threadpool(self._review.decide, changes):
            return _answer(b"not decisions: nothing was saved", status=400)
        return _json({"saved": len(changes)})


def application(review: Review, token: str) -> Starlette:
    """The server's routes, all below ``/<token>/``: who does not know the token sees nothing."""
    site = _Site(review)
    routes = [
        Route("/", site.page, methods=["GET"]),
        Route("/api/records", site.records, methods=["GET"]),
        Route("/api/decisions", site.decide, methods=["POST"]),
    ]
    # Another site's name may be made to point here (DNS rebinding): only our own names are answered.
    hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"])
    return Starlette(routes=[Mount(f"/{token}", routes=routes)], middleware=[hosts])


def serve(out: Path, *, port: int, ready: Callable[[str], None]) -> None:
    """Serves until it is interrupted; ``ready`` is told the address.

    Raises CleanseError where the port is taken, or ``out`` holds no finished scan.
    """
    review = Review(out)
    token = secrets.token_urlsafe(24)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
        listener.listen()  # whoever is told the address below is not turned away
    except OSError as error:
        listener.close()
        raise CleanseError(f"cannot listen on {HOST}:{port}: {error.strerror}; give another --port") from error
    config = uvicorn.Config(application(review, token), log_level="warning", access_log=False, lifespan="off")
    ready(f"http://{HOST}:{listener.getsockname()[1]}/{token}/")
    uvicorn.Server(config).run(sockets=[listener])


def _answer(content: bytes, media_type: str = "text/plain", status: int = 200) -> Response:
    return Response(content, status, _HEADERS, f"{media_type}; charset=utf-8")


def _json(value: Any) -> Response:
    return Response(orjson.dumps(value), 200, _HEADERS, "application/json")

"""The server's routes about itself, in addition to the Open Inference Protocol.

Its own interface lives under `/csdf-edge/v1/` on the HTTP port. Prometheus reads `/metrics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from launcher.serve import http_form
from launcher.serve.exposition import METRICS_PATH, RunsCollector, exposition
from launcher.serve.http_form import Response
from launcher.serve.service import Service
from launcher.view.elements import as_json
from launcher.view.json_form import VIEW_PATH, views_as_json
from launcher.view.live_page import Watched, live_page

SHOWN_PATH = "/csdf-edge/v1/shown"
"""Where the page fetches what it shows: elements, see `launcher.view.elements.as_json`."""

Headers = Mapping[str, str]


def _check_reader(service: Service, headers: Headers) -> None:
    """Raise `RequestError` for a request with neither the clients' token nor the operators'."""
    authorization = headers.get("Authorization")
    if service.control is None or not service.control.is_operator(authorization):
        service.check_token(authorization)


async def _view(service: Service, headers: Headers) -> Response:
    _check_reader(service, headers)
    views = await asyncio.to_thread(service.views)
    return Response(200, (views_as_json(views),))


async def _shown(service: Service, headers: Headers) -> Response:
    _check_reader(service, headers)
    return await asyncio.to_thread(_show, service)


def _show(service: Service) -> Response:
    views = service.views()
    for view in views:
        service.recent.keep(view)
    runs = [Watched(view, service.recent.of(view.run)) for view in views]
    return http_form.write_json(as_json(live_page(runs)))


async def _metrics(service: Service, headers: Headers) -> Response:
    if not service.metrics_are_open:
        service.check_token(headers.get("Authorization"))
    collector = RunsCollector(
        service.views,
        lambda: service.repository.models,
        service.version,
        None if service.control is None else not service.control.state_problem,
    )
    made = await asyncio.to_thread(exposition, collector, headers.get("Accept", ""))
    return Response(200, (made[0],), content_type=made[1])


OWN_ROUTES: Mapping[tuple[str, str], Callable[[Service, Headers], Awaitable[Response]]] = {
    ("GET", VIEW_PATH): _view,
    ("GET", SHOWN_PATH): _shown,
    ("GET", METRICS_PATH): _metrics,
}
"""(method, path) → the function that answers a request with these headers."""

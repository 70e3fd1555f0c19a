"""The server's routes about itself, in addition to the Open Inference Protocol.

Its own interface lives under `/csdf-edge/v1/` on the HTTP port. Prometheus reads `/metrics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from launcher.serve.exposition import METRICS_PATH, RunsCollector, exposition
from launcher.serve.over_http import form
from launcher.serve.over_http.form import Response
from launcher.serve.service import Service
from launcher.view.elements import as_json
from launcher.view.json_form import VIEW_PATH, views_as_json
from launcher.view.live_page import Watched, live_page

SHOWN_PATH = "/csdf-edge/v1/shown"
"""Where the page fetches what it shows: elements, see `launcher.view.elements.as_json`."""

Headers = Mapping[str, str]


async def _view(service: Service, headers: Headers) -> Response:
    service.check_token(headers.get("Authorization"))
    views = await asyncio.to_thread(service.views)
    return Response(200, (views_as_json(views),))


async def _shown(service: Service, headers: Headers) -> Response:
    service.check_token(headers.get("Authorization"))
    return await asyncio.to_thread(_show, service)


def _show(service: Service) -> Response:
    views = service.views()
    for view in views:
        service.recent.keep(view)
    runs = [Watched(view, service.recent.of(view.run)) for view in views]
    return form.write_json(as_json(live_page(runs)))


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

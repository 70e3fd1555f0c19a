"""What the server answers about itself, beside the Open Inference Protocol.

Its own interface lives under `/csdf-edge/v1/` on the HTTP port. Prometheus looks for `/metrics`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from launcher.serve.exposition import METRICS_PATH, RunsCollector, exposition
from launcher.serve.http_form import Response
from launcher.serve.service import Service
from launcher.view.json_form import VIEW_PATH, views_as_json

Headers = Mapping[str, str]


async def _view(service: Service, headers: Headers) -> Response:
    service.check_token(headers.get("Authorization"))
    views = await asyncio.to_thread(service.views)
    return Response(200, (views_as_json(views),))


async def _metrics(service: Service, headers: Headers) -> Response:
    if not service.metrics_are_open:
        service.check_token(headers.get("Authorization"))
    collector = RunsCollector(service.views, lambda: service.repository.models, service.version)
    made = await asyncio.to_thread(exposition, collector, headers.get("Accept", ""))
    return Response(200, (made[0],), content_type=made[1])


OWN_ROUTES: Mapping[tuple[str, str], Callable[[Service, Headers], Awaitable[Response]]] = {
    ("GET", VIEW_PATH): _view,
    ("GET", METRICS_PATH): _metrics,
}
"""(method, path) → what answers a request with these headers."""

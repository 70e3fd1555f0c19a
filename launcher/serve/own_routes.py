"""What the server answers about itself, beside the Open Inference Protocol: paths and handlers.

The own interface lives under `/csdf-edge/v1/` on the HTTP port, behind the same token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from launcher.serve.http_form import Response
from launcher.serve.service import Service
from launcher.view.json_form import VIEW_PATH, views_as_json

Handler = Callable[[Service], Awaitable[Response]]


async def _view(service: Service) -> Response:
    views = await asyncio.to_thread(service.views)
    return Response(200, (views_as_json(views),))


OWN_ROUTES: Mapping[tuple[str, str], Handler] = {("GET", VIEW_PATH): _view}
"""(method, path) → what answers."""

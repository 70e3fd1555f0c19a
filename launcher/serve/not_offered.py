"""The extensions of Triton's protocol that are not offered here, and what to do instead.

A client that asks for one gets a sentence that says so, instead of the one about an unknown path or
method.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from launcher.serve.errors import Refusal, RequestError

_SETTINGS = {
    "logging": "log settings are not served: options of `launch` set what is logged",
    "trace": "trace settings are not served: `traces` of `serve` in cluster.yaml sets where "
    "traces go, and each request's traceparent whether it is traced",
    "shared memory": "shared memory is not served: send tensors as binary data",
    "repository": "clients do not load or unload models: `launch up` changes what is served",
}

_PATHS = (
    (re.compile(r"/v2/logging"), "logging"),
    (re.compile(r"/v2(/models/[^/]+)?/trace/setting"), "trace"),
    (
        re.compile(r"/v2/(system|cuda)sharedmemory(/region/[^/]+)?/(status|register|unregister)"),
        "shared memory",
    ),
    (re.compile(r"/v2/repository/models/[^/]+/(load|unload)"), "repository"),
)

METHODS: Mapping[str, str] = {
    "LogSettings": _SETTINGS["logging"],
    "TraceSetting": _SETTINGS["trace"],
    "RepositoryModelLoad": _SETTINGS["repository"],
    "RepositoryModelUnload": _SETTINGS["repository"],
    **{
        f"{kind}SharedMemory{what}": _SETTINGS["shared memory"]
        for kind in ("System", "Cuda")
        for what in ("Status", "Register", "Unregister")
    },
}
"""Method over gRPC → the sentence with which it is refused."""


def refuse_path(path: str) -> None:
    """Raise `RequestError` if `path` belongs to an extension that is not offered."""
    for pattern, name in _PATHS:
        if pattern.fullmatch(path):
            raise RequestError(_SETTINGS[name], Refusal.NOT_OFFERED)

"""The answers to requests that cannot be served: one table for HTTP and gRPC."""

from __future__ import annotations

import asyncio
from enum import Enum

from launcher.errors import BadInputError, FullError, LauncherError


class Refusal(Enum):
    """Why a request is refused: its HTTP status, and the name of its gRPC status code."""

    INVALID = 400, "INVALID_ARGUMENT"
    UNAUTHENTICATED = 401, "UNAUTHENTICATED"
    FORBIDDEN = 403, "PERMISSION_DENIED"
    NOT_FOUND = 404, "NOT_FOUND"
    NOT_ALLOWED = 405, "UNIMPLEMENTED"
    TOO_SLOW = 408, "DEADLINE_EXCEEDED"
    TOO_LARGE = 413, "RESOURCE_EXHAUSTED"
    UNSUPPORTED = 415, "UNIMPLEMENTED"
    FULL = 429, "RESOURCE_EXHAUSTED"
    INTERNAL = 500, "INTERNAL"
    NOT_OFFERED = 501, "UNIMPLEMENTED"
    UNAVAILABLE = 503, "UNAVAILABLE"

    @property
    def http_status(self) -> int:
        """The status code of the HTTP response."""
        return self.value[0]

    @property
    def grpc_code(self) -> str:
        """The name of the member of `grpc.StatusCode`."""
        return self.value[1]


class RequestError(LauncherError):
    """A request that is refused, with a sentence for its client."""

    def __init__(self, sentence: str, refusal: Refusal = Refusal.INVALID) -> None:
        super().__init__(sentence)
        self.refusal = refusal


def as_request_error(error: Exception) -> RequestError:
    """Return the answer for an exception; an unexpected one is answered without details.

    It has no traceback: the frames of one would keep the request's bytes, and the exception itself,
    until the garbage collector finds that cycle.
    """
    match error:
        case RequestError():
            return error.with_traceback(None)
        case FullError():
            return RequestError(str(error), Refusal.FULL)
        case BadInputError():
            return RequestError(str(error))
        case LauncherError():
            return RequestError(str(error), Refusal.UNAVAILABLE)
        case asyncio.TimeoutError():
            return RequestError("the request did not arrive in time", Refusal.TOO_SLOW)
        case _:
            return RequestError("the server failed to answer; its log says why", Refusal.INTERNAL)

"""The root error of `csdf`."""


class CsdfError(Exception):
    """Anything that goes wrong in `csdf`; the message says what, where and what to do."""


class GraphError(CsdfError):
    """A graph that means nothing: a channel without an actor, rates that do not match phases."""

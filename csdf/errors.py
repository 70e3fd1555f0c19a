"""The errors of `csdf`; all derive from one."""


class CsdfError(Exception):
    """Anything that goes wrong in `csdf`; the message says what, where and what to do."""


class GraphError(CsdfError):
    """A graph that means nothing: a channel without an actor, rates that do not match phases."""


class ConversionError(CsdfError):
    """A partition that does not fit its network: a layer without a device, an unknown layer."""

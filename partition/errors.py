"""The root error of `partition`."""


class PartitionError(Exception):
    """Anything that goes wrong in `partition`; the message says what, where (device, layer) and
    what to do."""


class DoesNotFitError(PartitionError):
    """A device's memory is too small: names the device, the need, the limit and what would help."""

"""The root error of `partition`."""


class PartitionError(Exception):
    """The root error of `partition`; messages say what happened, where (device, layer), and what to
    do about it."""


class DoesNotFitError(PartitionError):
    """A device's memory is too small: names the device, the need, the limit and what would help."""

"""The root error of `cnn`."""


class CnnError(Exception):
    """Anything that goes wrong in `cnn`; says what, where (file, layer) and what to do."""


class ModelError(CnnError):
    """A model that cannot be read, or holds what cannot be handled."""

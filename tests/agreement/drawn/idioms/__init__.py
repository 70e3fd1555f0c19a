"""Idioms of exporters, a module per family.

Every idiom is a function that adds nodes to a sketch, or raises `UndrawableError` where it does not
fit.
"""

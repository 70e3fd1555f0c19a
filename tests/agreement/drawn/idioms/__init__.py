"""Idioms of exporters, a module for each family; every idiom is a function that adds nodes to a
sketch, or raises `UndrawableError` where it does not fit."""

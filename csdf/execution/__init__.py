"""Engines that execute a graph: without time, on processors, and the prologue of static orders."""

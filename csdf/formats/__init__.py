"""Graphs as files and pictures: SDF3 XML, JSON, NetworkX, SVG, traces."""

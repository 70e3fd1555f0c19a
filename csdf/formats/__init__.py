"""Read, write and draw graphs: SDF3 XML, JSON, NetworkX, SVG, traces."""

"""The graph and what holds for it before it is executed: consistency, components, static orders."""

"""The graph, and what holds for it before it is executed: consistency and components."""

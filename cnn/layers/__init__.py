"""Group a simplified network into layers: their operators, shapes, state and views."""

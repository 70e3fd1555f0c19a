"""The hybrid strategy: layers are split, and any part goes to any device."""

"""What was measured on devices, and how it replaces estimates."""

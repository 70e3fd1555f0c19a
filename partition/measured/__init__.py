"""Measurements on devices, which replace estimates."""

"""Measures the energy that an agent's machine takes: finds a sensor, and reads it when needed."""

"""Examines a machine and what an agent needs on it, and says what to do about each finding."""

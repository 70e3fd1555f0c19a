"""The commands of the service: `launch up`, `status`, `apply`, `rollback`, `down`, and more."""

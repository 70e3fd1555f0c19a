"""The console commands `launch`, `csdf-edge partition` and `ga`, a module per subcommand."""

"""Take frames from cameras, videos, folders and pipes (`launcher.config.ends.source`)."""

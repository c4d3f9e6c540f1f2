"""What people see: `figures`, the `answer`, the `page` to ask, and the `commands`."""

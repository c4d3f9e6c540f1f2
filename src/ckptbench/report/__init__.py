"""Output for people: `figures`, the `answer`, the calculator (`page`) and the `commands`."""

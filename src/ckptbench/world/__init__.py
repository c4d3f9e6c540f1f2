"""The ranks of a run and their launcher: the place of each rank, and the messages between ranks and launcher."""

"""The ranks of a run and their launcher: the node of each rank, and the messages between ranks and launcher."""

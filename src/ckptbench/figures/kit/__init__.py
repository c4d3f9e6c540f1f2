"""What figures are made of: panels, labels, captions, looks."""

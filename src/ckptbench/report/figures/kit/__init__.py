"""What figures are made of: panels, captions, looks."""

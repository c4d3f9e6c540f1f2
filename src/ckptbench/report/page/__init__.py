"""The page to ask "what if": one HTML file that computes in the browser what another setup, scale or failure rate would lose."""

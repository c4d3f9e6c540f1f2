"""The page of a study: its answer, figures and tables in one HTML file that needs no server and can be sent."""

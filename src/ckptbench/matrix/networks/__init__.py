"""The networks of the study, described once as data, from which every framework builds its own."""

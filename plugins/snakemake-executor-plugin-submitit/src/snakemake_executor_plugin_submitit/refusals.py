"""What schedulers say when they do not take a job: that it will pass, or that the user has as many jobs as the site
allows. Everything else is for good.

The patterns are whole phrases: words like `timed out` stand in names of folders and of options, too.
"""

import re

_PASSING = re.compile(
    # Slurm
    r"socket timed out on send/recv|unable to contact slurm controller|zero bytes were transmitted"
    r"|controller (is )?in standby mode|slurm temporarily unable to accept job|unexpected message received"
    r"|controller not responding|unable to create job record, try again|resource temporarily unavailable"
    # Grid Engine
    r"|unable to contact qmaster|can't connect to service|commlib error: |got select timeout"
    r"|failed receiving gdi request|unable to send message to qmaster|rejected temporarily|temporarily rejected job"
    # PBS
    r"|cannot connect to server|communication failure|pbs_iff: |qsub: end of file|premature end of message"
    r"|server is currently too busy to service this request"
    # the network's own words
    r"|connection (refused|reset by peer|timed out)",
    re.IGNORECASE,
)
_LIMIT = re.compile(
    r"\b(QOS|Assoc)\w*SubmitJob\w*Limit|reached the max submit job limit"
    r"|only \d+ jobs are allowed per user"
    r"|would exceed (complex|queue)\b|maximum number of jobs (already in|for)\b",
    re.IGNORECASE,
)


def is_passing(words: str) -> bool:
    """Whether the same submission may succeed a little later."""
    return bool(_PASSING.search(words))


def is_limit(words: str) -> bool:
    """Whether it may succeed once one of the user's jobs has ended."""
    return bool(_LIMIT.search(words))

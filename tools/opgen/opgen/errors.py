"""The one exception of the generator: a table or wheel that does not fit, described so that the reader knows what to edit."""


class OpgenError(Exception):
    """The table and the installed torch disagree; the message names the operator and the remedy."""

"""Stands between the hidden cases and the delivered function."""

import answer


def call(name, arguments):
    """What the function returns."""
    return getattr(answer, name)(*arguments)


def after(name, items, arguments):
    """What the function returns, and the list that it was given as it is afterwards."""
    returned = getattr(answer, name)(items, *arguments)
    return [returned, items]

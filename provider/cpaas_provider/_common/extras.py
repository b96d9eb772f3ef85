"""How a user installs what only some features need."""

from __future__ import annotations


def describe_install(extra: str) -> str:
    """Return how to install an extra. The package is on no index, so it is installed from a checkout.

    :param extra: of ``[project.optional-dependencies]``
    """
    return f"pip install '.[{extra}]' in a checkout of the provider"

"""Phone numbers in the form in which the sandbox has them."""

from __future__ import annotations

from cpaas_sandbox.pytest_plugin.errors import SandboxError


def digits_of(number: str, region: str | None) -> str:
    """Return a phone number as international digits without plus.

    :param number: in any usual form: national with a region, or international
    :param region: the country of national numbers, such as ``NG``
    :raises SandboxError: when it is no number, or is national and there is no region
    """
    import phonenumbers

    written = number.strip()
    try:
        # The sandbox's own form is international, too. In some countries national numbers begin with no 0.
        if written.isdigit() and not written.startswith("0") and not _is_national(written, region):
            written = f"+{written}"
        parsed = phonenumbers.parse(written, region)
    except phonenumbers.NumberParseException as error:
        is_national = error.error_type == phonenumbers.NumberParseException.INVALID_COUNTRY_CODE and not region
        advice = (
            "It is national and there is no region. Set cpaas_region = NG, or your country, in pytest's configuration."
            if is_national
            else "Write it internationally, such as +234 803 123 4567, or nationally with a region."
        )
        raise SandboxError(f"{number!r} cannot be read as a phone number. {advice}") from None
    return f"{parsed.country_code}{phonenumbers.national_significant_number(parsed)}"


def _is_national(digits: str, region: str | None) -> bool:
    """Return whether digits are a valid number of the region, with or without its country code."""
    import phonenumbers

    return region is not None and phonenumbers.is_valid_number(phonenumbers.parse(digits, region))

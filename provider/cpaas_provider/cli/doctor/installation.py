"""Checks of what is installed and configured, and of Airflow itself."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata

from airflow.configuration import conf
from airflow.jobs.job import Job
from airflow.utils.session import create_session
from packaging.requirements import InvalidRequirement, Requirement
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from cpaas_provider.cli.doctor.report import Findings, failed, ok, skipped, warning
from cpaas_provider.database.default_file import describe_spreading, spreading_executor
from cpaas_provider.provider_info import get_provider_info
from cpaas_provider.sources.results_file import results_file_mode

_DISTRIBUTION = "airflow-provider-cpaas"
_SECTION = "cpaas"
_VARIABLE = "AIRFLOW__CPAAS__"
_SUFFIXES = ("_CMD", "_SECRET")
_CALLBACK_DAYS = "callback_days"


def check_versions() -> Findings:
    """Check the versions of Airflow, the provider and Python against the lowest that are accepted."""
    try:
        provider = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        yield warning(
            "versions",
            "The package airflow-provider-cpaas is not installed, only its files are on the path.",
            "Install the package, so that Airflow finds the provider.",
        )
        return
    airflow = metadata.version("apache-airflow-core")
    found = f"Airflow {airflow}, provider {provider.version}, Python {platform.python_version()}"
    low = [words for text in provider.requires or () if (words := _too_low(text))]
    if low:
        yield failed("versions", f"{found}. Too old or missing: {', '.join(low)}.", "Install at least these versions.")
    else:
        yield ok("versions", found)


def _too_low(text: str) -> str | None:
    """Return a requirement that is not met, with the installed version. Requirements of extras are ignored."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
        return None
    try:
        installed = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name}{requirement.specifier} (not installed)"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"{requirement.name}{requirement.specifier} ({installed} is installed)"


def check_configuration() -> Findings:
    """Check the section of the configuration: unknown options, and values that cannot be used."""
    config = get_provider_info()["config"]
    known = set(config[_SECTION]["options"])  # type: ignore[index]
    given = set(conf.getsection(_SECTION) or {})
    for name in os.environ:
        if name.startswith(_VARIABLE):
            option = name.removeprefix(_VARIABLE)
            for suffix in _SUFFIXES:
                option = option.removesuffix(suffix)
            given.add(option.lower())
    if unknown := sorted(given - known):
        yield warning(
            "configuration",
            f"Unknown options in [cpaas]: {', '.join(unknown)}.",
            f"Correct the spelling, or remove them. The options are: {', '.join(sorted(known))}.",
        )
    days = conf.get(_SECTION, _CALLBACK_DAYS, fallback="90")
    if not (str(days).isdigit() and int(days) > 0):
        yield failed(
            "configuration",
            "[cpaas] callback_days is not a whole number above 0, so 90 is used.",
            "Set it to a whole number.",
        )
    elif not unknown:
        yield ok("configuration", f"[cpaas] callback_days is {days}")
    try:
        results_file_mode()
    except ValueError as error:
        yield failed("configuration", str(error), "Set it to 600, or to a mode that lets others read the files.")
    if executor := spreading_executor():
        yield warning(
            "configuration",
            describe_spreading(executor, "SQLite file"),
            "Set [cpaas] database to one PostgreSQL database for workers, triggerer and API server.",
        )


def check_airflow() -> Findings:
    """Check Airflow's own database, and that a triggerer is alive."""
    try:
        with create_session(scoped=False) as session:
            newest = select(Job).where(Job.job_type == "TriggererJob")
            job = session.scalars(newest.order_by(Job.latest_heartbeat.desc()).limit(1)).first()
            beat = None if job is None else job.latest_heartbeat
            alive = job is not None and job.is_alive()
    except SQLAlchemyError as error:
        yield failed(
            "Airflow's database",
            f"It cannot be read ({type(error).__name__}).",
            "Check it with `airflow db check`. On a new machine, run `airflow db migrate`.",
        )
        yield skipped("triggerer", "Airflow's database cannot be read.")
        return
    yield ok("Airflow's database", "readable")
    if alive:
        yield ok("triggerer", "alive")
    elif beat is None:
        yield warning(
            "triggerer",
            "No triggerer has run yet.",
            "Start `airflow triggerer`. Deferrable sensors and sends that wait need it.",
        )
    else:
        ago = (datetime.now(UTC) - beat).total_seconds()
        yield failed(
            "triggerer",
            f"The last one ended or hangs: its last heartbeat was {ago:,.0f} s ago.",
            "Start `airflow triggerer`. Tasks that are deferred wait until then.",
        )
